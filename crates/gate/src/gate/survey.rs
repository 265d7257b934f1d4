//! All arms over all windows, against one forward pass of the reference.

use rayon::ThreadPool;
use rayon::prelude::*;
use smoe_engine::observer::{At, Observer, Routes, Wants};
use smoe_engine::{Engine, Want};
use smoe_model::spec::ModelSpec;

use super::arm::{Arm, Reference};
use super::outputs::{OutputErrors, Probe};
use crate::error::GateError;
use crate::eval::{Control, DocumentSums, Progress};
use crate::score::score;
use crate::windows::Windows;

/// What the arms are called in messages, in their order.
pub(crate) const ARMS: [&str; 3] = ["candidate", "baseline", "given baseline"];

/// A number for each expert, by layer; empty for layers without experts.
pub(crate) type ByExpert = Vec<Vec<u64>>;

/// What adds up of one vault.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArmSums {
    pub(crate) documents: Vec<DocumentSums>,
    /// Divergence of every token, in the order of the windows.
    pub(crate) klds: Vec<f32>,
    /// By layer: choices that the reference made too, and all choices.
    pub(crate) overlap: Vec<(u64, u64)>,
    /// Tokens that the router sent to each expert.
    pub(crate) routed: ByExpert,
    /// Tokens for which each expert's activation was computed.
    pub(crate) computed: ByExpert,
}

/// What a run over the text found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Survey {
    /// In the order in which they were given.
    pub(crate) arms: Vec<ArmSums>,
    /// Output errors of every expert matrix, arm by arm.
    pub(crate) outputs: OutputErrors,
}

