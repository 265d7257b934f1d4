//! [`evaluate`]: one or two models over windows of text.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::ThreadPool;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::bootstrap::{Interval, RESAMPLES, intervals, percentile};
use crate::error::GateError;
use crate::model::LogitsModel;
use crate::per_token::PerToken;
use crate::score::{Score, score};
use crate::windows::Windows;

/// How to evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvalOptions {
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Resamples of the bootstrap.
    pub resamples: usize,
    /// Threads for the softmax over the vocabulary; 0 takes as many as the machine has. Results do not depend on it.
    pub threads: usize,
    /// Whether to keep results token by token.
    pub per_token: bool,
}

impl Default for EvalOptions {
    fn default() -> Self {
        Self { seed: 0, resamples: RESAMPLES, threads: 0, per_token: false }
    }
}

/// How far an evaluation is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Windows done.
    pub rows: usize,
    /// Windows in all.
    pub total: usize,
    /// Tokens predicted so far.
    pub tokens: usize,
    /// Mean NLL so far.
    pub nll: f64,
}

/// The caller's hand on a running evaluation.
pub struct Control<'a> {
    /// Called after each window.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Raised by the caller to stop before the next window.
    pub cancel: &'a AtomicBool,
}

/// Sums over one document.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DocumentSums {
    /// Predicted tokens.
    pub tokens: u64,
    /// Negative log-likelihood of the candidate, nats.
    pub nll: f64,
    /// The same of the reference.
    pub reference_nll: f64,
    /// KL(reference || candidate), nats.
    pub kld: f64,
    /// Positions where both have one most likely id.
    pub same: u64,
}

/// What an evaluation found. Losses and divergences are means over predicted tokens, in nats; the values against a
/// reference are absent where there is none, intervals (95 %, see [`crate::bootstrap`]) where there is one document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evaluation {
    /// Mean negative log-likelihood.
    pub nll: f64,
    /// Its interval.
    pub nll_interval: Option<Interval>,
    /// Predicted tokens.
    pub tokens: u64,
    /// Windows.
    pub windows: u64,
    /// Documents.
    pub documents: u64,
    /// Mean negative log-likelihood of the reference.
    pub reference_nll: Option<f64>,
    /// `nll - reference_nll`.
    pub dnll: Option<f64>,
    /// Its interval.
    pub dnll_interval: Option<Interval>,
    /// Mean KL(reference || candidate).
    pub kld: Option<f64>,
    /// Its interval.
    pub kld_interval: Option<Interval>,
    /// 99th percentile of the divergence over tokens.
    pub kld_p99: Option<f64>,
    /// Share of tokens at which both models have one most likely id.
    pub top1: Option<f64>,
    /// Its interval.
    pub top1_interval: Option<Interval>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// [`Evaluation`], and what it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// For people and JSON.
    pub report: Evaluation,
    /// Sums by document, in order of first appearance.
    pub documents: Vec<DocumentSums>,
    /// Token by token, where asked for.
    pub per_token: Option<PerToken>,
}

/// Evaluates `candidate`, and against `reference` where there is one. Each window starts from nothing, and its first id
/// is not predicted. One window's logits of each model are in memory at a time.
///
/// # Errors
/// Ids outside the vocabulary (before anything is computed), a model that fails or gives logits that are not finite,
/// the caller's stop.
pub fn evaluate(
    candidate: &mut dyn LogitsModel,
    mut reference: Option<&mut dyn LogitsModel>,
    windows: &Windows,
    options: &EvalOptions,
    control: &mut Control<'_>,
) -> Result<Outcome, GateError> {
    let vocab = candidate.vocab();
    if let Some(other) = reference.as_ref().map(|model| model.vocab()).filter(|other| *other != vocab) {
        return Err(GateError::Vocabulary { candidate: vocab, reference: other });
    }
    windows.check_ids(vocab)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
    let pool = pool.map_err(|error| GateError::Threads(error.to_string()))?;
    let mut sums = Sums::new(windows, options, reference.is_some());
    for row in 0..windows.rows() {
        if control.cancel.load(Ordering::Relaxed) {
            return Err(GateError::Cancelled { rows: row, total: windows.rows() });
        }
        let window = windows.row(row);
        let own = logits(candidate, "candidate", window, row)?;
        let other = match &mut reference {
            Some(model) => Some(logits(&mut **model, "reference", window, row)?),
            None => None,
        };
        let scores = scores(&pool, (&own, other.as_deref()), window, vocab);
        for (place, score) in scores.into_iter().enumerate() {
            let score = score.map_err(|arm| GateError::Logits {
                arm,
                row,
                reason: format!("position {place}: expected finite logits, found NaN or infinity"),
            })?;
            sums.add(row, windows.document(row), place, &score);
        }
        let (tokens, nll) = sums.so_far();
        (control.progress)(Progress { rows: row + 1, total: windows.rows(), tokens, nll });
    }
    Ok(sums.finish(windows, options))
}

