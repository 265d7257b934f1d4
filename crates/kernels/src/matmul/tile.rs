//! Several tokens: a few groups of a few rows are decoded onto the stack, and all tokens of a block use them.

use super::rows::{Format, Row};
use super::{GROUP, LANES, MAX_ROWS, Tokens};
use crate::simd::{Lane, STEPS, Simd};

/// Tokens that share the decoding of a tile: their activations should stay in the second-level cache.
const BLOCK_TOKENS: usize = 64;

/// Groups of a row that are decoded at once: with 4 rows 4 KiB.
const TILE_GROUPS: usize = 4;

/// Vectors of one row in a decoded tile.
const TILE_STEPS: usize = TILE_GROUPS * STEPS;

/// Decoded weights, `[R, TILE_STEPS]` vectors.
type Tile<const R: usize> = [[Lane; TILE_STEPS]; R];

/// Accumulators of a block, `[BLOCK_TOKENS, MAX_ROWS]` vectors.
type Sums = [[Lane; MAX_ROWS]; BLOCK_TOKENS];

/// The outputs of `R` rows for all tokens.
#[inline(always)]
pub(super) fn rows<S: Simd, F: Format, const R: usize>(
    simd: S,
    rows: &[Row<'_, F>; R],
    tokens: &Tokens<'_>,
    out: &mut [f32],
) {
    let mut tile: Tile<R> = [[Lane::ZERO; TILE_STEPS]; R];
    let mut sums: Sums = [[Lane::ZERO; MAX_ROWS]; BLOCK_TOKENS];
    let groups = tokens.cols / GROUP;
    for start in (0..tokens.n).step_by(BLOCK_TOKENS) {
        let sums = &mut sums[..BLOCK_TOKENS.min(tokens.n - start)];
        sums.fill([Lane::ZERO; MAX_ROWS]);
        for g in (0..groups).step_by(TILE_GROUPS) {
            let count = TILE_GROUPS.min(groups - g);
            for (tile, row) in tile.iter_mut().zip(rows) {
                for (i, group) in tile.as_chunks_mut::<STEPS>().0[..count].iter_mut().enumerate() {
                    store(simd, row.group(simd, g + i), group);
                }
            }
            block(simd, &tile, |t| &tokens.whole(start + t)[g * STEPS..][..count * STEPS], sums);
        }
        if tokens.has_tail() {
            for (tile, row) in tile.iter_mut().zip(rows) {
                store(simd, row.tail(simd, groups), &mut tile.as_chunks_mut::<STEPS>().0[0]);
            }
            block(simd, &tile, |t| tokens.tail(start + t), sums);
        }
        for (t, sums) in sums.iter().enumerate() {
            for (r, sum) in sums[..R].iter().enumerate() {
                out[r * tokens.n + start + t] = sum.sum();
            }
        }
    }
}

#[inline(always)]
fn store<S: Simd>(simd: S, group: [S::V; STEPS], out: &mut [Lane; STEPS]) {
    for (v, out) in group.into_iter().zip(out) {
        simd.store(v, &mut out.0);
    }
}

/// Adds the products of a tile to the sums of a block; `x` gives the vectors of a token that belong to the tile.
#[inline(always)]
fn block<'a, S: Simd, const R: usize>(
    simd: S,
    tile: &Tile<R>,
    x: impl Fn(usize) -> &'a [[f32; LANES]],
    sums: &mut [[Lane; MAX_ROWS]],
) {
    let mut t = 0;
    while t < sums.len() {
        let left = sums.len() - t;
        let rest = &mut sums[t..];
        t += match S::TILE_ROWS {
            4 if left >= 6 => registers::<S, R, 6>(simd, tile, |i| x(t + i), rest),
            2.. if left >= 3 => registers::<S, R, 3>(simd, tile, |i| x(t + i), rest),
            _ => registers::<S, R, 1>(simd, tile, |i| x(t + i), rest),
        };
    }
}

/// `R` rows and `T` tokens with all accumulators in registers. Returns `T`.
#[inline(always)]
fn registers<'a, S: Simd, const R: usize, const T: usize>(
    simd: S,
    tile: &Tile<R>,
    x: impl Fn(usize) -> &'a [[f32; LANES]],
    sums: &mut [[Lane; MAX_ROWS]],
) -> usize {
    let x: [&[[f32; LANES]]; T] = core::array::from_fn(x);
    let mut acc: [[S::V; R]; T] = core::array::from_fn(|t| core::array::from_fn(|r| simd.load(&sums[t][r].0)));
    let steps = x[0].len().min(TILE_STEPS);
    let x = x.map(|x| &x[..steps]);
    for k in 0..steps {
        let w: [S::V; R] = core::array::from_fn(|r| simd.load(&tile[r][k].0));
        for t in 0..T {
            let x = simd.load(&x[t][k]);
            for r in 0..R {
                acc[t][r] = simd.fma(w[r], x, acc[t][r]);
            }
        }
    }
    for t in 0..T {
        for r in 0..R {
            simd.store(acc[t][r], &mut sums[t][r].0);
        }
    }
    T
}
