//! `smoe inspect`.

use super::Outcome;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// What is in a vault, and how it was made.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe inspect q3.vault
  smoe inspect q3.vault --json | jq .provenance")]
pub(crate) struct Inspect {
    /// A vault.
    vault: PathBuf,
}

impl Inspect {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
