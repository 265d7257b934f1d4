//! The same model computed in two ways: what differs then is noise of the arithmetic, not of the codec.
//!
//! An exact 0 is what this engine promises between chunks, and also what a comparison of one path with itself gives:
//! so each comparison counts the passes that it made.

use rayon::ThreadPool;
use rayon::prelude::*;
use smoe_engine::cpu::Activations;
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

/// Each other instruction set of this machine against the best one, in long passes and in short ones, on the start of
/// the first window. The larger difference counts.
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
        let short = CHUNK.min(ids.len().div_ceil(2));
        let ((other, few), (parts, many)) = (run(&engine, ids, LONG)?, run(&engine, ids, short)?);
        let ways = [reference.engine.backend(), format!("{} in {few} and in {many} passes", engine.backend())];
        let two_ran = reference.engine.backend() != engine.backend() && few != many;
        let kld = divergence(pool, ids, &own, &other).max(divergence(pool, ids, &own, &parts));
        found.push((isa.name(), PathDifference { kld: kld / (ids.len() - 1) as f64, ways, two_ran }));
    }
    Ok(found)
}

/// A vault as `run` computes it, with activations in eight bits, against the same vault with activations as they are, on
/// the start of the first window. Nothing where the CPU has no fast kernels and runs as it measures.
pub(crate) fn as_run(
    vault: &mut Engine,
    windows: &Windows,
    pool: &ThreadPool,
) -> Result<Option<PathDifference>, GateError> {
    if Activations::fastest() == Activations::F32 {
        return Ok(None);
    }
    let ids = start(windows);
    let (exact, _) = run(vault, ids, LONG)?;
    let measured = vault.backend();
    vault.set_activations(Activations::Int8);
    let (rounded, runs) = (run(vault, ids, LONG), vault.backend());
    vault.set_activations(Activations::F32);
    let kld = divergence(pool, ids, &exact, &rounded?.0) / (ids.len() - 1) as f64;
    let two_ran = runs != measured;
    Ok(Some(PathDifference { kld, ways: [measured, runs], two_ran }))
}

fn start(windows: &Windows) -> &[u32] {
    let row = windows.row(0);
    &row[..row.len().min(TOKENS)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;

    use smoe_engine::experts::Expert;
    use smoe_engine::sources::CheckpointExperts;
    use smoe_engine::{EngineError, EngineOptions, ExpertSource};
    use smoe_model::store::TensorStore;
    use smoe_model::{Checkpoint, OpenOptions};

    /// A source whose answer depends on how many tokens are on their way: with few, each expert is its neighbour.
    struct Fickle {
        inner: CheckpointExperts,
        experts: u32,
        few: usize,
    }

    impl ExpertSource for Fickle {
        fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError> {
            let wrong: Vec<u32> = ids.iter().map(|id| (id + 1) % self.experts).collect();
            self.inner.fetch(layer, if ids.len() <= self.few { &wrong } else { ids })
        }

        fn resident_bytes(&self) -> u64 {
            0
        }
    }

    fn golden() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/qwen3_moe")
    }

    fn engine(few: usize) -> Engine {
        let checkpoint = Arc::new(Checkpoint::open(&golden(), &OpenOptions::default()).expect("a checkpoint"));
        let inner = CheckpointExperts::new(checkpoint.spec(), Arc::clone(&checkpoint) as _);
        let options = EngineOptions { threads: 1, ..EngineOptions::default() };
        Engine::new(&*checkpoint, Box::new(Fickle { inner, experts: 5, few }), &options).expect("an engine")
    }

    fn windows() -> Windows {
        let row = |from: u32| (0..96).map(|i| (from + 7 * i * i) % 128).collect::<Vec<u32>>();
        Windows::from_rows("made up", &[row(1), row(2), row(3)], &[0, 1, 2]).expect("rows")
    }

    #[test]
    fn a_decode_path_with_other_experts_is_seen_and_an_honest_one_is_exactly_equal() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
        let honest = decode(&engine(0), &windows(), &pool).expect("computed");
        assert_eq!((honest.kld, honest.two_ran), (0.0, true));
        // One token chooses two of the five experts, 96 all of them.
        let fickle = decode(&engine(2), &windows(), &pool).expect("computed");
        assert!(fickle.kld > 1e-3 && fickle.two_ran, "{fickle:?}");
    }

    #[test]
    fn chunks_that_differ_are_seen() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
        let honest = chunks(&engine(0), &windows(), &pool).expect("computed");
        assert_eq!((honest.kld, honest.two_ran), (0.0, true));
        assert_eq!(honest.ways, ["3 passes", "6 passes"]);
        let short = Windows::from_rows("short", &[vec![5, 90], vec![17, 60]], &[0, 1]).expect("rows");
        let fickle = chunks(&engine(2), &short, &pool).expect("computed");
        assert!(fickle.kld > 1e-4 && fickle.two_ran, "{fickle:?}");
    }

    #[test]
    fn instruction_sets_agree_to_rounding() {
        let options = EngineOptions { threads: 1, ..EngineOptions::default() };
        let reference = Reference::open(&golden(), &[], &options).expect("a reference");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
        let found = instruction_sets(&reference, &windows(), &pool).expect("computed");
        assert_eq!(found.len() + 1, Isa::available().len());
        for (name, it) in found {
            println!("{name}: {:.1e}", it.kld);
            assert!(it.kld < 1e-8 && it.two_ran, "{name}: {it:?}");
        }
    }
}
