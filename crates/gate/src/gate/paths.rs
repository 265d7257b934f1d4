//! The same model computed in two ways: what differs then is noise of the arithmetic, not of the codec.
//!
//! An exact 0 is what this engine promises between chunks, and also what a comparison of one path with itself gives:
//! so each comparison counts the passes that it made.

use rayon::ThreadPool;
use rayon::prelude::*;
use smoe_engine::observer::{At, Observer, Routes, Wants};
use smoe_engine::{Engine, Want};
use smoe_kernels::Isa;

use super::arm::Reference;
use crate::error::GateError;
use crate::score::score;
use crate::windows::Windows;

/// Tokens of the short chunk.
const CHUNK: usize = 64;
/// Tokens of the long one.
const LONG: usize = 512;
/// Windows that are computed in two chunkings.
const WINDOWS: usize = 4;
/// Tokens that are computed on another instruction set, or one by one.
const TOKENS: usize = 128;

/// How two ways of computing the same differ.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathDifference {
    /// Mean KL divergence of the second from the first, nats.
    pub(crate) kld: f64,
    /// What ran, for people.
    pub(crate) ways: [String; 2],
    /// Whether counters saw two different ways.
    pub(crate) two_ran: bool,
}

/// Counts the passes through a model.
struct Passes {
    layer: Option<usize>,
    count: usize,
}

impl Observer for Passes {
    fn wants(&self) -> Wants {
        Wants { router: true, ..Wants::default() }
    }

    fn router(&mut self, at: At, _: &Routes) {
        self.count += usize::from(*self.layer.get_or_insert(at.layer) == at.layer);
    }
}

/// Logits of `ids` in passes of `chunk` tokens, and the passes made.
fn run(engine: &Engine, ids: &[u32], chunk: usize) -> Result<(Vec<f32>, usize), GateError> {
    let mut session = engine.session();
    session.chunk = chunk;
    let mut passes = Passes { layer: None, count: 0 };
    let logits = engine.forward(&mut session, ids, &mut passes, Want::All)?;
    Ok((logits, passes.count))
}

/// Sum of KL(a || b) over the predicted tokens of `ids`; infinite where one has no finite logits.
fn divergence(pool: &ThreadPool, ids: &[u32], a: &[f32], b: &[f32]) -> f64 {
    let vocab = a.len() / ids.len();
    let one = |(place, target): (usize, &u32)| {
        let at = place * vocab..(place + 1) * vocab;
        let score = score(&b[at.clone()], Some(&a[at]), *target as usize);
        score.ok().and_then(|score| score.against).map_or(f64::INFINITY, |against| against.kld)
    };
    let klds: Vec<f64> = pool.install(|| ids[1..].par_iter().enumerate().map(one).collect());
    klds.into_iter().sum()
}

/// Short chunks against whole windows, on some windows spread over the text.
pub(crate) fn chunks(engine: &Engine, windows: &Windows, pool: &ThreadPool) -> Result<PathDifference, GateError> {
    let count = WINDOWS.min(windows.rows());
    let (mut kld, mut tokens, mut passes) = (0.0, 0, [0, 0]);
    for i in 0..count {
        let ids = windows.row(i * windows.rows() / count);
        let short = CHUNK.min(ids.len().div_ceil(2));
        let ((whole, few), (parts, many)) = (run(engine, ids, LONG)?, run(engine, ids, short)?);
        kld += divergence(pool, ids, &whole, &parts);
        tokens += ids.len() - 1;
        passes = [passes[0] + few, passes[1] + many];
    }
    let ways = passes.map(|passes| format!("{passes} passes"));
    Ok(PathDifference { kld: kld / tokens as f64, ways, two_ran: passes[0] != passes[1] })
}

/// One token at a time against a prefill, on the start of the first window.
pub(crate) fn decode(engine: &Engine, windows: &Windows, pool: &ThreadPool) -> Result<PathDifference, GateError> {
    let ids = start(windows);
    let ((prefill, few), (decoded, many)) = (run(engine, ids, LONG)?, run(engine, ids, 1)?);
    let kld = divergence(pool, ids, &prefill, &decoded) / (ids.len() - 1) as f64;
    let ways = [format!("a prefill of {} tokens", ids.len()), format!("{many} tokens one by one")];
    Ok(PathDifference { kld, ways, two_ran: few != many && many == ids.len() })
}

/// Each other instruction set of this machine against the best one, on the start of the first window.
pub(crate) fn instruction_sets(
    reference: &Reference,
    windows: &Windows,
    pool: &ThreadPool,
) -> Result<Vec<(&'static str, PathDifference)>, GateError> {
    let (ids, best) = (start(windows), Isa::detect());
    let (own, _) = run(&reference.engine, ids, LONG)?;
    let mut found = Vec::new();
    for isa in Isa::available().into_iter().filter(|isa| *isa != best) {
        let engine = reference.on(isa)?;
        let (other, _) = run(&engine, ids, LONG)?;
        let ways = [reference.engine.backend(), engine.backend()];
        let two_ran = ways[0] != ways[1];
        let kld = divergence(pool, ids, &own, &other) / (ids.len() - 1) as f64;
        found.push((isa.name(), PathDifference { kld, ways, two_ran }));
    }
    Ok(found)
}

fn start(windows: &Windows) -> &[u32] {
    let row = windows.row(0);
    &row[..row.len().min(TOKENS)]
}
