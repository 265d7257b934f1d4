//! The solver's four steps on sixteen rows: weighted scale grid, GPTQ sweep, coordinate descent, joint refit of scales.
//!
//! `w` is the target of the rows, `codes` their levels under scale 1, `scales` one lane a group. All are plain loops
//! over lanes, compiled for the instruction set by `compiled_for`.

use super::lanes::{BLOCK, LANES, Lane, accumulate, fma, quadratic};
use super::levels::Levels;
use smoe_codec::GROUP;
use smoe_codec::half::round_f16;
use smoe_codec::q4::SHARES;

/// The largest f16.
const F16_MAX: f32 = 65504.0;

/// A solution for sixteen rows.
#[derive(Debug, Clone)]
pub(crate) struct Solution {
    /// `[cols]` levels under scale 1.
    pub(crate) levels: Vec<Lane>,
    /// `[groups]` f16 values.
    pub(crate) scales: Vec<Lane>,
    /// Of each row.
    pub(crate) objective: [f64; LANES],
}

impl Solution {
    /// `target - decoded`.
    #[inline(always)]
    pub(crate) fn residual(&self, w: &[Lane]) -> Vec<Lane> {
        let mut out = w.to_vec();
        for ((out, levels), s) in out.chunks_mut(GROUP).zip(self.levels.chunks(GROUP)).zip(&self.scales) {
            for (out, level) in out.iter_mut().zip(levels) {
                for l in 0..LANES {
                    out.0[l] -= level.0[l] * s.0[l];
                }
            }
        }
        out
    }

    /// Takes the rows of `other` whose objective is lower; returns how many.
    pub(crate) fn take_better(&mut self, other: &Self) -> usize {
        let mut taken = 0;
        for l in 0..LANES {
            if other.objective[l] < self.objective[l] {
                taken += 1;
                self.objective[l] = other.objective[l];
                copy_lane(l, &other.levels, &mut self.levels);
                copy_lane(l, &other.scales, &mut self.scales);
            }
        }
        taken
    }
}

fn copy_lane(l: usize, from: &[Lane], to: &mut [Lane]) {
    for (to, from) in to.iter_mut().zip(from) {
        to.0[l] = from.0[l];
    }
}

/// The scale of each group: of 64 shares of its largest magnitude the one of least squared error weighted by `diag`.
#[inline(always)]
pub(crate) fn scale_grid<const FUSED: bool>(levels: Levels, w: &[Lane], diag: &[f32]) -> Vec<Lane> {
    let mut scales = Vec::with_capacity(w.len().div_ceil(GROUP));
    for (w, diag) in w.chunks(GROUP).zip(diag.chunks(GROUP)) {
        let mut absmax = Lane::ZERO;
        for w in w {
            for l in 0..LANES {
                absmax.0[l] = absmax.0[l].max(w.0[l].abs());
            }
        }
        let (mut best, mut least) = (Lane::ZERO, Lane([f32::INFINITY; LANES]));
        for share in SHARES {
            let s = Lane(absmax.0.map(|a| round_f16((share * a).min(F16_MAX))));
            let mut error = Lane::ZERO;
            for (w, &weight) in w.iter().zip(diag) {
                let level = levels.nearest(w, &s);
                for l in 0..LANES {
                    let miss = w.0[l] - level.0[l] * s.0[l];
                    error.0[l] = fma::<FUSED>(miss * miss, weight, error.0[l]);
                }
            }
            for l in 0..LANES {
                let better = error.0[l] < least.0[l];
                least.0[l] = if better { error.0[l] } else { least.0[l] };
                best.0[l] = if better { s.0[l] } else { best.0[l] };
            }
        }
        scales.push(best);
    }
    scales
}

/// The GPTQ sweep (Frantar et al. 2022): columns in their order, each error spread over the columns after it by the
/// upper factor `u` of the inverse statistic.
#[inline(always)]
pub(crate) fn gptq<const FUSED: bool>(levels: Levels, w: &[Lane], u: &[f32], scales: &[Lane]) -> Vec<Lane> {
    let cols = w.len();
    let mut w = w.to_vec();
    let mut out = Vec::with_capacity(cols);
    let mut errors = Vec::with_capacity(BLOCK);
    for start in (0..cols).step_by(BLOCK) {
        let end = (start + BLOCK).min(cols);
        errors.clear();
        for j in start..end {
            let (row, s) = (&u[j * cols..][..cols], &scales[j / GROUP]);
            let level = levels.nearest(&w[j], s);
            let (mut error, pivot) = (Lane::ZERO, row[j]);
            for l in 0..LANES {
                error.0[l] = (level.0[l] * s.0[l] - w[j].0[l]) / pivot;
            }
            out.push(level);
            for (w, &x) in w[j + 1..end].iter_mut().zip(&row[j + 1..end]) {
                for l in 0..LANES {
                    w.0[l] = fma::<FUSED>(error.0[l], x, w.0[l]);
                }
            }
            errors.push((j, error));
        }
        accumulate::<FUSED>(&errors, (u, cols), end..cols, &mut w);
    }
    out
}

