//! What a line typed into `smoe chat` means.

use std::path::PathBuf;

/// A line, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// Something for the model.
    Say(String),
    /// `/help`.
    Help,
    /// `/clear`: forget the conversation.
    Clear,
    /// `/system TEXT`: a new system message (none where empty), which starts a new conversation.
    System(Option<String>),
    /// `/retry`: another answer to the last message.
    Retry,
    /// `/save FILE`: the conversation as JSON.
    Save(PathBuf),
    /// `/quit`.
    Quit,
    /// Nothing to do.
    Nothing,
    /// A command that is not one, or lacks its argument: what to tell the user.
    Misunderstood(String),
}

/// What `/help` prints.
pub(crate) const HELP: &str = "\
/help          this text
/clear         forget the conversation
/system TEXT   start anew with this system message; without TEXT, with none
/retry         another answer to your last message
/save FILE     write the conversation as JSON
/quit          leave (as does Ctrl-D)
Ctrl-C ends an answer. A line that ends in \\ goes on in the next. // starts a message with a slash.";

/// The commands, for completion and suggestions.
pub(crate) const COMMANDS: [&str; 6] = ["/help", "/clear", "/system", "/retry", "/save", "/quit"];

impl Input {
    /// Understands a line.
    pub(crate) fn parse(line: &str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "" => Self::Nothing,
            "/help" | "/?" => Self::Help,
            "/clear" => Self::Clear,
            "/system" => Self::System((!rest.is_empty()).then(|| rest.to_owned())),
            "/retry" => Self::Retry,
            "/save" if rest.is_empty() => Self::Misunderstood("/save needs a file name".into()),
            "/save" => Self::Save(rest.into()),
            "/quit" | "/exit" | "/bye" => Self::Quit,
            _ if line.starts_with("//") => Self::Say(line[1..].to_owned()),
            _ if word.starts_with('/') => Self::Misunderstood(unknown(word)),
            _ => Self::Say(line.to_owned()),
        }
    }
}

fn unknown(word: &str) -> String {
    let start: String = word.chars().take(3).collect();
    let near = COMMANDS.iter().find(|command| start.len() > 1 && command.starts_with(&start));
    let hint = near.map_or_else(|| "/help lists them".into(), |command| format!("did you mean {command}?"));
    format!("there is no command {word}; {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let cases = [
            ("hello there ", Input::Say("hello there".into())),
            ("", Input::Nothing),
            ("/help", Input::Help),
            (" /clear", Input::Clear),
            ("/system  Be brief.", Input::System(Some("Be brief.".into()))),
            ("/system", Input::System(None)),
            ("/save a b.json", Input::Save("a b.json".into())),
            ("/exit", Input::Quit),
            ("//etc/passwd is a file", Input::Say("/etc/passwd is a file".into())),
        ];
        for (line, want) in cases {
            assert_eq!(Input::parse(line), want, "{line}");
        }
        for (line, said) in [
            ("/sistem x", "/help"),
            ("/sytsem x", "/system"),
            ("/save", "file name"),
            ("/é", "/help"),
            ("/aé", "/help"),
        ] {
            let Input::Misunderstood(text) = Input::parse(line) else { panic!("{line}") };
            assert!(text.contains(said), "{line}: {text}");
        }
    }
}
