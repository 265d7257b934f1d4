//! `smoe plan`.

use super::Outcome;
use crate::ui::{Size, Ui};
use clap::Args;
use std::path::PathBuf;

/// Sizes and speeds before anything is converted: from headers, or from a config.json alone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe plan Qwen3-235B-A22B/config.json --drive-gbps 7.4
  smoe plan Qwen3-30B-A3B --codec q2 --context 8192 --ram 16G")]
pub(crate) struct Plan {
    /// A checkpoint folder, a config.json, or a vault.
    #[arg(value_name = "CHECKPOINT|config.json|VAULT")]
    model: PathBuf,
    /// The codec of the experts.
    #[arg(long, default_value = "q4", value_parser = ["q2", "q4"])]
    codec: String,
    /// Tokens that the caches must hold.
    #[arg(long, value_name = "TOKENS", default_value_t = 4096)]
    context: usize,
    /// How fast the drive reads, in GB/s.
    #[arg(long, value_name = "GB/S", default_value_t = 3.0)]
    drive_gbps: f64,
    /// Memory that may be used, such as 16G [default: what this machine has].
    #[arg(long, value_name = "SIZE")]
    ram: Option<Size>,
    /// Accept a config key that is not understood.
    #[arg(long, value_name = "KEY")]
    ignore_config: Vec<String>,
}

impl Plan {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