fn logits(model: &mut dyn LogitsModel, arm: &'static str, window: &[u32], row: usize) -> Result<Vec<f32>, GateError> {
    let logits = model.logits(window).map_err(|source| GateError::Model { arm, row, source })?;
    let expected = window.len() * model.vocab();
    if logits.len() != expected {
        let reason = format!("expected {expected} logits, found {}", logits.len());
        return Err(GateError::Logits { arm, row, reason });
    }
    Ok(logits)
}

/// Scores of the positions that are predicted, in order.
fn scores(
    pool: &ThreadPool,
    (own, other): (&[f32], Option<&[f32]>),
    window: &[u32],
    vocab: usize,
) -> Vec<Result<Score, &'static str>> {
    pool.install(|| {
        window[1..]
            .par_iter()
            .enumerate()
            .map(|(place, target)| {
                let row = place * vocab..(place + 1) * vocab;
                score(&own[row.clone()], other.map(|logits| &logits[row]), *target as usize)
            })
            .collect()
    })
}

/// What adds up while windows go by.
struct Sums {
    documents: Vec<DocumentSums>,
    per_token: Option<PerToken>,
    /// Divergence of every token, for its percentile; none without a reference.
    klds: Option<Vec<f32>>,
    tokens: usize,
    nll: f64,
}

impl Sums {
    fn new(windows: &Windows, options: &EvalOptions, against: bool) -> Self {
        let width = windows.longest().saturating_sub(1);
        Self {
            documents: vec![DocumentSums::default(); windows.documents()],
            per_token: options.per_token.then(|| PerToken::new(windows.rows(), width, against)),
            klds: against.then(|| Vec::with_capacity(windows.tokens())),
            tokens: 0,
            nll: 0.0,
        }
    }

    fn add(&mut self, row: usize, document: usize, place: usize, score: &Score) {
        self.tokens += 1;
        self.nll += score.nll;
        let sums = &mut self.documents[document];
        sums.tokens += 1;
        sums.nll += score.nll;
        if let Some(against) = &score.against {
            sums.reference_nll += against.nll;
            sums.kld += against.kld;
            sums.same += u64::from(against.same);
            if let Some(klds) = &mut self.klds {
                klds.push(against.kld as f32);
            }
        }
        if let Some(per_token) = &mut self.per_token {
            let cell = row * per_token.width + place;
            per_token.nll[cell] = score.nll as f32;
            per_token.argmax[cell] = i32::try_from(score.argmax).unwrap_or(-1);
            if let (Some(klds), Some(against)) = (&mut per_token.kld, &score.against) {
                klds[cell] = against.kld as f32;
            }
        }
    }

    fn so_far(&self) -> (usize, f64) {
        (self.tokens, self.nll / self.tokens as f64)
    }

    fn finish(self, windows: &Windows, options: &EvalOptions) -> Outcome {
        let tokens: Vec<u64> = self.documents.iter().map(|sums| sums.tokens).collect();
        let each = |value: &dyn Fn(&DocumentSums) -> f64| self.documents.iter().map(value).collect::<Vec<f64>>();
        let metrics = [
            each(&|sums| sums.nll),
            each(&|sums| sums.nll - sums.reference_nll),
            each(&|sums| sums.kld),
            each(&|sums| sums.same as f64),
        ];
        let count = tokens.iter().sum::<u64>();
        let against = self.klds.is_some();
        let mean = |metric: usize| metrics[metric].iter().sum::<f64>() / count as f64;
        let numerators: Vec<&[f64]> = metrics.iter().map(Vec::as_slice).collect();
        let intervals = intervals(&numerators, &tokens, options.seed, options.resamples.max(1));
        let interval = |metric: usize| if against { intervals[metric] } else { None };
        let reference_nll = each(&|sums| sums.reference_nll).iter().sum::<f64>() / count as f64;
        let kld_p99 = self.klds.map(|klds| {
            let mut klds: Vec<f64> = klds.into_iter().map(f64::from).collect();
            klds.sort_by(f64::total_cmp);
            percentile(&klds, 99.0)
        });
        let report = Evaluation {
            nll: mean(0),
            nll_interval: intervals[0],
            tokens: count,
            windows: windows.rows() as u64,
            documents: windows.documents() as u64,
            reference_nll: against.then_some(reference_nll),
            dnll: against.then(|| mean(1)),
            dnll_interval: interval(1),
            kld: against.then(|| mean(2)),
            kld_interval: interval(2),
            kld_p99,
            top1: against.then(|| mean(3)),
            top1_interval: interval(3),
            notes: windows.notes().to_vec(),
        };
        Outcome { report, documents: self.documents, per_token: self.per_token }
    }
}
