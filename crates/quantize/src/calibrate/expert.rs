//! One expert: statistics and solutions of gate and up, then of down on what the quantised gate and up give.

use super::activation::activate;
use super::error::{CalibrateError, StatisticFault};
use super::layer::{Context, ExpertResult, Stream, TOKENS, Tokens, first_not_finite};
use super::levels::Levels;
use super::moments::{Inputs, Moments};
use super::recipe::Solver;
use super::report::{Exempt, HeldOut, Outcome, Projection, TensorAt, TensorReport};
use super::solve::{Encoded, Problem, Unsolved, output_error, solve};
use super::statistic::{Statistic, check_moments};
use faer::{Accum, MatMut, MatRef, Par};

/// Solves the three matrices of expert `e`; also a fingerprint of its own gate and up sums.
pub(crate) fn solve_expert(
    context: &Context<'_>,
    e: usize,
    tokens: &Tokens,
) -> Result<(ExpertResult, Option<u64>), CalibrateError> {
    let expert = Expert::load(context, e, tokens)?;
    let own = expert.own_moments(Projection::Gate, |stream, ids| expert.inputs(stream, ids))?;
    let fingerprint = fingerprint(&own);
    let shared = &context.prior;
    let statistics = Statistics::new(context, &own, Some(shared), Projection::Gate);
    let (gate, gate_report) = expert.project(Projection::Gate, &statistics)?;
    let (up, up_report) = expert.project(Projection::Up, &statistics)?;
    drop((own, statistics));

    let quantised = expert.gated([&gate, &up].map(|m| m.decode(context.layer.shape.hidden)))?;
    let original = expert.gated([expert.weights[0].clone(), expert.weights[1].clone()])?;
    let hidden = |stream: Stream, x: &[f32]| match stream {
        Stream::Quantised => quantised.hidden(context, x),
        Stream::Reference => original.hidden(context, x),
    };
    let own = expert.own_moments(Projection::Down, |stream, ids| Ok(hidden(stream, &expert.inputs(stream, ids)?)))?;
    let prior = (context.options.recipe.solver == Solver::Recipe && Projection::Down.is_in(context.options.arm))
        .then(|| expert.down_prior(hidden))
        .transpose()?;
    let statistics = Statistics::new(context, &own, prior.as_ref(), Projection::Down);
    let (down, down_report) = expert.project(Projection::Down, &statistics)?;
    let reports = [gate_report, up_report, down_report];
    Ok((ExpertResult { encoded: [gate, up, down], reports }, fingerprint))
}

/// FNV-1a over the bits of an expert's own sums, of the seen tokens where there are some; `None` where they are zero.
fn fingerprint([seen, held]: &[Moments; 2]) -> Option<u64> {
    let own = if seen.tokens > 0 { seen } else { held };
    let hash = |hash: u64, x: &f64| (hash ^ x.to_bits()).wrapping_mul(0x0100_0000_01b3);
    (own.mean_diagonal() > 0.0).then(|| own.second.iter().fold(0xcbf2_9ce4_8422_2325, hash))
}

/// The statistics of a matrix: all tokens, the seen ones for the reported gain, and the held-out ones.
struct Statistics {
    all: Statistic,
    /// What chooses codes for the held-out gain, and what measures it with its tokens; `None` without held-out tokens.
    held_out: Option<(Statistic, Statistic, u64)>,
}

