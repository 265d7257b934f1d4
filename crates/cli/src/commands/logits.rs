//! `smoe logits`.

use super::Outcome;
use crate::args::Compute;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Raw logits of a token sequence; compare them with a golden file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe logits q3.vault --ids 1,2,3 -o logits.safetensors --hidden
  smoe logits Qwen3-30B-A3B --compare golden.safetensors --chunk 7 --json")]
pub(crate) struct Logits {
    /// A vault or a checkpoint folder.
    model: PathBuf,
    /// Token ids: 1,2,3, a text file of them, or a .safetensors file with `input_ids`.
    #[arg(long, value_name = "FILE|LIST", required_unless_present = "compare")]
    ids: Option<String>,
    /// Write input_ids and logits to this .safetensors file.
    #[arg(short, long, value_name = "OUT.safetensors")]
    output: Option<PathBuf>,
    /// Add hidden states and router choices to the output.
    #[arg(long, requires = "output")]
    hidden: bool,
    /// Tokens a prefill step takes [default: all].
    #[arg(long, value_name = "N")]
    chunk: Option<usize>,
    /// Compare with this file: input_ids, logits, hidden_states, router_topk, greedy_continuation.
    #[arg(long, value_name = "GOLDEN.safetensors")]
    compare: Option<PathBuf>,
    /// The largest difference allowed, as a share of the largest |logit|.
    #[arg(long, value_name = "SHARE", default_value_t = 1e-4)]
    tolerance: f64,
    #[command(flatten)]
    compute: Compute,
}

impl Logits {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
