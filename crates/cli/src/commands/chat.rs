//! `smoe chat`.

use super::Outcome;
use super::run::Generation;
use crate::args::Compute;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Chat with a model in the terminal.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe chat q3.vault
  smoe chat q3.vault --system \"Answer in one sentence.\" --temp 0.7")]
pub(crate) struct Chat {
    /// A vault or a checkpoint folder.
    model: PathBuf,
    /// A system message.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    generation: Generation,
    #[command(flatten)]
    compute: Compute,
}

impl Chat {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
