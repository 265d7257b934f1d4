//! `smoe quantize`.

use super::Outcome;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Turn a checkpoint into a vault.
///
/// The checkpoint is understood tensor by tensor or refused before a byte is written. The vault appears under its name
/// when it is whole; after a kill, --resume goes on where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe quantize Qwen3-30B-A3B -o q3.vault --codec q4
  smoe quantize Qwen3-30B-A3B -o q3-small.vault --codec q2 --trunk q8 --resume")]
pub(crate) struct Quantize {
    /// A checkpoint folder as downloaded: config.json, *.safetensors, tokenizer.json.
    checkpoint: PathBuf,
    /// The vault to write.
    #[arg(short, long, value_name = "VAULT")]
    output: PathBuf,
    /// The codec of the experts.
    #[arg(long, default_value = "q4", value_parser = ["q2", "q4"])]
    codec: String,
    /// How the trunk (all but the experts) is stored: as it came, or its matrices in q8.
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "q8"])]
    trunk: String,
    /// Quantise with this text as calibration (not in this version: refused).
    #[arg(long, value_name = "TEXT")]
    calibrate: Option<PathBuf>,
    /// Tokens of the calibration text to use.
    #[arg(long, value_name = "N", requires = "calibrate")]
    tokens: Option<usize>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Go on with a conversion that was interrupted.
    #[arg(long)]
    resume: bool,
    /// Replace the output if it exists.
    #[arg(long)]
    force: bool,
    /// Check everything and say what would be written, but write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The repository's name for the provenance, such as Qwen/Qwen3-30B-A3B [default: the folder's name].
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Accept a config key that is not understood.
    #[arg(long, value_name = "KEY")]
    ignore_config: Vec<String>,
}

impl Quantize {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
