//! `smoe eval`.

use super::Outcome;
use crate::args::Compute;
use crate::ui::{Progress, Ui, Unit};
use crate::{interrupt, model};
use anyhow::Context;
use clap::Args;
use smoe_gate::bootstrap::Interval;
use smoe_gate::{Control, EngineModel, EvalOptions, Evaluation, LogitsModel, Progress as Step, Windows, evaluate};
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
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let candidate = model::open(&self.model, &self.compute, None, ui)?;
        let reference = self.reference.as_deref().map(|path| model::open(path, &self.compute, None, ui)).transpose()?;
        // A vault without a tokenizer may borrow its reference's.
        let text = candidate.text.as_ref().or(reference.as_ref().and_then(|r| r.text.as_ref()));
        let windows = Windows::read(&self.text, text, self.window).with_context(|| model::name(&self.text))?;
        let options = EvalOptions {
            seed: self.seed,
            threads: usize::from(self.compute.threads.unwrap_or(0)),
            per_token: self.per_token.is_some(),
            ..Default::default()
        };
        let mut bar = Progress::new("evaluating", Unit::Count("windows"), windows.rows() as u64);
        let cancel = interrupt::flag();
        let mut progress = |step: Step| bar.set(step.rows as u64, step.total as u64);
        let mut control = Control { progress: &mut progress, cancel: &cancel };
        let mut models = (EngineModel(&candidate.engine), reference.as_ref().map(|r| EngineModel(&r.engine)));
        let against = models.1.as_mut().map(|model| model as &mut dyn LogitsModel);
        let found = evaluate(&mut models.0, against, &windows, &options, &mut control);
        bar.finish();
        let found = found?;
        if let (Some(path), Some(per_token)) = (&self.per_token, &found.per_token) {
            per_token.write(path)?;
        }
        say(&found.report, ui)?;
        ui.object(&serde_json::to_value(&found.report)?)?;
        Ok(Outcome::Done)
    }
}

fn say(it: &Evaluation, ui: &Ui) -> std::io::Result<()> {
    let line = |name: &str, value: Option<f64>, interval: Option<Interval>, rest: &str| {
        let Some(value) = value else { return Ok(()) };
        let interval = interval.map(|[low, high]| format!("  [{low:.4}, {high:.4}]")).unwrap_or_default();
        ui.line(format_args!("{name:<14}{value:>8.4}{interval}{rest}"))
    };
    let scope = format!("  nats a token, {} tokens of {} documents", it.tokens, it.documents);
    line("loss", Some(it.nll), it.nll_interval, &scope)?;
    line("reference", it.reference_nll, None, "")?;
    line("difference", it.dnll, it.dnll_interval, "")?;
    line("KL divergence", it.kld, it.kld_interval, "")?;
    line("  its p99", it.kld_p99, None, "")?;
    line("same top token", it.top1, it.top1_interval, "")?;
    it.notes.iter().for_each(|note| ui.note(format_args!("note: {note}")));
    Ok(())
}
