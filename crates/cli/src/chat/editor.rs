//! The line editor: history, Ctrl-C, Ctrl-D, lines that go on.

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, DefaultEditor};
use std::path::PathBuf;

/// What the user did.
pub(crate) enum Typed {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the end of a pipe.
    End,
}

/// The prompt's editor.
pub(crate) struct Editor {
    editor: DefaultEditor,
    history: Option<PathBuf>,
}

impl Editor {
    pub(crate) fn new(keep_history: bool) -> anyhow::Result<Self> {
        let config =
            Config::builder().max_history_size(1000)?.history_ignore_space(true).auto_add_history(true).build();
        let history = FileHistory::with_config(&config);
        let mut editor = DefaultEditor::with_history(config, history)?;
        let history = if keep_history { history_file() } else { None };
        if let Some(file) = &history {
            // The first chat has no history.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    /// One message; a line that ends in a backslash goes on in the next.
    pub(crate) fn read(&mut self) -> anyhow::Result<Typed> {
        let (mut text, mut prompt) = (String::new(), "> ");
        loop {
            match self.editor.readline(prompt) {
                Ok(line) => match line.strip_suffix('\\') {
                    Some(start) => {
                        text.push_str(start);
                        text.push('\n');
                        prompt = ". ";
                    }
                    None => return Ok(Typed::Line(text + &line)),
                },
                Err(ReadlineError::Interrupted) => return Ok(Typed::Interrupt),
                Err(ReadlineError::Eof) => return Ok(Typed::End),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps the history. A home that cannot be written loses it, which is no reason to fail.
    pub(crate) fn save(&mut self) {
        if let Some(file) = &self.history {
            let _ = file.parent().map(std::fs::create_dir_all);
            let _ = self.editor.save_history(file);
        }
    }
}

/// `$XDG_STATE_HOME/smoe/history`, else `~/.local/state/smoe/history`.
fn history_file() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(state.join("smoe/history"))
}
