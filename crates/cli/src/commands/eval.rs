//! `smoe eval`.

use super::Outcome;
use crate::args::Compute;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Measure a model's loss on a text, and against a reference what quantising cost.
///
/// Reports nats a token, and against a reference the difference of the losses, the KL divergence and how often the most
/// likely token agrees, with 95 % intervals over documents.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe eval q3.vault --text novel.txt
  smoe eval q3.vault --text eval.jsonl --reference Qwen3-30B-A3B --json")]
pub(crate) struct Eval {
    /// A vault or a checkpoint folder.
    model: PathBuf,
    /// Plain text, .jsonl (`text` field), a folder of texts, or token windows (-windows.safetensors).
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    window: usize,
    /// The model to compare with, usually the unquantised checkpoint.
    #[arg(long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    /// Write every token's loss and the most likely token to this .safetensors file.
    #[arg(long, value_name = "OUT")]
    per_token: Option<PathBuf>,
    /// Seed of the bootstrap.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    compute: Compute,
}

impl Eval {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
