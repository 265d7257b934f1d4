//! `smoe quantize`.

use super::Outcome;
use super::codec;
use crate::calibration;
use crate::fault::Hint;
use crate::job::watched;
use crate::model;
use crate::ui::{Ui, bytes, count};
use anyhow::Context;
use clap::Args;
use smoe_quantize::QuantizeError;
use smoe_quantize::calibrate::{Arm, Solver};
use smoe_quantize::capture::OwnText;
use smoe_quantize::convert::{
    Calibration, CalibrationReport, Presence, QuantizeOptions, QuantizeReport, TrunkStorage, quantize,
};
use std::path::PathBuf;

/// Turn a checkpoint into a vault.
///
/// The checkpoint is understood tensor by tensor or refused before a byte is written. The vault appears under its name
/// when it is whole; after a kill, --resume goes on where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe quantize Qwen3-30B-A3B -o q3.vault --codec q4
  smoe quantize Qwen3-30B-A3B -o q3-small.vault --codec q2 --calibrate novels.jsonl
  smoe quantize Qwen3-30B-A3B -o q3-small.vault --codec q2 --calibrate self --tokens 65536
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
    /// Calibrate on this text: plain text, .jsonl (`text` field), a folder of texts, token windows (.safetensors), or
    /// `self` for text that the model writes itself.
    #[arg(long, value_name = "TEXT")]
    calibrate: Option<PathBuf>,
    /// Tokens of the calibration text to use.
    #[arg(long, value_name = "N", requires = "calibrate")]
    tokens: Option<usize>,
    /// Diagnosis: calibrate these projections only; the vault is marked and no gate passes it.
    #[arg(long, value_name = "PART", requires = "calibrate", value_parser = ["gate-up", "down"])]
    only: Option<String>,
    /// Diagnosis, with gptq-plain: textbook GPTQ; the vault is marked and no gate passes it.
    #[arg(long, requires = "calibrate", default_value = "recipe", value_parser = ["recipe", "gptq-plain"])]
    solver: String,
    /// Round to nearest, and say so, if this model cannot be calibrated.
    #[arg(long, requires = "calibrate")]
    allow_rtn_fallback: bool,
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
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let mut options = QuantizeOptions::new(codec(&self.codec)?);
        options.trunk = TrunkStorage::from_name(&self.trunk).context("--trunk")?;
        options.presence = Presence { force: self.force, resume: self.resume };
        options.dry_run = self.dry_run;
        options.threads = self.threads.map(usize::from);
        options.seed = self.seed;
        options.source.clone_from(&self.source);
        options.ignore_config.clone_from(&self.ignore_config);
        options.calibration = self.calibration(ui)?;
        let report = watched("quantising", |control| quantize(&self.checkpoint, &self.output, &options, control));
        let report = match report {
            Err(error @ QuantizeError::Cancelled) => {
                return Err(error).hint("the same command with --resume goes on where it stopped");
            }
            Err(error) if error.is_negative_result() => {
                // The answer to what was asked for is no; nothing was left under the final name.
                ui.note(format_args!("FAILED: {error}"));
                ui.object(&serde_json::json!({ "error": error.to_string() }))?;
                return Ok(Outcome::Negative);
            }
            other => other.with_context(|| model::name(&self.checkpoint))?,
        };
        say(&report, ui)?;
        ui.object(&serde_json::to_value(&report)?)?;
        Ok(Outcome::Done)
    }
}

impl Quantize {
    /// The calibration that was asked for, its text read.
    fn calibration(&self, ui: &Ui) -> anyhow::Result<Option<Calibration>> {
        let Some(path) = &self.calibrate else { return Ok(None) };
        let own = OwnText {
            tokens: self.tokens,
            seed: self.seed,
            threads: self.threads.map(usize::from),
            ignore_config: self.ignore_config.clone(),
        };
        let text = calibration::text(&self.checkpoint, path, &own, ui)?;
        let arm = match self.only.as_deref() {
            None => Arm::Both,
            Some("down") => Arm::Down,
            Some(_) => Arm::GateUp,
        };
        let solver = if self.solver == "recipe" { Solver::Recipe } else { Solver::GptqPlain };
        let allow_rtn_fallback = self.allow_rtn_fallback;
        Ok(Some(Calibration { tokens: self.tokens, arm, solver, allow_rtn_fallback, ..Calibration::new(text) }))
    }
}

fn say(it: &QuantizeReport, ui: &Ui) -> std::io::Result<()> {
    let verb = if it.dry_run { "would hold" } else { "holds" };
    ui.line(format_args!("{} {verb} {} parameters in {}", it.vault, count(it.parameters as f64), bytes(it.bytes)))?;
    ui.line(format_args!(
        "experts     {} in {}, {:.2} bits a weight, {}",
        it.experts,
        it.codec,
        it.bits_per_weight,
        bytes(it.expert_bytes)
    ))?;
    ui.line(format_args!("trunk       {}, {}", it.trunk, bytes(it.trunk_bytes)))?;
    if let Some(found) = &it.calibration {
        say_calibration(found, ui)?;
    }
    if !it.dry_run {
        let rss = it.peak_rss_bytes.map(|peak| format!(", {} of memory at most", bytes(peak))).unwrap_or_default();
        let resumed = if it.resumed { ", resumed" } else { "" };
        ui.line(format_args!("time        {:.1} s{rss}{resumed}", it.seconds))?;
    }
    for (rule, tensors) in &it.skipped {
        ui.note(format_args!("note: {tensors} tensors skipped: {rule}"));
    }
    it.notes.iter().for_each(|note| ui.note(format_args!("note: {note}")));
    Ok(())
}

fn say_calibration(it: &CalibrationReport, ui: &Ui) -> std::io::Result<()> {
    let (plan, all) = (&it.plan, it.calibrated + it.rtn);
    let bounds = plan.tokens as f64 / plan.rank_bound;
    ui.line(format_args!(
        "calibrated  {} of {all} matrices on {} tokens, {bounds:.1} rank bounds",
        it.calibrated, plan.tokens
    ))?;
    ui.line(format_args!(
        "            output error {:.2} of round-to-nearest (held out {:.2}), {:.0} % of the codes differ; medians",
        it.error_ratio.median,
        it.held_out_error_ratio.median,
        100.0 * it.codes_differ.median
    ))?;
    it.diagnostic.iter().try_for_each(|why| ui.line(format_args!("            a diagnosis, not for use: {why}")))
}
