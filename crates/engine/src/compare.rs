//! Comparison of a model with a golden file: logits, residual stream by layer, router choices, greedy continuation.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::forward::Want;
use crate::generate::{Control, GenerateParams, generate};
use crate::observer::{Recording, Routes};
use crate::sampler::{SamplerParams, argmax};
use crate::tensors::{self, Array, Arrays};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The largest difference that counts as equal, as a share of the largest magnitude of what is compared: an f32 engine
/// that sums in another order stays a hundred times below it.
pub const TOLERANCE: f32 = 1e-4;

/// Reference outputs, as `golden.safetensors` holds them.
#[derive(Debug, Clone, PartialEq)]
pub struct Golden {
    /// The prompt.
    pub input_ids: Vec<u32>,
    /// `[tokens, vocab]`.
    pub logits: Vec<f32>,
    /// By entry, `[tokens, hidden]`; empty where the file has none.
    pub hidden: Vec<Vec<f32>>,
    /// By layer with experts: the choices; empty where the file has none.
    pub routes: Vec<Routes>,
    /// What greedy decoding goes on with, end of text ignored; empty where the file has none.
    pub greedy_continuation: Vec<u32>,
}

impl Golden {
    /// Reads a golden file.
    ///
    /// # Errors
    /// When it cannot be read, lacks `input_ids` or `logits`, or its shapes contradict each other.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let arrays = tensors::read(path)?;
        Self::from_arrays(&arrays).map_err(|fault| {
            let file = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
            EngineError::Golden { file, fault }
        })
    }

    fn from_arrays(arrays: &Arrays) -> Result<Self, String> {
        let ids = |name: &str| arrays.get(name).map(|array| token_ids(name, array)).transpose();
        let input_ids = ids("input_ids")?.ok_or("`input_ids` is missing")?;
        let tokens = input_ids.len();
        if tokens == 0 {
            return Err("`input_ids` is empty".into());
        }
        let logits = floats(arrays, "logits", &[Some(tokens), None])?.ok_or("`logits` is missing")?;
        let hidden = floats(arrays, "hidden_states", &[None, Some(tokens), None])?.unwrap_or_default();
        let hidden = match arrays.get("hidden_states") {
            Some(array) => hidden.chunks((tokens * array.shape[2]).max(1)).map(<[f32]>::to_vec).collect(),
            None => Vec::new(),
        };
        let routes = match arrays.get("router_topk") {
            Some(array) => routes(arrays, array, tokens)?,
            None => Vec::new(),
        };
        Ok(Self {
            input_ids,
            logits,
            hidden,
            routes,
            greedy_continuation: ids("greedy_continuation")?.unwrap_or_default(),
        })
    }
}

fn token_ids(name: &str, array: &Array) -> Result<Vec<u32>, String> {
    let values = array.as_integers().ok_or_else(|| format!("`{name}` holds no integers"))?;
    values.iter().map(|&id| u32::try_from(id).map_err(|_| format!("`{name}` holds {id}"))).collect()
}

/// The floats of a tensor whose axes are as given (`None`: any).
fn floats(arrays: &Arrays, name: &str, axes: &[Option<usize>]) -> Result<Option<Vec<f32>>, String> {
    let Some(array) = arrays.get(name) else { return Ok(None) };
    let fits = array.shape.len() == axes.len() && array.shape.iter().zip(axes).all(|(s, a)| a.is_none_or(|a| a == *s));
    match array.as_floats() {
        Some(values) if fits => Ok(Some(values.to_vec())),
        _ => Err(format!("`{name}`: shape {:?} does not fit the input, or it holds no floats", array.shape)),
    }
}

fn routes(arrays: &Arrays, topk: &Array, tokens: usize) -> Result<Vec<Routes>, String> {
    let ids = token_ids("router_topk", topk)?;
    let &[_, t, k] = topk.shape.as_slice() else { return Err("`router_topk` has not three axes".into()) };
    if t != tokens || k == 0 {
        return Err(format!("`router_topk`: shape {:?} does not fit {tokens} tokens", topk.shape));
    }
    let weights = floats(arrays, "router_weights", &[Some(topk.shape[0]), Some(t), Some(k)])?;
    let weights = weights.unwrap_or_else(|| vec![f32::NAN; ids.len()]);
    let layers = ids.chunks(t * k).zip(weights.chunks(t * k));
    Ok(layers.map(|(ids, weights)| Routes { k, ids: ids.to_vec(), weights: weights.to_vec() }).collect())
}

/// One entry of the residual stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HiddenDifference {
    /// 0: what enters layer 0; i + 1: what leaves layer i.
    pub entry: usize,
    /// Largest difference.
    pub max_abs_diff: f32,
    /// As a share of the largest magnitude.
    pub relative: f32,
}

