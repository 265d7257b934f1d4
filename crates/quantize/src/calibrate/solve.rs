//! One matrix: scales and codes that minimise `tr((W* - Q) A (W* - Q)^T)`, beside the round-to-nearest twin.

use super::factor::{corrected, narrow, upper_factor};
use super::lanes::{LANES, Lane, gather, quadratic};
use super::levels::Levels;
use super::recipe::{Recipe, Solver};
use super::refit::refit;
use super::report::Facts;
use super::rows::{self, Solution};
use super::statistic::Statistic;
use smoe_codec::half::{f16_to_f32, f32_to_f16, round_f16};
use smoe_codec::{Codec, GROUP, SCALE_BYTES};
use smoe_kernels::{Compiled, Isa, RowError, compiled_for, encode_rows};

/// How far the objective of a descent may rise by rounding alone, relative to it.
const ROUNDING: f64 = 1e-3;

/// How often the damping may be raised tenfold.
const RAISES: u32 = 2;

/// A matrix to solve.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// `[rows, cols]`, row-major.
    pub weights: &'a [f32],
    /// What it sees; has the columns.
    pub statistic: &'a Statistic,
    /// Its levels.
    pub levels: Levels,
    /// How to solve.
    pub recipe: &'a Recipe,
}

/// Codes and scales of a matrix, row after row, as the codec defines them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The codec.
    pub codec: Codec,
    /// Packed codes.
    pub codes: Vec<u8>,
    /// f16 scales, little-endian.
    pub scales: Vec<u8>,
}

/// Why a matrix has no solution.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsolved {
    /// A weight that cannot be stored.
    Row(RowError),
    /// Not positive definite at this column, with this damping.
    NotPositiveDefinite {
        /// Where.
        column: usize,
        /// The last damping tried.
        damping: f32,
    },
    /// A broken invariant.
    Broken(String),
}

impl Encoded {
    /// Rounded to nearest.
    ///
    /// # Errors
    /// The first weight that cannot be stored.
    pub fn nearest(isa: Isa, codec: Codec, weights: &[f32], cols: usize) -> Result<Self, RowError> {
        let rows = weights.len() / cols.max(1);
        let (mut codes, mut scales) = (vec![0; rows * codec.code_bytes(cols)], vec![0; rows * codec.scale_bytes(cols)]);
        encode_rows(isa, codec, weights, cols, &mut codes, &mut scales)?;
        Ok(Self { codec, codes, scales })
    }

    /// The weights, `[rows, cols]`.
    #[must_use]
    pub fn decode(&self, cols: usize) -> Vec<f32> {
        let (codes, scales) = (self.codec.code_bytes(cols), self.codec.scale_bytes(cols));
        let mut out = vec![0.0; self.codes.len() / codes.max(1) * cols];
        let coded = self.codes.chunks_exact(codes).zip(self.scales.chunks_exact(scales));
        for ((codes, scales), out) in coded.zip(out.chunks_exact_mut(cols)) {
            smoe_codec::decode_row(self.codec, codes, scales, out);
        }
        out
    }

    fn code(&self, (row, col): (usize, usize), cols: usize) -> u8 {
        let (bits, bit) = (self.codec.bits(), col * self.codec.bits());
        let byte = self.codes[row * self.codec.code_bytes(cols) + bit / 8];
        byte >> (bit % 8) & (((1u16 << bits) - 1) as u8)
    }

    fn scale(&self, (row, group): (usize, usize), cols: usize) -> f32 {
        let at = row * self.codec.scale_bytes(cols) + group * SCALE_BYTES;
        f16_to_f32(u16::from_le_bytes([self.scales[at], self.scales[at + 1]]))
    }

