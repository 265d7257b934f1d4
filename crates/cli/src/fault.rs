//! How a failure reaches the user: `error: what` and `hint: what to do` on stderr, exit code 2.

use crate::ui::Ui;
use clap::error::ErrorKind;
use smoe_model::CheckpointError;
use std::error::Error;
use std::fmt;
use std::io::{ErrorKind as IoErrorKind, Write, stderr, stdout};
use std::process::ExitCode;

/// An error with advice.
#[derive(Debug)]
struct Hinted {
    error: anyhow::Error,
    hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", chain(&self.error))
    }
}

impl Error for Hinted {}

/// Adds advice to an error.
pub(crate) trait Hint<T> {
    /// `hint` is printed under the error.
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Hint<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T> {
        self.map_err(|error| anyhow::Error::new(Hinted { error: error.into(), hint: hint.into() }))
    }
}

/// The error and its causes in one line; a cause that its parent already quotes is left out.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // A file named by its error and by its context is named once.
        if text.is_empty() || cause.starts_with(&text) {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn hint_of(error: &anyhow::Error) -> Option<&str> {
    error.chain().find_map(|cause| {
        let ours = cause.downcast_ref::<Hinted>().map(|hinted| hinted.hint.as_str());
        ours.or_else(|| cause.downcast_ref::<CheckpointError>()?.hint.as_deref())
    })
}

/// Whether the reader of our output went away (`smoe ... | head`): no error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    kinds.into_iter().any(|e| e.kind() == IoErrorKind::BrokenPipe)
}

/// Prints what went wrong.
pub(crate) fn report(error: &anyhow::Error, ui: &Ui) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let (text, hint) = (chain(error), hint_of(error));
    // Nobody is left to tell if stderr is closed too.
    let mut out = stderr().lock();
    let _ = writeln!(out, "error: {text}");
    if let Some(hint) = hint {
        let _ = writeln!(out, "hint: {hint}");
    }
    if ui.json {
        let _ = writeln!(stdout(), "{}", serde_json::json!({ "error": text, "hint": hint }));
    }
    ExitCode::from(2)
}

/// Prints what clap found: help and version on stdout, a misuse on stderr with its suggestion as a hint.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let text = error.render().to_string().replace("  tip: ", "hint: ").replace("\n\nhint: ", "\nhint: ");
            let _ = write!(stderr(), "{text}");
            ExitCode::from(2)
        }
    }
}

/// A panic is a fault of this program: it says so in two lines and ends with code 2.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(stderr(), "error: internal fault at {place}: {text}");
        let _ = writeln!(stderr(), "hint: this is a bug in smoe; please report it with the command and this message");
        std::process::exit(2);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn causes_join_and_hints_survive_context() {
        let low = std::io::Error::new(IoErrorKind::NotFound, "no such file");
        let error = Err::<(), _>(low).context("config.json").hint("is this a checkpoint folder?");
        let error = error.context("cannot open the model").expect_err("an error");
        assert_eq!(chain(&error), "cannot open the model: config.json: no such file");
        assert_eq!(hint_of(&error), Some("is this a checkpoint folder?"));
    }

    #[test]
    fn a_file_is_named_once() {
        let error = anyhow::anyhow!("x/config.json: is no JSON").context("x/config.json");
        assert_eq!(chain(&error), "x/config.json: is no JSON");
    }

    #[test]
    fn a_closed_pipe_is_seen_through_context() {
        let low = std::io::Error::from(IoErrorKind::BrokenPipe);
        assert!(is_closed_pipe(&anyhow::Error::new(low).context("writing")));
        assert!(!is_closed_pipe(&anyhow::anyhow!("x")));
    }
}
