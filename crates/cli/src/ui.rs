//! What is printed, and where: results on stdout, notes and progress on stderr.

mod progress;
mod quantity;

pub(crate) use progress::{Progress, Unit};
pub(crate) use quantity::{Size, bytes, count, parse_ids};

use std::fmt;
use std::io::{self, Write};

/// The output of one command.
#[derive(Debug)]
pub(crate) struct Ui {
    /// Whether the result is one JSON object instead of text.
    pub(crate) json: bool,
}

impl Ui {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// A line of the result for people; nothing under `--json`.
    pub(crate) fn line(&self, text: impl fmt::Display) -> io::Result<()> {
        if self.json { Ok(()) } else { writeln!(io::stdout().lock(), "{text}") }
    }

    /// A piece of text of the result, as it comes.
    pub(crate) fn piece(&self, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// The one object of `--json`; nothing without.
    pub(crate) fn object(&self, value: &serde_json::Value) -> io::Result<()> {
        if self.json { writeln!(io::stdout().lock(), "{value:#}") } else { Ok(()) }
    }

    /// A note on stderr.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        // Notes are no result: where stderr is closed they are lost and the work goes on.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}
