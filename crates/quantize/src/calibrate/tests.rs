//! The whole layer: against the prototype, across threads, at the edges, and with a hand in the works.

use super::layer::TOKENS as BLOCK_TOKENS;
use super::*;
use smoe_codec::Codec;
use smoe_codec::half::f32_to_f16;
use smoe_kernels::Isa;
use smoe_model::spec::Activation;
use std::borrow::Cow;
use std::ops::Range;

#[path = "tests_edges.rs"]
mod edges;
#[path = "tests_faults.rs"]
mod faults;
#[path = "tests_prototype.rs"]
mod prototype;

/// A layer in memory.
#[derive(Debug, Clone)]
struct Toy {
    shape: Shape,
    k: usize,
    tokens: usize,
    held_from: usize,
    x: Vec<f32>,
    reference: Vec<f32>,
    ids: Vec<u32>,
    gates: Vec<f32>,
    weights: Vec<[Vec<f32>; 3]>,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Around 0, of variance 1, nearly normal.
    fn normal(&mut self) -> f32 {
        let sum: f32 = (0..12).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).sum();
        sum - 6.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

impl Toy {
    /// Correlated inputs, random weights; expert choice is uneven.
    fn new(seed: u64, (experts, hidden, width, tokens): (usize, usize, usize, usize)) -> Self {
        let (mut r, k) = (Random(seed), 2);
        let hidden_states = |r: &mut Random| {
            let mut x = vec![0.0; tokens * hidden];
            for x in x.chunks_exact_mut(hidden) {
                let (mut last, loud) = (0.0, 0.5 + (r.below(8) as f32) / 4.0);
                for (c, x) in x.iter_mut().enumerate() {
                    last = 0.6 * last + r.normal();
                    *x = last * loud * (1.0 + (c % 7) as f32 / 4.0);
                }
            }
            x
        };
        let x = hidden_states(&mut r);
        let noise = hidden_states(&mut r);
        let reference = x.iter().zip(noise).map(|(x, n)| x + 0.1 * n).collect();
        let (mut ids, mut gates) = (Vec::new(), Vec::new());
        for _ in 0..tokens {
            let first = r.below(experts).min(r.below(experts));
            let second = (first + 1 + r.below(experts - 1)) % experts;
            let g = 0.5 + 0.4 * (r.below(100) as f32 / 100.0);
            ids.extend([first as u32, second as u32]);
            gates.extend([g, 1.0 - g]);
        }
        let mut matrix =
            |cols: usize| -> Vec<f32> { (0..hidden * width).map(|_| r.normal() / (cols as f32).sqrt()).collect() };
        let weights = (0..experts).map(|_| [matrix(hidden), matrix(hidden), matrix(width)]).collect();
        let shape = Shape { experts, hidden, width, act: Activation::SwiGlu };
        Self { shape, k, tokens, held_from: tokens - tokens / 16, x, reference, ids, gates, weights }
    }

    fn layer(&self) -> Layer<'_> {
        Layer {
            index: 3,
            shape: self.shape,
            tokens: self.tokens,
            held_from: self.held_from,
            routed: Routed { k: self.k, ids: &self.ids, weights: &self.gates },
        }
    }

    fn calibrate(&self, options: &Options) -> Result<Vec<ExpertResult>, CalibrateError> {
        calibrate_layer(&self.layer(), self, options, &Untouched)
    }

    fn expected(&self) -> Vec<TensorAt> {
        let of = |expert| Projection::ALL.map(|projection| TensorAt { layer: 3, expert, projection });
        (0..self.shape.experts).flat_map(of).collect()
    }

    fn stream(&self, stream: Stream) -> &[f32] {
        match stream {
            Stream::Quantised => &self.x,
            Stream::Reference => &self.reference,
        }
    }

    /// Sends every token of `expert` to `to`.
    fn redirect(&mut self, expert: u32, to: u32) {
        self.ids.iter_mut().filter(|id| **id == expert).for_each(|id| *id = to);
    }
}

impl LayerSource for Toy {
    fn block(&self, stream: Stream, tokens: Range<usize>) -> Result<Cow<'_, [f32]>, SourceError> {
        let hidden = self.shape.hidden;
        Ok(Cow::Borrowed(&self.stream(stream)[tokens.start * hidden..tokens.end * hidden]))
    }

    fn rows(&self, stream: Stream, tokens: &[u32]) -> Result<Vec<f32>, SourceError> {
        let (x, hidden) = (self.stream(stream), self.shape.hidden);
        Ok(tokens.iter().flat_map(|&t| x[t as usize * hidden..][..hidden].iter().copied()).collect())
    }

    fn weights(&self, expert: usize, projection: Projection) -> Result<Vec<f32>, SourceError> {
        Ok(self.weights[expert][projection as usize].clone())
    }
}

