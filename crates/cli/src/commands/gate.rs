//! `smoe gate`.

use super::Outcome;
use crate::args::Compute;
use crate::fault::Hint;
use crate::ui::{Progress, Ui, Unit, bytes};
use crate::{interrupt, model};
use anyhow::Context;
use clap::Args;
use smoe_gate::{Check, Control, GateOptions, Progress as Step, Report, Subjects, Verdict, Windows, gate};
use std::path::PathBuf;

/// Decide whether a vault may be trusted: exit code 0 only for pass.
///
/// The vault runs beside its checkpoint and its round-to-nearest twin. Checks: does calibration differ from rounding, and
/// is it better; is the divergence within the codec's bound; was every tensor read; is the arithmetic quiet enough to
/// tell. Text that calibrated the vault does not judge it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe gate q3.vault --reference Qwen3-30B-A3B --text eval.jsonl --record
  smoe gate q3.vault --reference Qwen3-30B-A3B --text eval.jsonl --baseline q3-rtn.vault --html report.html --json")]
pub(crate) struct Gate {
    /// The vault to judge.
    candidate: PathBuf,
    /// The checkpoint folder that it was made from.
    #[arg(long, value_name = "CHECKPOINT")]
    reference: PathBuf,
    /// A round-to-nearest vault of the same codecs [default: made for the occasion].
    #[arg(long, value_name = "VAULT")]
    baseline: Option<PathBuf>,
    /// Plain text, .jsonl (`text` field), a folder of texts, or token windows (-windows.safetensors).
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window.
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    window: usize,
    /// Mean KL divergence allowed, nats a token [default: 0.20 at 2 bits, 0.06 at 3, 0.02 at 4].
    #[arg(long, value_name = "NATS", value_parser = nats)]
    max_kld: Option<f64>,
    /// Store verdict and evidence in the vault.
    #[arg(long)]
    record: bool,
    /// Write the report as one page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of the bootstrap.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Resamples of the bootstrap.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = resamples)]
    resamples: usize,
    #[command(flatten)]
    compute: Compute,
}

fn nats(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|nats| nats.is_finite() && *nats > 0.0);
    value.ok_or_else(|| "expected nats a token, such as 0.02".into())
}

fn resamples(text: &str) -> Result<usize, String> {
    let value = text.parse::<usize>().ok().filter(|n| (2000..=1_000_000).contains(n));
    value.ok_or_else(|| "expected a number from 2000 on".into())
}

impl Gate {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        model::refuse_gpu(&self.compute)?;
        if !self.reference.is_dir() {
            return Err(anyhow::anyhow!("{}: is no checkpoint folder", self.reference.display()))
                .hint("--reference is the unquantised checkpoint that the vault was made from");
        }
        // A vault without a tokenizer may borrow its reference's.
        let text = match model::text(&self.candidate)? {
            Some(text) => Some(text),
            None => model::text(&self.reference)?,
        };
        let windows = Windows::read(&self.text, text.as_ref(), self.window).with_context(|| model::name(&self.text))?;
        let options = GateOptions {
            seed: self.seed,
            resamples: self.resamples,
            threads: usize::from(self.compute.threads.unwrap_or(0)),
            max_kld: self.max_kld,
            ignore_config: self.compute.ignore_config.clone(),
            ram: self.compute.ram.map(|size| size.0),
        };
        let mut bar = Progress::new("judging", Unit::Count("windows"), windows.rows() as u64);
        let cancel = interrupt::flag();
        let mut progress = |step: Step| bar.set(step.rows as u64, step.total as u64);
        let mut control = Control { progress: &mut progress, cancel: &cancel };
        let subjects =
            Subjects { candidate: &self.candidate, reference: &self.reference, baseline: self.baseline.as_deref() };
        let report = gate(subjects, &windows, &options, &mut control);
        bar.finish();
        let report = report?;
        if let Some(path) = &self.html {
            std::fs::write(path, smoe_gate::page(&report)).with_context(|| model::name(path))?;
        }
        say(&report, ui)?;
        if self.record {
            smoe_vault::record_verdict(&self.candidate, report.evidence())?;
            ui.note(format_args!("recorded in {}", self.candidate.display()));
        }
        ui.object(&report.to_json())?;
        Ok(Outcome::of(report.verdict == Verdict::Pass))
    }
}

/// A number in the places that it needs.
fn figure(value: f64) -> String {
    if value == 0.0 || value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value}")
    } else if value.abs() < 1e-3 {
        format!("{value:.1e}")
    } else {
        format!("{value:.4}")
    }
}

fn say(it: &Report, ui: &Ui) -> std::io::Result<()> {
    let arms = [("candidate", Some(&it.candidate)), ("baseline", it.baseline.as_ref()), ("given", it.given.as_ref())];
    for (role, arm) in arms.into_iter().filter_map(|(role, arm)| Some((role, arm?))) {
        let codecs = arm.codecs.join(" and ");
        ui.line(format_args!(
            "{role:<11}{}, {codecs}, {:.2} bits a weight, {}",
            arm.name,
            arm.bits_per_weight,
            bytes(arm.bytes)
        ))?;
        let Some(found) = &arm.measures else { continue };
        let interval = |interval: Option<[f64; 2]>| {
            interval.map(|[low, high]| format!(" [{low:.4}, {high:.4}]")).unwrap_or_default()
        };
        ui.line(format_args!(
            "           dNLL {:+.4}{}  KLD {:.4}{}, median {:.4}, 99 % {:.4}, max {:.2}",
            found.dnll,
            interval(found.dnll_interval),
            found.kld,
            interval(found.kld_interval),
            found.kld_median,
            found.kld_p99,
            found.kld_max
        ))?;
        let routers = found.router_overlap.map(|share| format!(", routers agree {:.1} %", 100.0 * share));
        ui.line(format_args!(
            "           top token agrees {:.2} %, {} flips{}",
            100.0 * found.top1,
            found.flips,
            routers.unwrap_or_default()
        ))?;
    }
    let text = &it.text;
    ui.line(format_args!("text       {}, {} tokens of {} documents", text.source, text.tokens, text.documents))?;
    if let Some(worst) = &it.worst_document {
        ui.line(format_args!("worst      {}: KLD {:.4}, dNLL {:+.4}", worst.name, worst.kld, worst.dnll))?;
    }
    if let Some(worst) = &it.worst_tensor {
        let twin = worst.baseline_error.map(|error| format!(", its twin {:.2} %", 100.0 * error)).unwrap_or_default();
        let place = format_args!("layer {} expert {} {}", worst.layer, worst.expert, worst.projection);
        ui.line(format_args!("           {place}: output error {:.2} %{twin}", 100.0 * worst.error))?;
    }
    it.checks.iter().try_for_each(|check| say_check(check, ui))?;
    it.notes.iter().for_each(|note| ui.note(format_args!("note: {note}")));
    ui.line(&it.summary)
}

fn say_check(check: &Check, ui: &Ui) -> std::io::Result<()> {
    let word = match check.outcome {
        Verdict::Pass => "ok",
        Verdict::Inconclusive => "?",
        Verdict::Fail => "FAIL",
    };
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
    let numbers = format!("{} of {}", number(check.value), number(check.bound));
    ui.line(format_args!("{word:<5}{:<30}{numbers:<22}{}", check.name, check.what))
}