impl Statistics {
    fn new(context: &Context<'_>, own: &[Moments; 2], prior: Option<&[Moments; 2]>, projection: Projection) -> Self {
        let recipe = &context.options.recipe;
        // Plain GPTQ has one gate and up statistic, that of all tokens, and for down the routed tokens alone.
        let shrunk = |own: &Moments, prior: Option<&Moments>| match (recipe.solver, prior) {
            (Solver::GptqPlain, Some(prior)) if projection != Projection::Down => {
                let shared = Statistic::shrunk(prior, None, 0.0);
                Statistic { own_share: 0.0, effective: own.effective(), tokens: own.tokens, ..shared }
            }
            _ => Statistic::shrunk(own, prior, recipe.kappa),
        };
        let part = |i: usize| prior.map(|p| &p[i]);
        let whole = prior.map(|[seen, held]| seen.with(held));
        let all = shrunk(&own[0].with(&own[1]), whole.as_ref());
        let measured = if own[1].tokens > 0 { Some(&own[1]) } else { part(1).filter(|p| p.tokens > 0) };
        let held_out =
            measured.map(|measure| (shrunk(&own[0], part(0)), Statistic::shrunk(measure, None, 0.0), own[1].tokens));
        Self { all, held_out }
    }
}

/// An expert being solved.
struct Expert<'a> {
    context: &'a Context<'a>,
    index: usize,
    tokens: &'a Tokens,
    weights: [Vec<f32>; 3],
}

impl<'a> Expert<'a> {
    fn load(context: &'a Context<'a>, index: usize, tokens: &'a Tokens) -> Result<Self, CalibrateError> {
        let shape = context.layer.shape;
        let mut weights = [const { Vec::new() }; 3];
        for (projection, weights) in Projection::ALL.into_iter().zip(&mut weights) {
            *weights = context.source.weights(index, projection).map_err(|e| context.source(e))?;
            let (expected, found) = (shape.width * shape.hidden, weights.len());
            if expected != found {
                let what = format!("weights of expert {index} {}", projection.name());
                return Err(CalibrateError::Shape { layer: context.layer.index, what, expected, found });
            }
        }
        Ok(Self { context, index, tokens, weights })
    }

    fn at(&self, projection: Projection) -> TensorAt {
        TensorAt { layer: self.context.layer.index, expert: self.index, projection }
    }

    fn cols(&self, projection: Projection) -> usize {
        let shape = self.context.layer.shape;
        if projection == Projection::Down { shape.width } else { shape.hidden }
    }

    fn inputs(&self, stream: Stream, tokens: &[u32]) -> Result<Vec<f32>, CalibrateError> {
        let x = self.context.source.rows(stream, tokens).map_err(|e| self.context.source(e))?;
        let (expected, found) = (tokens.len() * self.context.layer.shape.hidden, x.len());
        if expected == found {
            return Ok(x);
        }
        let what = format!("hidden states of expert {}", self.index);
        Err(CalibrateError::Shape { layer: self.context.layer.index, what, expected, found })
    }

    /// Refuses a block with a NaN or an infinity; `token` gives the stream's index of its tokens.
    fn check_finite(&self, x: &[f32], cols: usize, token: impl Fn(usize) -> usize) -> Result<(), CalibrateError> {
        match first_not_finite(x, cols) {
            None => Ok(()),
            Some(i) => Err(CalibrateError::NotFinite {
                layer: self.context.layer.index,
                token: token(i),
                what: if cols == self.context.layer.shape.hidden {
                    "an input of the experts"
                } else {
                    "an expert's hidden activation"
                },
            }),
        }
    }

    /// Sums over the tokens that the router sent here, seen and held out.
    fn own_moments(
        &self,
        projection: Projection,
        inputs: impl Fn(Stream, &[u32]) -> Result<Vec<f32>, CalibrateError>,
    ) -> Result<[Moments; 2], CalibrateError> {
        let (context, cols) = (self.context, self.cols(projection));
        let Tokens { ids, gates } = self.tokens;
        let split = ids.partition_point(|&t| (t as usize) < context.layer.held_from);
        let mut parts =
            [0..split, split..ids.len()].map(|range| (range, Moments::new(cols, context.streams().len() > 1)));
        for (range, moments) in &mut parts {
            for start in range.clone().step_by(TOKENS) {
                let block = start..(start + TOKENS).min(range.end);
                let tokens = &ids[block.clone()];
                let mut x = Vec::with_capacity(2);
                for &stream in context.streams() {
                    let inputs = inputs(stream, tokens)?;
                    self.check_finite(&inputs, cols, |i| tokens[i] as usize)?;
                    x.push(inputs);
                }
                let power = i32::try_from(context.options.recipe.gate_power).unwrap_or(2);
                let v: Vec<f32> = gates[block].iter().map(|g| g.powi(power)).collect();
                moments.add(Inputs { x: &x[0], reference: x.get(1).map(|x| &x[..]), weights: Some(&v) });
            }
        }
        let [(_, mut seen), (_, mut held)] = parts;
        let at = self.at(projection);
        context.tamper.moments(at, &mut seen, &mut held);
        let (expected, found) = (ids.len() as u64, seen.tokens + held.tokens);
        if expected != found {
            return Err(CalibrateError::Statistic { at, fault: StatisticFault::Tokens { expected, found } });
        }
        for moments in [&seen, &held] {
            check_moments(moments).map_err(|fault| CalibrateError::Statistic { at, fault })?;
        }
        Ok([seen, held])
    }

