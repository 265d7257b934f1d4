//! Several tokens: a few groups of a few rows are decoded onto the stack, and all tokens of a block use them.

use super::rows::{Format, Row};
use super::{GROUP, LANES, MAX_ROWS, Tokens};
use crate::simd::{Lane, STEPS, Simd, Work};
use core::ops::Range;

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
            let part = Part::Whole(g * STEPS..(g + count) * STEPS);
            simd.on(Block { tile: &tile, tokens, start, part, sums });
        }
        if tokens.has_tail() {
            for (tile, row) in tile.iter_mut().zip(rows) {
                store(simd, row.tail(simd, groups), &mut tile.as_chunks_mut::<STEPS>().0[0]);
            }
            simd.on(Block { tile: &tile, tokens, start, part: Part::Tail, sums });
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

/// The vectors of a token that a tile belongs to.
enum Part {
    /// Of its whole groups, those of this range.
    Whole(Range<usize>),
    /// Its short group.
    Tail,
}

/// Adds the products of a tile to the sums of the tokens from `start`. Work of its own, so that it is compiled once for
/// all formats.
struct Block<'a, const R: usize> {
    tile: &'a Tile<R>,
    tokens: &'a Tokens<'a>,
    start: usize,
    part: Part,
    sums: &'a mut [[Lane; MAX_ROWS]],
}

impl<const R: usize> Work for Block<'_, R> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { tile, tokens, start, part, sums } = self;
        let x = |t: usize| match &part {
            Part::Whole(range) => &tokens.whole(start + t)[range.clone()],
            Part::Tail => tokens.tail(start + t),
        };
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
    let steps = x[0].len().min(TILE_STEPS);
    let x = x.map(|x| &x[..steps]);
    let mut acc = [[simd.zero(); R]; T];
    for t in 0..T {
        for r in 0..R {
            acc[t][r] = simd.load(&sums[t][r].0);
        }
    }
    for k in 0..steps {
        let mut w = [simd.zero(); R];
        for r in 0..R {
            w[r] = simd.load(&tile[r][k].0);
        }
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
