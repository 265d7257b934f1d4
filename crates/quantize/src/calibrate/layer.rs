//! One layer: the order of the recipe over all experts. Gate and up are solved on the layer's inputs; then their
//! quantised outputs are recomputed, and down is solved on those.
//!
//! Experts are solved side by side on the current rayon pool, each by one thread in one order. Memory: two streams of a
//! block of tokens and the moments of one expert (16 `[cols, cols]` matrices in f64 at most) a thread.

use super::error::{CalibrateError, SourceError, StatisticFault};
use super::expert;
use super::moments::{Inputs, Moments};
use super::recipe::{Arm, Recipe};
use super::report::{Projection, TensorAt, TensorReport};
use super::solve::Encoded;
use super::statistic::{check_inputs_differ, check_moments};
use rayon::prelude::*;
use smoe_codec::Codec;
use smoe_engine::Routes;
use smoe_kernels::Isa;
use smoe_model::spec::Activation;
use std::borrow::Cow;
use std::ops::Range;

/// Tokens read at a time.
pub(crate) const TOKENS: usize = 1024;

/// Which hidden states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Behind the quantised layers below.
    Quantised,
    /// Behind the original layers below.
    Reference,
}

/// What a layer's calibration reads: inputs of the experts (after the norm) and weights, in f32.
///
/// Called from several threads at once; the same question always gets the same answer.
pub trait LayerSource: Sync {
    /// `[tokens.len(), hidden]` of consecutive tokens.
    ///
    /// # Errors
    /// Whatever reading fails with.
    fn block(&self, stream: Stream, tokens: Range<usize>) -> Result<Cow<'_, [f32]>, SourceError>;

    /// `[tokens.len(), hidden]` of some tokens, ascending.
    ///
    /// # Errors
    /// Whatever reading fails with.
    fn rows(&self, stream: Stream, tokens: &[u32]) -> Result<Vec<f32>, SourceError>;

    /// A matrix of an expert, `[width, hidden]` for gate and up, `[hidden, width]` for down.
    ///
    /// # Errors
    /// Whatever reading fails with.
    fn weights(&self, expert: usize, projection: Projection) -> Result<Vec<f32>, SourceError>;

    /// Its bias, where it has one.
    ///
    /// # Errors
    /// Whatever reading fails with.
    fn bias(&self, expert: usize, projection: Projection) -> Result<Option<Vec<f32>>, SourceError> {
        let _ = (expert, projection);
        Ok(None)
    }
}

/// Sizes of a layer's experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Routed experts.
    pub experts: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of gate and up.
    pub width: usize,
    /// Their activation.
    pub act: Activation,
}

/// The router's choice on the quantised stream.
#[derive(Debug, Clone, Copy)]
pub struct Routed<'a> {
    /// Experts a token.
    pub k: usize,
    /// `[tokens, k]`.
    pub ids: &'a [u32],
    /// `[tokens, k]` combine weights.
    pub weights: &'a [f32],
}

/// A layer with experts and the tokens that it is calibrated on.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// Decoder layer.
    pub index: usize,
    /// Sizes.
    pub shape: Shape,
    /// Tokens of the stream.
    pub tokens: usize,
    /// The first token that is held out for the reported gain; `tokens` for none.
    pub held_from: usize,
    /// Who goes where.
    pub routed: Routed<'a>,
}

/// What to do with every layer.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of gate, up and down.
    pub codecs: [Codec; 3],
    /// The numbers.
    pub recipe: Recipe,
    /// Which projections.
    pub arm: Arm,
    /// Instruction set of the solver.
    pub isa: Isa,
}

/// A hand in the works, for tests of the guards: it sees statistics and results before they are judged.
pub trait Tamper: Sync {
    /// Why the model cannot be calibrated, asked after all other reasons.
    fn cannot(&self) -> Option<String> {
        None
    }