/// A model against a golden file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Largest difference of a logit.
    pub max_abs_diff: f32,
    /// Largest |logit| of the golden file.
    pub max_abs_logit: f32,
    /// The first as a share of the second.
    pub relative: f32,
    /// Positions whose largest logit is the same token's.
    pub argmax_equal: usize,
    /// Positions.
    pub argmax_total: usize,
    /// The first decoder layer whose output (or, for layer 0, whose input) or choice of experts differs.
    pub first_differing_layer: Option<usize>,
    /// The residual stream, where the file has it.
    pub hidden: Vec<HiddenDifference>,
    /// (Layer, token) pairs with the same set of experts.
    pub router_equal: usize,
    /// (Layer, token) pairs.
    pub router_total: usize,
    /// Largest difference of a combine weight, over equal sets.
    pub router_weights_max_abs_diff: f32,
    /// Whether greedy decoding gave the golden continuation; `None` where the file has none.
    pub greedy_equal: Option<bool>,
    /// What greedy decoding gave.
    pub greedy_continuation: Vec<u32>,
    /// Everything within [`TOLERANCE`], every set, argmax and token equal.
    pub equal: bool,
}

/// Computes the golden file's prompt in passes of `chunk` tokens and compares everything that the file holds.
///
/// # Errors
/// When the model cannot compute the prompt, or has another vocabulary, width or number of layers.
pub fn compare(engine: &Engine, golden: &Golden, chunk: usize) -> Result<Comparison, EngineError> {
    let misfit = |fault: String| EngineError::Golden { file: "golden".into(), fault };
    let mut session = engine.session();
    session.chunk = chunk.max(1);
    let mut recording = Recording::default();
    let logits = engine.forward(&mut session, &golden.input_ids, &mut recording, Want::All)?;
    if logits.len() != golden.logits.len() {
        let (here, there) = (engine.spec().vocab, golden.logits.len() / golden.input_ids.len());
        return Err(misfit(format!("logits over {there} tokens, the model's vocabulary has {here}")));
    }
    let hidden = hidden_differences(&recording, golden).map_err(misfit)?;
    let router = router_differences(&recording, golden).map_err(misfit)?;
    let greedy = greedy(engine, golden, chunk)?;
    let (max_abs_diff, max_abs_logit) = difference(&logits, &golden.logits);
    let vocab = engine.spec().vocab;
    let rows = logits.chunks_exact(vocab).zip(golden.logits.chunks_exact(vocab));
    let argmax_equal = rows.filter(|(a, b)| argmax(a) == argmax(b)).count();
    let argmax_total = golden.input_ids.len();
    let greedy_equal = (!golden.greedy_continuation.is_empty()).then(|| greedy == golden.greedy_continuation);
    let hidden_layer = hidden.iter().find(|h| !within(h.relative)).map(|h| h.entry.saturating_sub(1));
    let first_differing_layer = [hidden_layer, router.first_layer].into_iter().flatten().min();
    let relative = max_abs_diff / max_abs_logit;
    let equal = within(relative)
        && argmax_equal == argmax_total
        && first_differing_layer.is_none()
        && within(router.max_abs_diff)
        && greedy_equal != Some(false);
    Ok(Comparison {
        max_abs_diff,
        max_abs_logit,
        relative,
        argmax_equal,
        argmax_total,
        first_differing_layer,
        hidden,
        router_equal: router.equal,
        router_total: router.total,
        router_weights_max_abs_diff: router.max_abs_diff,
        greedy_equal,
        greedy_continuation: greedy,
        equal,
    })
}

/// Within the tolerance; a NaN is not.
fn within(relative: f32) -> bool {
    relative <= TOLERANCE
}

/// Largest difference and largest magnitude of the second; a NaN in either makes the difference infinite.
fn difference(a: &[f32], b: &[f32]) -> (f32, f32) {
    a.iter().zip(b).fold((0.0, f32::MIN_POSITIVE), |(diff, most), (a, b)| {
        let d = if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() };
        (f32::max(diff, if d.is_nan() { f32::INFINITY } else { d }), most.max(b.abs()))
    })
}

fn hidden_differences(recording: &Recording, golden: &Golden) -> Result<Vec<HiddenDifference>, String> {
    if golden.hidden.is_empty() {
        return Ok(Vec::new());
    }
    if golden.hidden.len() != recording.hidden.len() || golden.hidden[0].len() != recording.hidden[0].len() {
        return Err(format!("{} hidden states, the model has {}", golden.hidden.len(), recording.hidden.len()));
    }
    let pairs = recording.hidden.iter().zip(&golden.hidden).enumerate();
    Ok(pairs
        .map(|(entry, (a, b))| {
            let (max_abs_diff, most) = difference(a, b);
            HiddenDifference { entry, max_abs_diff, relative: max_abs_diff / most }
        })
        .collect())
}

#[derive(Default)]
struct RouterDifferences {
    equal: usize,
    total: usize,
    max_abs_diff: f32,
    first_layer: Option<usize>,
}