    /// Sixteen rows, as the solver holds them.
    fn lanes(&self, levels: Levels, first: usize, cols: usize) -> Solution {
        let rows = self.codes.len() / self.codec.code_bytes(cols);
        let mut out = Solution {
            levels: vec![Lane::ZERO; cols],
            scales: vec![Lane::ZERO; self.codec.groups(cols)],
            objective: [0.0; LANES],
        };
        for l in 0..LANES.min(rows - first) {
            for (g, s) in out.scales.iter_mut().enumerate() {
                s.0[l] = self.scale((first + l, g), cols);
            }
            for (c, level) in out.levels.iter_mut().enumerate() {
                level.0[l] = levels.level(f32::from(self.code((first + l, c), cols)));
            }
        }
        out
    }

    /// Writes the rows of a solution. Codes under scale 0 are 0.
    fn store(&mut self, levels: Levels, first: usize, solution: &Solution) {
        let (cols, bits) = (solution.levels.len(), self.codec.bits());
        let (code_bytes, scale_bytes) = (self.codec.code_bytes(cols), self.codec.scale_bytes(cols));
        let rows = self.codes.len() / code_bytes;
        for l in 0..LANES.min(rows - first) {
            let scales = &mut self.scales[(first + l) * scale_bytes..][..scale_bytes];
            for (out, s) in scales.chunks_exact_mut(SCALE_BYTES).zip(&solution.scales) {
                out.copy_from_slice(&f32_to_f16(s.0[l]).to_le_bytes());
            }
            let codes = &mut self.codes[(first + l) * code_bytes..][..code_bytes];
            codes.fill(0);
            for (c, level) in solution.levels.iter().enumerate() {
                if solution.scales[c / GROUP].0[l] != 0.0 {
                    codes[c * bits / 8] |= levels.code_of(level.0[l]) << (c * bits % 8);
                }
            }
        }
    }
}

/// Solves a matrix. The recipe's objective is never above the twin's, nor above that of any of its own steps.
///
/// # Errors
/// A weight that cannot be stored, a statistic without a factor, or a broken invariant.
pub fn solve(isa: Isa, problem: Problem<'_>) -> Result<(Encoded, Facts), Unsolved> {
    let (codec, cols) = (problem.levels.codec(), problem.statistic.cols);
    let twin = Encoded::nearest(isa, codec, problem.weights, cols).map_err(Unsolved::Row)?;
    let damped = Damped::new(&problem)?;
    let mut facts = Facts { damping: damped.damping, damping_raised: damped.raised, ..Facts::default() };
    let dead: Vec<usize> = (0..cols).filter(|&j| problem.statistic.a[j * cols + j] == 0.0).collect();
    facts.dead_columns = dead.len();
    let target = damped.target(&problem, &dead);
    let mut out = twin.clone();
    let rows = problem.weights.len() / cols;
    for first in (0..rows).step_by(LANES) {
        let block = Block {
            problem,
            damped: &damped,
            dead: &dead,
            weights: gather(problem.weights, cols, first),
            target: gather(&target, cols, first),
            twin: twin.lanes(problem.levels, first, cols),
        };
        let solution = compiled_for(isa, BlockSolver { block, facts: &mut facts }).map_err(Unsolved::Broken)?;
        facts.objective += solution.objective.iter().sum::<f64>();
        out.store(problem.levels, first, &solution);
    }
    if problem.recipe.solver == Solver::Recipe && facts.columns_visited == 0 {
        return Err(Unsolved::Broken("the descent visited no column".to_string()));
    }
    let differ = (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c)));
    let differ = differ.filter(|&at| out.code(at, cols) != twin.code(at, cols)).count();
    facts.codes_differ = differ as f64 / (rows * cols).max(1) as f64;
    facts.equals_twin = out == twin;
    Ok((out, facts))
}

/// `tr((W - Q) A (W - Q)^T)` under the undamped statistic.
#[must_use]
pub fn output_error(isa: Isa, weights: &[f32], encoded: &Encoded, statistic: &Statistic) -> f64 {
    struct Error<'a>(&'a [f32], &'a Statistic);
    impl Compiled for Error<'_> {
        type Output = f64;
        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f64 {
            let Self(d, statistic) = self;
            let rows = d.len() / statistic.cols;
            let (mut first, mut total) = (0, 0.0);
            // A loop, not a chain of closures: those would be compiled without the instruction set.
            while first < rows {
                for row in quadratic::<FUSED>(&gather(d, statistic.cols, first), &statistic.a) {
                    total += row;
                }
                first += LANES;
            }
            total
        }
    }
    let decoded = encoded.decode(statistic.cols);
    let residual: Vec<f32> = weights.iter().zip(&decoded).map(|(w, q)| w - q).collect();
    compiled_for(isa, Error(&residual, statistic))
}

