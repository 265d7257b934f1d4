//! `smoe bench`.

use super::Outcome;
use super::bench_kernel::Kernel;
use crate::ui::{Ui, count};
use clap::{Args, Subcommand};
use serde_json::json;
use smoe_kernels::{Isa, bench};
use std::time::Duration;

/// Measure this machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe bench kernel
  smoe bench quantize
  smoe bench quantize --seconds 5 --json")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Kernel(Kernel),
    /// How fast weights are encoded: bf16 in memory, one core.
    #[command(after_help = "Examples:\n  smoe bench quantize --seconds 5 --json")]
    Quantize {
        /// How long to measure each codec.
        #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
        seconds: f64,
    },
}

impl Bench {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        match self.what {
            What::Kernel(kernel) => kernel.run(ui),
            What::Quantize { seconds } => quantize(Duration::from_secs_f64(seconds), ui),
        }
    }
}

/// Rows of 2048 weights: 16 MiB in bf16, beyond most second-level caches.
const ROWS: usize = 4096;

fn quantize(time: Duration, ui: &Ui) -> anyhow::Result<Outcome> {
    let isa = Isa::detect();
    let results = bench::quantize(isa, ROWS, time);
    ui.line(format_args!("encoding {} weights of bf16 in memory on one core, {}", ROWS * 2048, isa.name()))?;
    for it in &results {
        ui.line(format_args!("{}  {:>8} weights/s", it.codec.name(), count(it.weights_per_second_per_core)))?;
    }
    let results = results
        .iter()
        .map(|it| json!({ "codec": it.codec.name(), "weights_per_second_per_core": it.weights_per_second_per_core }));
    ui.object(&json!({ "isa": isa.name(), "results": results.collect::<Vec<_>>() }))?;
    Ok(Outcome::Done)
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|s| (0.01..=3600.0).contains(s));
    value.ok_or_else(|| "expected seconds, from 0.01 to 3600".into())
}
