//! `smoe synth`.

use super::{Outcome, codec};
use crate::job::watched;
use crate::ui::{Ui, bytes, count};
use clap::Args;
use smoe_quantize::synth::{self, Overrides, SynthOptions};
use std::path::PathBuf;

/// Write a random checkpoint or vault of a named shape, to measure with.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe synth --shape qwen3-30b-a3b --layers 2 -o synthetic
  smoe synth --vault --shape qwen3-30b-a3b --codec q4 -o synthetic.vault")]
pub(crate) struct Synth {
    /// Write a vault rather than a checkpoint folder.
    #[arg(long)]
    vault: bool,
    /// The shape: a released model's name in lower case.
    #[arg(long, value_name = "NAME")]
    shape: String,
    /// Only this many layers.
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// The model's context.
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// The codec of a vault's experts.
    #[arg(long, default_value = "q4", value_parser = ["q2", "q4"])]
    codec: String,
    /// Seed of the weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The file or folder to write.
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Replace the output if it exists.
    #[arg(long)]
    force: bool,
}

impl Synth {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let options = SynthOptions {
            shape: self.shape,
            overrides: Overrides { layers: self.layers, context: self.context, ..Default::default() },
            seed: self.seed,
            force: self.force,
        };
        let codec = codec(&self.codec)?;
        let report = watched("writing", |control| match self.vault {
            true => synth::vault(&self.output, &options, codec, control),
            false => synth::checkpoint(&self.output, &options, control),
        })?;
        ui.line(format_args!(
            "{}: {} parameters, {} in {} files, {:.1} s",
            report.path,
            count(report.parameters as f64),
            bytes(report.bytes),
            report.files,
            report.seconds
        ))?;
        ui.object(&serde_json::to_value(&report)?)?;
        Ok(Outcome::Done)
    }
}
