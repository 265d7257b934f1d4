//! `smoe verify`.

use super::Outcome;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Check every byte of a vault; name each section or expert that is damaged (exit code 1).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe verify q3.vault
  smoe verify q3.vault --json")]
pub(crate) struct Verify {
    /// A vault.
    vault: PathBuf,
}

impl Verify {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