    /// What was seen of one text on its way into the experts of a layer: their inputs, and the router's choice.
    fn captured(&self, layer: usize, stream: Stream, text: usize, (inputs, routes): (&mut Vec<f32>, &mut Routes)) {
        let _ = (layer, stream, text, inputs, routes);
    }

    /// An expert's own sums for a projection ([`Projection::Gate`] stands for gate and up), held-out tokens apart.
    fn moments(&self, at: TensorAt, seen: &mut Moments, held: &mut Moments) {
        let _ = (at, seen, held);
    }

    /// A matrix's codes.
    fn encoded(&self, at: TensorAt, twin: &Encoded, encoded: &mut Encoded) {
        let _ = (at, twin, encoded);
    }
}

/// Changes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untouched;

impl Tamper for Untouched {}

/// An expert's matrices in stored order: gate, up, down.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertResult {
    /// Codes and scales.
    pub encoded: [Encoded; 3],
    /// How they were made.
    pub reports: [TensorReport; 3],
}

/// Tokens of an expert, ascending, and their combine weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tokens {
    pub(crate) ids: Vec<u32>,
    pub(crate) gates: Vec<f32>,
}

/// What all experts of a layer share.
pub(crate) struct Context<'a> {
    pub(crate) layer: &'a Layer<'a>,
    pub(crate) source: &'a dyn LayerSource,
    pub(crate) options: &'a Options,
    pub(crate) tamper: &'a dyn Tamper,
    /// Sums of all tokens' inputs, seen and held out.
    pub(crate) prior: [Moments; 2],
}

impl Context<'_> {
    /// The error of a source.
    pub(crate) fn source(&self, source: SourceError) -> CalibrateError {
        CalibrateError::Source { layer: self.layer.index, source }
    }

    /// The streams that the recipe needs.
    pub(crate) fn streams(&self) -> &'static [Stream] {
        streams(&self.options.recipe)
    }
}

fn streams(recipe: &Recipe) -> &'static [Stream] {
    if recipe.needs_reference() { &[Stream::Quantised, Stream::Reference] } else { &[Stream::Quantised] }
}

/// Calibrates the experts of a layer, in expert order. The caller judges the reports of all layers with
/// [`check_reports`](super::check_reports).
///
/// # Errors
/// Lengths that do not belong together, inputs that are not finite, statistics that cannot be real, a source that
/// fails, a matrix that has no solution.
pub fn calibrate_layer(
    layer: &Layer<'_>,
    source: &dyn LayerSource,
    options: &Options,
    tamper: &dyn Tamper,
) -> Result<Vec<ExpertResult>, CalibrateError> {
    options.recipe.check(&options.codecs)?;
    let tokens = check_layer(layer)?;
    let prior = layer_prior(layer, source, &options.recipe)?;
    let context = Context { layer, source, options, tamper, prior };
    let solved: Vec<(ExpertResult, Option<u64>)> = (0..layer.shape.experts)
        .into_par_iter()
        .map(|e| expert::solve_expert(&context, e, &tokens[e]))
        .collect::<Result<_, _>>()?;
    check_distinct(layer.index, &tokens, solved.iter().map(|(_, fingerprint)| *fingerprint))?;
    Ok(solved.into_iter().map(|(result, _)| result).collect())
}

/// Each expert's tokens, once the lengths are known to fit.
fn check_layer(layer: &Layer<'_>) -> Result<Vec<Tokens>, CalibrateError> {
    let Layer { index, shape, tokens, routed, .. } = *layer;
    let expect = |what: &str, expected: usize, found: usize| {
        let what = what.to_string();
        if expected == found { Ok(()) } else { Err(CalibrateError::Shape { layer: index, what, expected, found }) }
    };
    if tokens == 0 || routed.k == 0 {
        return Err(CalibrateError::Options(format!("layer {index}: no token to calibrate on; give more text")));
    }
    expect("chosen experts", tokens * routed.k, routed.ids.len())?;
    expect("combine weights", tokens * routed.k, routed.weights.len())?;
    expect("held-out tokens within the stream", layer.held_from.clamp(1, tokens), layer.held_from)?;
    let mut by_expert = vec![Tokens::default(); shape.experts];
    for (slot, (&id, &gate)) in routed.ids.iter().zip(routed.weights).enumerate() {
        let token = slot / routed.k;
        if !gate.is_finite() || gate < 0.0 {
            return Err(CalibrateError::NotFinite { layer: index, token, what: "a combine weight" });
        }
        let Some(of) = by_expert.get_mut(id as usize) else {
            let what = format!("experts, of which token {token} chose number {id}");
            return Err(CalibrateError::Shape { layer: index, what, expected: shape.experts, found: id as usize });
        };
        of.ids.push(token as u32);
        of.gates.push(gate);
    }
    Ok(by_expert)
}

