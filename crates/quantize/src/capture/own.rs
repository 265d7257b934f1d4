//! Text that the model writes itself: windows that begin with its start token, drawn at temperature 1, many at a time.

use super::text::{CalibrationText, TextKind, WINDOW};
use crate::control::{Control, Progress};
use crate::error::{QuantizeError, Result};
use crate::random::SplitMix64;
use rayon::prelude::*;
use smoe_engine::{Engine, EngineError, EngineOptions, machine_memory};
use smoe_model::spec::ModelSpec;
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// The random stream of the drawing.
const DRAWING: u64 = 0x5E1F;
/// Texts that are written at the same time, at most; what is written does not depend on it.
const AT_ONCE: u64 = 128;
/// Bytes that they may remember together.
const MEMORY: u64 = 1 << 30;

/// How to have a text written.
#[derive(Debug, Clone)]
pub struct OwnText {
    /// Tokens; `None` for the default of a calibration.
    pub tokens: Option<usize>,
    /// Seed.
    pub seed: u64,
    /// Threads; `None` for one a core.
    pub threads: Option<usize>,
    /// Config keys to pass over.
    pub ignore_config: Vec<String>,
}

/// Has the unquantised model write text in windows; what it writes follows from the checkpoint, the tokens and the seed.
///
/// # Errors
/// A checkpoint that is refused, has no start token or is larger than memory; logits without a number; cancellation.
pub fn own_text(checkpoint: &Path, how: &OwnText, control: &Control<'_>) -> Result<CalibrationText> {
    let open = OpenOptions { ignore_config: how.ignore_config.clone() };
    let checkpoint = Arc::new(Checkpoint::open(checkpoint, &open)?);
    let spec = checkpoint.spec();
    let start = start_token(spec)?;
    let wanted = how.tokens.unwrap_or_else(|| super::hour_of_tokens(spec));
    let threads = how.threads.unwrap_or(0);
    let engine = Engine::of_checkpoint(&checkpoint, &EngineOptions { threads, ..EngineOptions::default() })?;
    let len = WINDOW.min(engine.context());
    let each = engine.memory_estimate(len);
    let (count, total) = (wanted / len, (wanted / len * len) as u64);
    let at_once = (MEMORY / each.cache.max(1)).clamp(1, AT_ONCE.min(count.max(1) as u64));
    let needed = each.total().saturating_add(each.cache.saturating_mul(at_once - 1));
    require_memory(&engine, needed)?;
    (control.say)(&format!(
        "the model writes {count} texts of {len} tokens, {at_once} at a time: {} MB of memory",
        needed.div_ceil(1_000_000)
    ));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| QuantizeError::Refused(format!("cannot start threads: {e}")))?;
    let at_once = at_once as usize;
    let (mut rows, mut done) = (Vec::with_capacity(count), 0);
    while rows.len() < count {
        let first = rows.len();
        let texts = at_once.min(count - first);
        let writers = (first..first + texts).map(|row| SplitMix64::new(how.seed, DRAWING, row as u64));
        rows.extend(write((&engine, &pool), writers.collect(), (start, len), &mut || {
            control.check()?;
            done += texts as u64;
            (control.progress)(Progress { phase: "writing text", done, total });
            Ok(())
        })?);
    }
    Ok(CalibrationText { name: "self".into(), kind: TextKind::Own, rows })
}

/// What a text of the model begins with: its bos, else its first eos.
fn start_token(spec: &ModelSpec) -> Result<u32> {
    spec.tokens.bos.or_else(|| spec.tokens.eos.first().copied()).ok_or_else(|| {
        QuantizeError::Refused(
            "calibration on the model's own text: expected a bos or an eos token in its config to begin with, found \
             none; give a text"
                .into(),
        )
    })
}

/// Writing is token by token through all layers: it needs the whole model.
fn require_memory(engine: &Engine, needed: u64) -> Result<()> {
    match machine_memory() {
        Some(free) if needed > free => Err(QuantizeError::Refused(format!(
            "to write its own text, the unquantised {} needs {} MB of memory, found {} MB; give a text",
            engine.spec().family,
            needed.div_ceil(1_000_000),
            free / 1_000_000
        ))),
        _ => Ok(()),
    }
}

/// Windows of `len` tokens from `start` on, one for each source of chance.
fn write(
    (engine, pool): (&Engine, &rayon::ThreadPool),
    mut chance: Vec<SplitMix64>,
    (start, len): (u32, usize),
    step: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Vec<u32>>> {
    let mut rows = vec![vec![start]; chance.len()];
    let mut batch = engine.batch(rows.len());
    step()?;
    for position in 1..len {
        step()?;
        let last: Vec<u32> = rows.iter().map(|row| row[position - 1]).collect();
        let logits = engine.step(&mut batch, &last)?;
        let vocab = engine.spec().vocab;
        pool.install(|| -> Result<()> {
            let each = rows.par_iter_mut().zip(&mut chance).zip(logits.par_chunks_exact(vocab));
            each.try_for_each(|((row, chance), logits)| {
                let id = draw(logits, uniform(chance));
                row.push(id.ok_or(EngineError::NotANumber { position: position - 1 })?);
                Ok(())
            })
        })?;
    }
    Ok(rows)
}

/// In [0, 1).
fn uniform(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The token at this share of the softmax's mass, in the order of ids; `None` where a logit is not finite.
fn draw(logits: &[f32], share: f64) -> Option<u32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !logits.iter().all(|x| x.is_finite()) {
        return None;
    }
    let weight = |x: &f32| f64::from(x - max).exp();
    let mut left = share * logits.iter().map(weight).sum::<f64>();
    let at = logits.iter().position(|x| {
        left -= weight(x);
        left < 0.0
    });
    // The sum's last rounding may leave a little: the most likely token takes it.
    at.or_else(|| logits.iter().position(|x| *x == max)).and_then(|id| u32::try_from(id).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::{self, Overrides, SynthOptions};

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [0.0, f32::ln(2.0), f32::ln(5.0)];
        for (share, id) in [(0.0, 0), (0.12, 0), (0.13, 1), (0.37, 1), (0.38, 2), (0.999, 2), (1.0, 2)] {
            assert_eq!(draw(&logits, share), Some(id), "{share}");
        }
        assert_eq!(draw(&[0.0, f32::NAN], 0.5), None);
    }

    #[test]
    fn the_text_repeats_and_begins_with_the_start_token() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let source = folder.path().join("tiny");
        let options = SynthOptions { shape: "tiny".into(), overrides: Overrides::default(), seed: 1, force: false };
        synth::checkpoint(&source, &options, &Control::silent()).expect("a synthetic checkpoint");
        let mut how = OwnText { tokens: Some(1100), seed: 3, threads: Some(1), ignore_config: Vec::new() };
        let text = own_text(&source, &how, &Control::silent()).expect("a text");
        assert_eq!((text.kind, text.rows.len(), text.tokens()), (TextKind::Own, 2, 1024));
        assert!(text.rows.iter().all(|row| row[0] == 509), "the shape's bos");
        assert_ne!(text.rows[0], text.rows[1]);
        how.threads = Some(3);
        assert_eq!(own_text(&source, &how, &Control::silent()).expect("a text"), text);
        // One text more leaves the others as they were: they are written side by side.
        how.tokens = Some(1536);
        assert_eq!(own_text(&source, &how, &Control::silent()).expect("a text").rows[..2], text.rows);
        how.seed = 4;
        assert_ne!(own_text(&source, &how, &Control::silent()).expect("a text").rows[..2], text.rows);
    }
}
