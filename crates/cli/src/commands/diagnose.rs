//! `smoe diagnose`.

use super::{Outcome, codec};
use crate::calibration;
use crate::job::counted;
use crate::model;
use crate::ui::{Ui, Unit};
use anyhow::Context;
use clap::Args;
use smoe_gate::Windows;
use smoe_quantize::calibrate::Solver;
use smoe_quantize::capture::OwnText;
use smoe_quantize::convert::{Calibration, QuantizeOptions};
use smoe_quantize::diagnose::{Cause, Diagnosis, diagnose};
use std::path::PathBuf;

/// Find out why a calibration gains too little: too little text, or a fault.
///
/// Makes seven vaults in the temporary folder, one after the other: nothing, gate and up, down, and all calibrated, at
/// the given tokens and at a quarter of them. Exit code 1 if what they score points to a fault.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe diagnose Qwen3-30B-A3B --codec q2 --calibrate novels.jsonl --text eval.jsonl
  smoe diagnose Qwen3-30B-A3B --codec q2 --calibrate novels.jsonl --tokens 65536 --text eval.jsonl --json")]
pub(crate) struct Diagnose {
    /// The checkpoint folder.
    checkpoint: PathBuf,
    /// The codec of the experts.
    #[arg(long, default_value = "q2", value_parser = ["q2", "q4"])]
    codec: String,
    /// Calibration text, as for quantize.
    #[arg(long, value_name = "TEXT")]
    calibrate: PathBuf,
    /// Tokens of the calibration text to use.
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,
    /// Text to measure on: plain text, .jsonl (`text` field), a folder of texts, or token windows (-windows.safetensors).
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window of that text.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    window: usize,
    /// How codes are chosen.
    #[arg(long, default_value = "recipe", value_parser = ["recipe", "gptq-plain"])]
    solver: String,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Accept a config key that is not understood.
    #[arg(long, value_name = "KEY")]
    ignore_config: Vec<String>,
}

impl Diagnose {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let tokenizer = model::text(&self.checkpoint)?;
        let windows = Windows::read(&self.text, tokenizer.as_ref(), self.window);
        let windows = windows.with_context(|| model::name(&self.text))?;
        let mut options = QuantizeOptions::new(codec(&self.codec)?);
        options.threads = self.threads.map(usize::from);
        options.seed = self.seed;
        options.ignore_config.clone_from(&self.ignore_config);
        let own = OwnText {
            tokens: self.tokens,
            seed: self.seed,
            threads: options.threads,
            ignore_config: self.ignore_config.clone(),
        };
        let text = calibration::text(&self.checkpoint, &self.calibrate, &own, ui)?;
        let solver = if self.solver == "recipe" { Solver::Recipe } else { Solver::GptqPlain };
        options.calibration = Some(Calibration { tokens: self.tokens, solver, ..Calibration::new(text) });
        let found = counted("measuring", Unit::Count("windows"), |control| {
            diagnose(&self.checkpoint, &options, &windows, control)
        });
        let found = found.with_context(|| model::name(&self.checkpoint))?;
        say(&found, ui)?;
        ui.object(&serde_json::to_value(&found)?)?;
        Ok(Outcome::of(found.cause != Cause::WiringFault))
    }
}

fn say(it: &Diagnosis, ui: &Ui) -> std::io::Result<()> {
    ui.line(format_args!("{:<12}{:>9}  {:>8}  {:>8}", "calibrated", "tokens", "KLD", "dNLL"))?;
    for arm in &it.arms {
        let interval = arm.divergence.interval.map(|[low, high]| format!("  [{low:.4}, {high:.4}]"));
        ui.line(format_args!(
            "{:<12}{:>9}  {:>8.4}  {:>8.4}{}",
            arm.arm,
            arm.tokens,
            arm.divergence.kld,
            arm.dnll,
            interval.unwrap_or_default()
        ))?;
    }
    it.words.iter().try_for_each(|words| ui.line(words))
}