/// The first token of a block with a NaN or an infinity.
pub(crate) fn first_not_finite(x: &[f32], cols: usize) -> Option<usize> {
    x.chunks_exact(cols).position(|x| !x.iter().all(|x| x.is_finite()))
}

/// Sums of all tokens' inputs, seen and held out; every token of both streams is checked here.
fn layer_prior(layer: &Layer<'_>, source: &dyn LayerSource, recipe: &Recipe) -> Result<[Moments; 2], CalibrateError> {
    let (index, hidden) = (layer.index, layer.shape.hidden);
    let sum = |tokens: Range<usize>| {
        let mut moments = Moments::new(hidden, recipe.needs_reference());
        for start in tokens.clone().step_by(TOKENS) {
            let range = start..(start + TOKENS).min(tokens.end);
            let mut blocks = Vec::with_capacity(2);
            for &stream in streams(recipe) {
                let x = source
                    .block(stream, range.clone())
                    .map_err(|source| CalibrateError::Source { layer: index, source })?;
                if x.len() != range.len() * hidden {
                    let what = "hidden states of a block".to_string();
                    let (expected, found) = (range.len() * hidden, x.len());
                    return Err(CalibrateError::Shape { layer: index, what, expected, found });
                }
                if let Some(token) = first_not_finite(&x, hidden) {
                    let what = "an input of the experts";
                    return Err(CalibrateError::NotFinite { layer: index, token: start + token, what });
                }
                blocks.push(x);
            }
            moments.add(Inputs { x: &blocks[0], reference: blocks.get(1).map(|b| &b[..]), weights: None });
        }
        Ok(moments)
    };
    // Fixed parts, added up in their order: the bits do not depend on the threads.
    const PARTS: usize = 16;
    let seen: Vec<Moments> = (0..PARTS)
        .into_par_iter()
        .map(|p| sum(layer.held_from * p / PARTS..layer.held_from * (p + 1) / PARTS))
        .collect::<Result<_, CalibrateError>>()?;
    let seen = seen.into_iter().reduce(|a, b| a.with(&b)).expect("there are parts");
    let held = sum(layer.held_from..layer.tokens)?;
    let all = seen.with(&held);
    let at = TensorAt { layer: index, expert: 0, projection: Projection::Gate };
    let fault = |fault| CalibrateError::Statistic { at, fault };
    check_moments(&all).map_err(fault)?;
    check_inputs_differ(&all).map_err(fault)?;
    Ok([seen, held])
}

/// No two experts with different tokens have the same statistic.
fn check_distinct(
    layer: usize,
    tokens: &[Tokens],
    fingerprints: impl Iterator<Item = Option<u64>>,
) -> Result<(), CalibrateError> {
    let mut seen = std::collections::HashMap::new();
    for (expert, fingerprint) in fingerprints.enumerate() {
        let Some(fingerprint) = fingerprint else { continue };
        let first = *seen.entry(fingerprint).or_insert(expert);
        if tokens[first] != tokens[expert] {
            let at = TensorAt { layer, expert, projection: Projection::Gate };
            return Err(CalibrateError::Statistic { at, fault: StatisticFault::Repeated(first) });
        }
    }
    Ok(())
}
