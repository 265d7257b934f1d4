//! `smoe bench`.

use super::Outcome;
use crate::ui::Ui;
use clap::{Args, Subcommand};

/// Measure this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe bench quantize
  smoe bench quantize --seconds 5 --json")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// How fast weights are encoded: bf16 in memory, one core.
    #[command(after_help = "Examples:\n  smoe bench quantize --seconds 5 --json")]
    Quantize {
        /// How long to measure each codec.
        #[arg(long, value_name = "S", default_value_t = 2.0)]
        seconds: f64,
    },
}

impl Bench {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        let What::Quantize { .. } = self.what;
        anyhow::bail!("not wired yet")
    }
}