/// The damped statistic and its factor.
struct Damped {
    a: Vec<f32>,
    diagonal: Vec<f32>,
    u: faer::Mat<f64>,
    u_rows: Vec<f32>,
    damping: f32,
    raised: u32,
}

impl Damped {
    fn new(problem: &Problem<'_>) -> Result<Self, Unsolved> {
        let (statistic, mut damping) = (problem.statistic, problem.recipe.damping);
        for raised in 0..=RAISES {
            let a = statistic.damped(damping);
            match upper_factor(&a, statistic.cols) {
                Ok(u) => {
                    let diagonal = (0..statistic.cols).map(|i| a[i * statistic.cols + i]).collect();
                    let u_rows = narrow(&u);
                    return Ok(Self { a, diagonal, u, u_rows, damping, raised });
                }
                Err(column) if raised == RAISES => return Err(Unsolved::NotPositiveDefinite { column, damping }),
                Err(_) => damping *= 10.0,
            }
        }
        unreachable!("the last round returns")
    }

    /// `W + beta (W (C + damping m I) A^-1 - W)`; `W` itself where nothing is corrected, and in dead columns.
    fn target(&self, problem: &Problem<'_>, dead: &[usize]) -> Vec<f32> {
        let (w, beta, cols) = (problem.weights, problem.recipe.beta, problem.statistic.cols);
        let Some(cross) = problem.statistic.cross.as_ref().filter(|_| beta > 0.0) else { return w.to_vec() };
        let add = self.damping * problem.statistic.mean_diagonal();
        let mut c = cross.clone();
        for i in 0..cols {
            c[i * cols + i] += add;
        }
        let mut target = corrected(w, &c, &self.u);
        for (target, w) in target.chunks_exact_mut(cols).zip(w.chunks_exact(cols)) {
            for (t, &w) in target.iter_mut().zip(w) {
                *t = w + beta * (*t - w);
            }
            for &j in dead {
                target[j] = w[j];
            }
        }
        target
    }
}

/// Sixteen rows of a problem.
struct Block<'a> {
    problem: Problem<'a>,
    damped: &'a Damped,
    dead: &'a [usize],
    weights: Vec<Lane>,
    target: Vec<Lane>,
    twin: Solution,
}

struct BlockSolver<'a> {
    block: Block<'a>,
    facts: &'a mut Facts,
}

impl Compiled for BlockSolver<'_> {
    type Output = Result<Solution, String>;

    #[inline(always)]
    fn run<const FUSED: bool>(self) -> Result<Solution, String> {
        let Self { mut block, facts } = self;
        let (levels, damped) = (block.problem.levels, block.damped);
        block.twin.objective = rows::objective::<FUSED>(&block.target, &damped.a, &block.twin);
        facts.twin_objective += block.twin.objective.iter().sum::<f64>();
        let mut scales = rows::scale_grid::<FUSED>(levels, &block.target, &damped.diagonal);
        zero_groups(&block.weights, &mut scales);
        let codes = rows::gptq::<FUSED>(levels, &block.target, &damped.u_rows, &scales);
        let mut solution = Solution { levels: codes, scales, objective: [0.0; LANES] };
        solution.objective = rows::objective::<FUSED>(&block.target, &damped.a, &solution);
        if block.problem.recipe.solver == Solver::GptqPlain {
            return Ok(solution);
        }
        let mut product = vec![Lane::ZERO; block.target.len()];
        let target: Vec<_> = block.target.iter().copied().enumerate().collect();
        rows::accumulate_blocks::<FUSED>(&target, &damped.a, &mut product);
        improve::<FUSED>(&block, &product, &mut solution, facts)?;
        if (0..LANES).any(|l| solution.objective[l] >= block.twin.objective[l] && block.twin.objective[l] > 0.0) {
            let mut other = block.twin.clone();
            improve::<FUSED>(&block, &product, &mut other, facts)?;
            facts.rows_from_twin += solution.take_better(&other);
        }
        if !block.dead.is_empty() {
            for &j in block.dead {
                solution.levels[j] = levels.nearest(&block.weights[j], &solution.scales[j / GROUP]);
            }
            solution.objective = rows::objective::<FUSED>(&block.target, &damped.a, &solution);
        }
        let above = |l: &usize| solution.objective[*l] > block.twin.objective[*l] * (1.0 + ROUNDING);
        match (0..LANES).find(above) {
            Some(l) => Err(format!(
                "row {l} of a block ends at objective {}, its twin at {}",
                solution.objective[l], block.twin.objective[l]
            )),
            None => Ok(solution),
        }
    }
}