fn router_differences(recording: &Recording, golden: &Golden) -> Result<RouterDifferences, String> {
    let mut result = RouterDifferences::default();
    if golden.routes.is_empty() {
        return Ok(result);
    }
    if golden.routes.len() != recording.routes.len() {
        return Err(format!("{} layers with experts, the model has {}", golden.routes.len(), recording.routes.len()));
    }
    for ((layer, ours), theirs) in recording.routes.iter().zip(&golden.routes) {
        let tokens = sorted_choices(ours).zip(sorted_choices(theirs));
        for (ours, theirs) in tokens {
            result.total += 1;
            if ours.len() != theirs.len() || ours.iter().zip(&theirs).any(|(a, b)| a.0 != b.0) {
                result.first_layer = result.first_layer.or(Some(*layer));
                continue;
            }
            result.equal += 1;
            let diffs = ours.iter().zip(&theirs).filter(|(_, b)| !b.1.is_nan()).map(|(a, b)| (a.1 - b.1).abs());
            let most = diffs.map(|d| if d.is_nan() { f32::INFINITY } else { d }).fold(0.0, f32::max);
            // Against 1 or the weight itself, whichever is more: scaled routers have weights far above 1.
            let scale = theirs.iter().map(|b| b.1.abs()).fold(1.0, f32::max);
            result.max_abs_diff = result.max_abs_diff.max(most / scale);
        }
    }
    Ok(result)
}

/// Each token's choice by expert.
fn sorted_choices(routes: &Routes) -> impl Iterator<Item = Vec<(u32, f32)>> {
    routes.ids.chunks_exact(routes.k).zip(routes.weights.chunks_exact(routes.k)).map(|(ids, weights)| {
        let mut choice: Vec<(u32, f32)> = ids.iter().copied().zip(weights.iter().copied()).collect();
        choice.sort_by_key(|c| c.0);
        choice
    })
}

/// Greedy decoding after the prompt, as long as the golden continuation.
fn greedy(engine: &Engine, golden: &Golden, chunk: usize) -> Result<Vec<u32>, EngineError> {
    let params = GenerateParams {
        max_tokens: golden.greedy_continuation.len(),
        sampler: SamplerParams::default(),
        ignore_eos: true,
    };
    let mut session = engine.session();
    session.chunk = chunk.max(1);
    let control = Control { on_token: &mut |_| ControlFlow::Continue(()), cancel: &AtomicBool::new(false) };
    Ok(generate(engine, &mut session, &golden.input_ids, &params, control)?.ids)
}

/// The arrays of a run, under a golden file's names; `recording` adds the residual stream and the choices.
pub fn golden_arrays(ids: &[u32], logits: Vec<f32>, recording: Option<Recording>) -> Arrays {
    let tokens = ids.len();
    let vocab = logits.len() / tokens.max(1);
    let integers = |ids: &[u32]| ids.iter().map(|id| *id as i32).collect::<Vec<_>>();
    let mut arrays = Arrays::new();
    arrays.insert("input_ids".into(), Array::integers(&[tokens], integers(ids)));
    arrays.insert("logits".into(), Array::floats(&[tokens, vocab], logits));
    let Some(recording) = recording else { return arrays };
    if let Some(first) = recording.hidden.first() {
        let shape = [recording.hidden.len(), tokens, first.len() / tokens.max(1)];
        arrays.insert("hidden_states".into(), Array::floats(&shape, recording.hidden.concat()));
    }
    // One tensor holds the choices of all layers only where all choose as many; so do all released models.
    let k = recording.routes.first().map_or(0, |(_, routes)| routes.k);
    if k > 0 && recording.routes.iter().all(|(_, routes)| routes.k == k) {
        let shape = [recording.routes.len(), tokens, k];
        let topk = recording.routes.iter().flat_map(|(_, routes)| integers(&routes.ids)).collect();
        let weights = recording.routes.iter().flat_map(|(_, routes)| routes.weights.clone()).collect();
        arrays.insert("router_topk".into(), Array::integers(&shape, topk));
        arrays.insert("router_weights".into(), Array::floats(&shape, weights));
    }
    arrays
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative to what is compared with, however small that is: nothing is equal for being near zero.
    #[test]
    fn a_result_of_zeros_fails_at_every_magnitude() {
        for magnitude in [1e-20_f32, 1e-5, 1.0, 1e5] {
            let wanted = [magnitude, -0.5 * magnitude, 0.25 * magnitude];
            let (diff, most) = difference(&[0.0; 3], &wanted);
            assert!(!within(diff / most), "{magnitude}");
            let (diff, most) = difference(&wanted, &wanted);
            assert!(within(diff / most), "{magnitude}");
            let (diff, most) = difference(&[f32::NAN; 3], &wanted);
            assert!(!within(diff / most), "{magnitude}");
        }
    }
}