    /// Sums of this expert's hidden activation over all tokens, or over a fixed sample of them.
    fn down_prior(&self, hidden: impl Fn(Stream, &[f32]) -> Vec<f32>) -> Result<[Moments; 2], CalibrateError> {
        let (context, layer) = (self.context, self.context.layer);
        let width = layer.shape.width;
        let sample = context.options.recipe.prior_tokens.filter(|&n| n < layer.tokens);
        let mut parts = [0..layer.held_from, layer.held_from..layer.tokens]
            .map(|range| (range, Moments::new(width, context.streams().len() > 1)));
        for (range, moments) in &mut parts {
            let chosen: Option<Vec<u32>> = sample.map(|n| {
                // Evenly spaced over the whole stream, so that seen and held-out tokens keep their shares.
                let all = (0..n).map(|i| (i * layer.tokens / n) as u32);
                all.filter(|&t| range.contains(&(t as usize))).collect()
            });
            let count = chosen.as_ref().map_or(range.len(), Vec::len);
            for start in (0..count).step_by(TOKENS) {
                let block = start..(start + TOKENS).min(count);
                let mut h = Vec::with_capacity(2);
                for &stream in context.streams() {
                    let h_stream = match &chosen {
                        Some(tokens) => hidden(stream, &self.inputs(stream, &tokens[block.clone()])?),
                        None => {
                            let tokens = range.start + block.start..range.start + block.end;
                            hidden(stream, &context.source.block(stream, tokens).map_err(|e| context.source(e))?)
                        }
                    };
                    let token = |i: usize| chosen.as_ref().map_or(range.start + start + i, |c| c[start + i] as usize);
                    self.check_finite(&h_stream, width, token)?;
                    h.push(h_stream);
                }
                moments.add(Inputs { x: &h[0], reference: h.get(1).map(|h| &h[..]), weights: None });
            }
        }
        let [(_, seen), (_, held)] = parts;
        for moments in [&seen, &held] {
            let at = self.at(Projection::Down);
            check_moments(moments).map_err(|fault| CalibrateError::Statistic { at, fault })?;
        }
        Ok([seen, held])
    }

    /// Gate and up as they compute, with their biases.
    fn gated(&self, weights: [Vec<f32>; 2]) -> Result<Gated, CalibrateError> {
        let bias = |projection| self.context.source.bias(self.index, projection).map_err(|e| self.context.source(e));
        let [gate, up] = weights;
        Ok(Gated { sides: [(gate, bias(Projection::Gate)?), (up, bias(Projection::Up)?)] })
    }