/// Rounds of refit and descent, and a last refit. The objective of no row rises.
#[inline(always)]
fn improve<const FUSED: bool>(
    block: &Block<'_>,
    product: &[Lane],
    solution: &mut Solution,
    facts: &mut Facts,
) -> Result<(), String> {
    let (recipe, a, levels) = (block.problem.recipe, &block.damped.a[..], block.problem.levels);
    for _ in 0..recipe.rounds {
        refit_scales::<FUSED>(block, product, solution, facts);
        let mut trial = solution.clone();
        facts.columns_moved += rows::descend::<FUSED>(levels, (&block.target, a), &mut trial, recipe.sweeps);
        facts.columns_visited += recipe.sweeps * block.target.len();
        trial.objective = rows::objective::<FUSED>(&block.target, a, &trial);
        let risen = |l: &usize| trial.objective[*l] > solution.objective[*l] * (1.0 + ROUNDING);
        if let Some(l) = (0..LANES).find(risen) {
            return Err(format!(
                "a descent raised an objective from {} to {}",
                solution.objective[l], trial.objective[l]
            ));
        }
        solution.take_better(&trial);
    }
    refit_scales::<FUSED>(block, product, solution, facts);
    Ok(())
}

/// One joint refit; rows whose objective would not be lower after rounding keep their scales.
#[inline(always)]
fn refit_scales<const FUSED: bool>(block: &Block<'_>, product: &[Lane], solution: &mut Solution, facts: &mut Facts) {
    let a = &block.damped.a[..];
    let (m, b) = rows::normal_equations::<FUSED>(&solution.levels, a, product);
    let mut trial = solution.clone();
    let mut changed = [false; LANES];
    for l in 0..LANES {
        let row = |values: &[[f64; LANES]]| values.iter().map(|v| v[l]).collect::<Vec<f64>>();
        let old: Vec<f32> = solution.scales.iter().map(|s| s.0[l]).collect();
        let (scales, kept) = refit(&row(&m), &row(&b), &old);
        facts.scales_kept += kept;
        for ((scale, new), old) in trial.scales.iter_mut().zip(scales).zip(old) {
            let rounded = round_f16(new);
            // A scale that rounds to nothing, or beyond f16, is no scale.
            scale.0[l] = if rounded.is_finite() && (rounded > 0.0 || old == 0.0) { rounded } else { old };
            changed[l] |= scale.0[l] != old;
        }
    }
    trial.objective = rows::objective::<FUSED>(&block.target, a, &trial);
    let changed = changed.iter().filter(|&&c| c).count();
    facts.refits_rejected += changed - solution.take_better(&trial).min(changed);
}

/// Groups of zeros have scale 0, whatever the target says.
#[inline(always)]
fn zero_groups(weights: &[Lane], scales: &mut [Lane]) {
    for (w, s) in weights.chunks(GROUP).zip(scales) {
        for l in 0..LANES {
            if w.iter().all(|w| w.0[l] == 0.0) {
                s.0[l] = 0.0;
            }
        }
    }
}