/// Coordinate descent on the codes under the whole statistic `a`, `sweeps` times over the columns. Returns how many
/// columns changed in some row. `solution.objective` is left as it was.
#[inline(always)]
pub(crate) fn descend<const FUSED: bool>(
    levels: Levels,
    (w, a): (&[Lane], &[f32]),
    solution: &mut Solution,
    sweeps: usize,
) -> usize {
    let cols = w.len();
    let residual: Vec<_> = solution.residual(w).into_iter().enumerate().collect();
    let mut gradient = vec![Lane::ZERO; cols];
    accumulate_blocks::<FUSED>(&residual, a, &mut gradient);
    let (mut moved, mut changes) = (0, Vec::with_capacity(BLOCK));
    for _ in 0..sweeps {
        for start in (0..cols).step_by(BLOCK) {
            let end = (start + BLOCK).min(cols);
            changes.clear();
            for j in start..end {
                let row = &a[j * cols..][..cols];
                let Some(change) = step(levels, (j, row[j]), solution, &gradient[j]) else { continue };
                for (g, &x) in gradient[start..end].iter_mut().zip(&row[start..end]) {
                    for l in 0..LANES {
                        g.0[l] = fma::<FUSED>(change.0[l], x, g.0[l]);
                    }
                }
                changes.push((j, change));
            }
            moved += changes.len();
            if !changes.is_empty() {
                accumulate::<FUSED>(&changes, (a, cols), 0..start, &mut gradient);
                accumulate::<FUSED>(&changes, (a, cols), end..cols, &mut gradient);
            }
        }
    }
    moved
}

/// Moves column `j` to its best level; the change of the residual, or `None` where no row moved.
#[inline(always)]
fn step(levels: Levels, (j, diag): (usize, f32), solution: &mut Solution, gradient: &Lane) -> Option<Lane> {
    let (s, old) = (&solution.scales[j / GROUP], solution.levels[j]);
    let mut best = Lane::ZERO;
    for l in 0..LANES {
        best.0[l] = old.0[l] * s.0[l] + gradient.0[l] / diag;
    }
    let level = levels.nearest(&best, s);
    let (mut change, mut any) = (Lane::ZERO, 0.0f32);
    for l in 0..LANES {
        change.0[l] = old.0[l] * s.0[l] - level.0[l] * s.0[l];
        any = any.max(change.0[l].abs());
    }
    if any == 0.0 {
        return None;
    }
    solution.levels[j] = level;
    Some(change)
}

/// [`accumulate`] over all columns, block by block, so that a block of `a` stays in the cache.
#[inline(always)]
pub(crate) fn accumulate_blocks<const FUSED: bool>(changes: &[(usize, Lane)], a: &[f32], out: &mut [Lane]) {
    let cols = out.len();
    for changes in changes.chunks(BLOCK) {
        accumulate::<FUSED>(changes, (a, cols), 0..cols, out);
    }
}

/// The normal equations of the group scales of each row, given the codes: `m s = b` with
/// `m[k, i] = sum over the columns of groups k and i of level * a * level`, `b[k] = sum over group k of level * (w a)`.
#[inline(always)]
pub(crate) fn normal_equations<const FUSED: bool>(
    levels: &[Lane],
    a: &[f32],
    target: &[Lane],
) -> (Vec<[f64; LANES]>, Vec<[f64; LANES]>) {
    let cols = levels.len();
    let groups = cols.div_ceil(GROUP);
    let (mut m, mut b) = (vec![[0.0; LANES]; groups * groups], vec![[0.0; LANES]; groups]);
    let mut product = vec![Lane::ZERO; cols];
    for k in 0..groups {
        let (start, end) = (k * GROUP, ((k + 1) * GROUP).min(cols));
        let own: Vec<_> = (start..end).map(|j| (j, levels[j])).collect();
        product[..end].fill(Lane::ZERO);
        accumulate::<FUSED>(&own, (a, cols), 0..end, &mut product);
        for i in 0..=k {
            let columns = i * GROUP..((i + 1) * GROUP).min(end);
            m[k * groups + i] = inner(&product[columns.clone()], &levels[columns]);
        }
        b[k] = inner(&target[start..end], &levels[start..end]);
    }
    (m, b)
}

#[inline(always)]
fn inner(x: &[Lane], y: &[Lane]) -> [f64; LANES] {
    let mut sum = [0.0; LANES];
    for (x, y) in x.iter().zip(y) {
        for (sum, (&x, &y)) in sum.iter_mut().zip(x.0.iter().zip(&y.0)) {
            *sum += f64::from(x) * f64::from(y);
        }
    }
    sum
}

/// The objective of each row of `solution`.
#[inline(always)]
pub(crate) fn objective<const FUSED: bool>(w: &[Lane], a: &[f32], solution: &Solution) -> [f64; LANES] {
    quadratic::<FUSED>(&solution.residual(w), a)
}