/// Runs the reference and every arm over `windows`.
pub(crate) fn survey(
    reference: &Reference,
    arms: &[(&'static str, &Arm)],
    windows: &Windows,
    pool: &ThreadPool,
    control: &mut Control<'_>,
) -> Result<Survey, GateError> {
    let spec = reference.engine.spec();
    let mut sums: Vec<ArmSums> = arms.iter().map(|_| ArmSums::new(spec, windows)).collect();
    let sources = arms.iter().map(|(_, arm)| &*arm.experts).collect();
    let mut probe = Probe::new(spec, &*reference.experts, sources, windows.rows());
    let (mut tokens, mut nll) = (0, 0.0);
    for row in 0..windows.rows() {
        if control.cancel.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(GateError::Cancelled { rows: row, total: windows.rows() });
        }
        let window = windows.row(row);
        let mut log = RouteLog::new(spec);
        let own =
            forward(&reference.engine, ("reference", row), window, &mut Watch { log: &mut log, tap: &mut probe })?;
        probe.check()?;
        for (&(name, arm), sums) in arms.iter().zip(&mut sums) {
            let mut seen = RouteLog::new(spec);
            let mut tap = Computed(&mut sums.computed);
            let logits = forward(&arm.engine, (name, row), window, &mut Watch { log: &mut seen, tap: &mut tap })?;
            sums.routes(&log, &seen);
            sums.scores(pool, (name, &logits, &own), (windows, row))?;
        }
        tokens += window.len() - 1;
        if let Some(first) = sums.first() {
            nll = first.documents.iter().map(|document| document.nll).sum::<f64>() / tokens as f64;
        }
        (control.progress)(Progress { rows: row + 1, total: windows.rows(), tokens, nll });
    }
    Ok(Survey { arms: sums, outputs: probe.finish() })
}

fn forward(
    engine: &Engine,
    (arm, row): (&'static str, usize),
    window: &[u32],
    observer: &mut dyn Observer,
) -> Result<Vec<f32>, GateError> {
    let logits = engine.forward(&mut engine.session(), window, observer, Want::All);
    logits.map_err(|source| GateError::Model { arm, row, source: source.into() })
}

/// A number for each expert of a model.
pub(crate) fn by_expert(spec: &ModelSpec) -> ByExpert {
    let mut layers: ByExpert = spec.layers.iter().map(|_| Vec::new()).collect();
    for (layer, moe) in spec.moe_layers() {
        layers[layer] = vec![0; moe.experts];
    }
    layers
}

impl ArmSums {
    fn new(spec: &ModelSpec, windows: &Windows) -> Self {
        Self {
            documents: vec![DocumentSums::default(); windows.documents()],
            klds: Vec::with_capacity(windows.tokens()),
            overlap: vec![(0, 0); spec.layers.len()],
            routed: by_expert(spec),
            computed: by_expert(spec),
        }
    }

    fn routes(&mut self, reference: &RouteLog, own: &RouteLog) {
        for (layer, (theirs, ours)) in reference.layers.iter().zip(&own.layers).enumerate() {
            let k = ours.k.max(1);
            for (theirs, ours) in theirs.ids.chunks(k).zip(ours.ids.chunks(k)) {
                let same = ours.iter().filter(|id| theirs.contains(id)).count();
                self.overlap[layer].0 += same as u64;
                self.overlap[layer].1 += ours.len() as u64;
            }
            for id in &ours.ids {
                self.routed[layer][*id as usize] += 1;
            }
        }
    }

    fn scores(
        &mut self,
        pool: &ThreadPool,
        (arm, own, reference): (&'static str, &[f32], &[f32]),
        (windows, row): (&Windows, usize),
    ) -> Result<(), GateError> {
        let window = windows.row(row);
        let vocab = own.len() / window.len();
        let one = |(place, target): (usize, &u32)| {
            let at = place * vocab..(place + 1) * vocab;
            score(&own[at.clone()], Some(&reference[at]), *target as usize)
        };
        let scores: Vec<_> = pool.install(|| window[1..].par_iter().enumerate().map(one).collect());
        let sums = &mut self.documents[windows.document(row)];
        for (place, score) in scores.into_iter().enumerate() {
            let score = score.map_err(|who| GateError::Logits {
                arm: if who == "candidate" { arm } else { who },
                row,
                reason: format!("position {place}: expected finite logits, found NaN or infinity"),
            })?;
            sums.tokens += 1;
            sums.nll += score.nll;
            if let Some(against) = &score.against {
                sums.reference_nll += against.nll;
                sums.kld += against.kld;
                sums.same += u64::from(against.same);
                self.klds.push(against.kld as f32);
            }
        }
        Ok(())
    }
}

/// The router's choices of one window, by layer.
pub(crate) struct RouteLog {
    layers: Vec<Routes>,
}

impl RouteLog {
    fn new(spec: &ModelSpec) -> Self {
        Self { layers: spec.layers.iter().map(|_| Routes::default()).collect() }
    }
}

/// What is seen beside the router's choices.
pub(crate) trait Tap: Send {
    /// What enters the experts of a layer, `[n, hidden]`, where [`Tap::wants_input`].
    fn input(&mut self, x: &[f32]);
    /// An expert's activation `[rows.len(), width]` of the tokens `rows`.
    fn hidden(&mut self, layer: usize, expert: usize, rows: &[u32], g: &[f32]);
    /// Whether [`Tap::input`] is asked for.
    fn wants_input(&self) -> bool;
}

/// Counts the tokens of each expert.
struct Computed<'a>(&'a mut ByExpert);

impl Tap for Computed<'_> {
    fn input(&mut self, _: &[f32]) {}

    fn hidden(&mut self, layer: usize, expert: usize, rows: &[u32], _: &[f32]) {
        self.0[layer][expert] += rows.len() as u64;
    }

    fn wants_input(&self) -> bool {
        false
    }
}

/// The observer of every forward pass here.
struct Watch<'a> {
    log: &'a mut RouteLog,
    tap: &'a mut dyn Tap,
}

impl Observer for Watch<'_> {
    fn wants(&self) -> Wants {
        Wants { router: true, expert_hidden: true, moe_input: self.tap.wants_input(), hidden: false }
    }

    fn router(&mut self, at: At, routes: &Routes) {
        let log = &mut self.log.layers[at.layer];
        log.k = routes.k;
        log.ids.extend_from_slice(&routes.ids);
    }

    fn moe_input(&mut self, _: At, x: &[f32]) {
        self.tap.input(x);
    }

    fn expert_hidden(&mut self, at: At, expert: u32, rows: &[u32], g: &[f32]) {
        self.tap.hidden(at.layer, expert as usize, rows, g);
    }
}
