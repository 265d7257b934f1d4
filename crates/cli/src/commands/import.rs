//! `smoe import`.

use super::Outcome;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Turn a file of the S-MoE engine (version 2) into a vault, requantising nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe import model.smoe -o model.vault
  smoe import model.smoe -o model.vault --trunk model.scout.safetensors --tokenizer Qwen3-30B-A3B")]
pub(crate) struct Import {
    /// The .smoe file.
    file: PathBuf,
    /// The vault to write.
    #[arg(short, long, value_name = "VAULT")]
    output: PathBuf,
    /// The trunk [default: the .scout.safetensors file beside it].
    #[arg(long, value_name = "FILE")]
    trunk: Option<PathBuf>,
    /// A folder with tokenizer.json; without one the vault runs with --ids only.
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(long)]
    force: bool,
}

impl Import {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
