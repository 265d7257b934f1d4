//! `smoe export`.

use super::Outcome;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Write a vault in another program's format.
///
/// `hf` is an ordinary checkpoint folder of the dequantised weights, for any other tool to run and judge; `s-moe-v2` is
/// the file of the S-MoE engine with its trunk beside it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe export q3.vault --to hf -o q3-dequantised --dtype bf16
  smoe export q3.vault --to s-moe-v2 -o q3.smoe")]
pub(crate) struct Export {
    /// A vault.
    vault: PathBuf,
    /// The format.
    #[arg(long, value_name = "FORMAT", value_parser = ["hf", "s-moe-v2"])]
    to: String,
    /// The file or folder to write.
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Element type of `hf`.
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "f32"])]
    dtype: String,
    /// Replace the output if it exists.
    #[arg(long)]
    force: bool,
}

impl Export {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