    /// Codes and scales of a matrix, and its report.
    fn project(
        &self,
        projection: Projection,
        statistics: &Statistics,
    ) -> Result<(Encoded, TensorReport), CalibrateError> {
        let (options, at, cols) = (&self.context.options, self.at(projection), self.cols(projection));
        let (weights, codec) = (&self.weights[projection as usize], options.codecs[projection as usize]);
        let twin = || {
            Encoded::nearest(options.isa, codec, weights, cols).map_err(|e| CalibrateError::Encode {
                at,
                row: e.row,
                source: e.error,
            })
        };
        let (encoded, outcome) = match self.exempt(projection, weights, &statistics.all) {
            Some(exempt) => (twin()?, Outcome::Rtn { exempt }),
            None => {
                let levels = Levels::of(codec).expect("the recipe's check asked for levels");
                let solve_on = |statistic| {
                    solve(options.isa, Problem { weights, statistic, levels, recipe: &options.recipe })
                        .map_err(|e| unsolved(at, e))
                };
                let (mut encoded, mut facts) = solve_on(&statistics.all)?;
                let twin = twin()?;
                self.context.tamper.encoded(at, &twin, &mut encoded);
                facts.equals_twin = encoded == twin;
                let held_out = match &statistics.held_out {
                    None => None,
                    Some((seen, _, _)) if seen.mean_diagonal() == 0.0 => None,
                    Some((seen, measure, tokens)) => {
                        let error = output_error(options.isa, weights, &solve_on(seen)?.0, measure);
                        let twin_error = output_error(options.isa, weights, &twin, measure);
                        Some(HeldOut { error, twin_error, tokens: *tokens })
                    }
                };
                (encoded, Outcome::Calibrated { facts, held_out })
            }
        };
        let Statistic { tokens, effective, own_share, .. } = statistics.all;
        let tokens_per_column = effective / cols.max(1) as f64;
        Ok((encoded, TensorReport { at, tokens, effective_tokens: effective, tokens_per_column, own_share, outcome }))
    }

    /// Why a matrix is rounded to nearest, if it is.
    fn exempt(&self, projection: Projection, weights: &[f32], statistic: &Statistic) -> Option<Exempt> {
        let options = self.context.options;
        if !projection.is_in(options.arm) {
            return Some(Exempt::NotAskedFor);
        }
        if weights.iter().all(|&w| w == 0.0) {
            return Some(Exempt::ZeroWeights);
        }
        let routed_only = options.recipe.solver == Solver::GptqPlain && projection == Projection::Down;
        if routed_only && self.tokens.ids.is_empty() {
            return Some(Exempt::NoTokens);
        }
        (statistic.mean_diagonal() == 0.0).then_some(Exempt::NoSignal)
    }
}

fn unsolved(at: TensorAt, unsolved: Unsolved) -> CalibrateError {
    match unsolved {
        Unsolved::Row(e) => CalibrateError::Encode { at, row: e.row, source: e.error },
        Unsolved::NotPositiveDefinite { column, damping } => {
            CalibrateError::NotPositiveDefinite { at, column, damping }
        }
        Unsolved::Broken(what) => CalibrateError::Solver { at, what },
    }
}

/// Gate and up in f32, `[width, hidden]`.
struct Gated {
    sides: [(Vec<f32>, Option<Vec<f32>>); 2],
}

impl Gated {
    /// `act(gate x, up x)`, `[n, width]`.
    fn hidden(&self, context: &Context<'_>, x: &[f32]) -> Vec<f32> {
        let (hidden, width) = (context.layer.shape.hidden, context.layer.shape.width);
        let n = x.len() / hidden;
        let x = MatRef::from_column_major_slice(x, hidden, n);
        let [mut gate, up] = [&self.sides[0], &self.sides[1]].map(|(weights, bias)| {
            let mut out = vec![0.0f32; n * width];
            let weights = MatRef::from_row_major_slice(weights, width, hidden);
            let view = MatMut::from_column_major_slice_mut(&mut out, width, n);
            faer::linalg::matmul::matmul(view, Accum::Replace, weights, x, 1.0f32, Par::Seq);
            if let Some(bias) = bias {
                out.chunks_exact_mut(width).for_each(|out| out.iter_mut().zip(bias).for_each(|(o, b)| *o += b));
            }
            out
        });
        activate(context.options.isa, context.layer.shape.act, &mut gate, &up);
        gate
    }
}