fn options(codec: Codec) -> Options {
    let recipe = Recipe { beta: 0.25, ..Recipe::for_tokens(1000, 100.0) };
    Options { codecs: [codec; 3], recipe, arm: Arm::Both, isa: Isa::detect() }
}

fn reports(results: &[ExpertResult]) -> Vec<TensorReport> {
    results.iter().flat_map(|r| r.reports.clone()).collect()
}

fn facts(report: &TensorReport) -> &Facts {
    match &report.outcome {
        Outcome::Calibrated { facts, .. } => facts,
        Outcome::Rtn { exempt } => panic!("{}: {exempt:?}", report.at),
    }
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool")
}

#[test]
fn the_bytes_do_not_depend_on_the_threads() {
    let toy = Toy::new(1, (5, 96, 80, BLOCK_TOKENS + 300));
    let [one, three] = [1, 3].map(|n| pool(n).install(|| toy.calibrate(&options(Codec::Q2)).expect("solved")));
    assert_eq!(one, three);
}

/// On random layers: no objective above the twin's, codes that moved, and on most matrices a gain on unseen windows.
#[test]
fn no_objective_is_above_the_twins() {
    for (seed, shape) in [(5, (4, 64, 64, 600)), (6, (3, 96, 40, 200)), (7, (6, 130, 66, 64))] {
        for codec in [Codec::Q2, Codec::Q4] {
            let toy = Toy::new(seed, shape);
            let found = reports(&toy.calibrate(&options(codec)).expect("solved"));
            let summary = check_reports(&toy.expected(), &found, Arm::Both).expect("all calibrated");
            assert_eq!((summary.calibrated, summary.rtn), (3 * shape.0, 0));
            let mut better = 0;
            for report in &found {
                let Outcome::Calibrated { facts, held_out } = &report.outcome else { panic!("calibrated") };
                assert!(facts.objective <= facts.twin_objective, "{}: seed {seed}, {facts:?}", report.at);
                assert!(facts.codes_differ > 0.0 && facts.columns_moved > 0, "{}: seed {seed}", report.at);
                better += usize::from(held_out.is_some_and(|h| h.error < h.twin_error));
            }
            println!("seed {seed} {}: {better} of {} better on unseen tokens", codec.name(), found.len());
            assert!(shape.3 < 600 || 2 * better > found.len(), "seed {seed}: {better} of {}", found.len());
        }
    }
}

/// The encoded bytes decode to what the objective was computed of.
#[test]
fn every_instruction_set_solves() {
    let toy = Toy::new(2, (2, 70, 64, 300));
    let mut objectives = Vec::new();
    for isa in Isa::available() {
        let found = reports(&toy.calibrate(&Options { isa, ..options(Codec::Q2) }).expect("solved"));
        objectives.push(found.iter().map(|r| facts(r).objective).sum::<f64>());
    }
    // Sums are rounded differently, so that some codes differ; the result is as good.
    assert!(objectives.iter().all(|o| (o / objectives[0] - 1.0).abs() < 0.02), "{objectives:?}");
}

/// The arms change the bytes that they should, and only those.
#[test]
fn arms_change_what_they_name() {
    let toy = Toy::new(3, (3, 64, 64, 300));
    let run = |arm| toy.calibrate(&Options { arm, ..options(Codec::Q2) }).expect("solved");
    let (both, gate_up, down) = (run(Arm::Both), run(Arm::GateUp), run(Arm::Down));
    for e in 0..3 {
        let nearest = |p: Projection| {
            Encoded::nearest(Isa::detect(), Codec::Q2, &toy.weights[e][p as usize], 64).expect("finite")
        };
        for p in Projection::ALL {
            let i = p as usize;
            let (of_gate_up, of_down) = (&gate_up[e].encoded[i], &down[e].encoded[i]);
            assert_eq!(*of_gate_up == nearest(p), !p.is_in(Arm::GateUp), "gate-up, {}", p.name());
            assert_eq!(*of_down == nearest(p), !p.is_in(Arm::Down), "down, {}", p.name());
            assert_ne!(both[e].encoded[i], nearest(p), "both, {}", p.name());
        }
        assert_eq!(both[e].encoded[..2], gate_up[e].encoded[..2]);
    }
    for (arm, results) in [(Arm::GateUp, &gate_up), (Arm::Down, &down)] {
        check_reports(&toy.expected(), &reports(results), arm).expect("the arm's parts are calibrated");
    }
    let plain = Options { recipe: Recipe::plain(), ..options(Codec::Q2) };
    assert_ne!(toy.calibrate(&plain).expect("solved")[0].encoded, both[0].encoded);
}
