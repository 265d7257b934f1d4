//! The matrix product: packed weights times f32 activations.
//!
//! The order of a sum: one vector of 16 accumulators per (row, token); column `c` goes to lane `c % 16` by a fused
//! multiply-add (a product and an addition on [`Isa::Scalar`]), columns ascending; then the lanes are added pairwise. A
//! last group that is short is filled up with zeros. One token is computed with weights in registers; several with a
//! tile of decoded weights on the stack that all tokens of a block share. Both give the same bits.

mod rows;
mod tile;
mod vector;

use crate::isa::Isa;
use crate::matrix::{Data, Matrix};
use crate::simd::{LANES, Scalar, Simd, Work};
use core::ops::Range;
use rows::{Bf16, F16, F32, Format, Q2, Q4, Q8, Row, Rows};
use smoe_codec::{Codec, GROUP};

/// Rows of a register tile, at most.
const MAX_ROWS: usize = 4;

/// `out[r, t] = sum over c of matrix[rows.start + r, c] * x[t, c]`, in f32.
///
/// `x` is `[n, cols]`, `out` is `[rows.len(), n]`: chunks of rows are contiguous, so that callers can share the rows
/// among threads. Each sum is within `cols * f32::EPSILON * Σ|w·x|` of the exact one, in one order whatever `n` and
/// `rows` are. A NaN or an infinity in the weights, scales or activations comes out in the sums it belongs to.
///
/// # Panics
/// If `rows` is not within the matrix, or `x` or `out` has another length than the shapes say.
pub fn matmul(isa: Isa, matrix: &Matrix<'_>, rows: Range<usize>, x: &[f32], n: usize, out: &mut [f32]) {
    let (cols, end) = (matrix.cols(), rows.end);
    assert!(rows.start <= end && end <= matrix.rows(), "rows {rows:?} of a matrix of {}", matrix.rows());
    assert_eq!(Some(x.len()), n.checked_mul(cols), "activations of {n} tokens and {cols} columns");
    assert_eq!(Some(out.len()), n.checked_mul(rows.len()), "outputs of {n} tokens and {} rows", rows.len());
    let tails = tails(x, cols);
    let product = Product { matrix, first: rows.start, x, tails: &tails, n, out };
    match isa {
        Isa::Scalar => Scalar.on(product),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(avx2) => avx2.on(product),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(avx512) => avx512.on(product),
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => unreachable!("detected on another architecture"),
    }
}

/// The last, short group of each token, filled up with zeros; none where the columns are whole groups.
fn tails(x: &[f32], cols: usize) -> Vec<[f32; GROUP]> {
    let len = cols % GROUP;
    if len == 0 {
        return Vec::new();
    }
    let rows = x.chunks_exact(cols);
    rows.map(|row| core::array::from_fn(|i| if i < len { row[cols - len + i] } else { 0.0 })).collect()
}

struct Product<'a> {
    matrix: &'a Matrix<'a>,
    first: usize,
    x: &'a [f32],
    tails: &'a [[f32; GROUP]],
    n: usize,
    out: &'a mut [f32],
}

impl Work for Product<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let cols = self.matrix.cols();
        match self.matrix.data() {
            Data::F32(bytes) => self.with(simd, &Rows::<F32>::floats(bytes, cols)),
            Data::F16(bytes) => self.with(simd, &Rows::<F16>::floats(bytes, cols)),
            Data::Bf16(bytes) => self.with(simd, &Rows::<Bf16>::floats(bytes, cols)),
            Data::Coded { codec, codes, scales } => match codec {
                Codec::Q2 => self.with(simd, &Rows::<Q2>::coded(codec, codes, scales, cols)),
                Codec::Q4 => self.with(simd, &Rows::<Q4>::coded(codec, codes, scales, cols)),
                Codec::Q8 => self.with(simd, &Rows::<Q8>::coded(codec, codes, scales, cols)),
            },
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn with<S: Simd, F: Format>(self, simd: S, weights: &Rows<'_, F>) {
        let Self { matrix, first, x, tails, n, out } = self;
        if n == 0 || out.is_empty() {
            return;
        }
        let tokens = Tokens { x, tails, cols: matrix.cols(), n };
        let rows = out.len() / n;
        let several = if n == 1 { MAX_ROWS } else { S::TILE_ROWS };
        let mut r = 0;
        while r < rows {
            let out = &mut out[r * n..];
            // The rows that do not fill a tile go one by one.
            if rows - r < several {
                rows_of::<S, F, 1>(simd, weights, first + r, &tokens, out);
                r += 1;
            } else {
                match several {
                    1 => rows_of::<S, F, 1>(simd, weights, first + r, &tokens, out),
                    2 => rows_of::<S, F, 2>(simd, weights, first + r, &tokens, out),
                    _ => rows_of::<S, F, MAX_ROWS>(simd, weights, first + r, &tokens, out),
                }
                r += several;
            }
        }
    }
}

/// The outputs of `R` rows from `first`, for all tokens.
#[inline(always)]
fn rows_of<S: Simd, F: Format, const R: usize>(
    simd: S,
    weights: &Rows<'_, F>,
    first: usize,
    tokens: &Tokens<'_>,
    out: &mut [f32],
) {
    let rows: [Row<'_, F>; R] = core::array::from_fn(|r| weights.row(first + r));
    if tokens.n == 1 {
        vector::rows(simd, &rows, tokens, out);
    } else {
        tile::rows(simd, &rows, tokens, out);
    }
}

/// The activations: `[n, cols]` and, where the last group is short, `[n, 64]` of it with zeros at the end.
struct Tokens<'a> {
    x: &'a [f32],
    tails: &'a [[f32; GROUP]],
    cols: usize,
    n: usize,
}

impl<'a> Tokens<'a> {
    /// Whole groups of a token, as vectors.
    #[inline(always)]
    fn whole(&self, t: usize) -> &'a [[f32; LANES]] {
        let row = &self.x[t * self.cols..][..self.cols / GROUP * GROUP];
        row.as_chunks::<LANES>().0
    }

    /// The short group of a token, as vectors.
    #[inline(always)]
    fn tail(&self, t: usize) -> &'a [[f32; LANES]] {
        self.tails[t].as_chunks::<LANES>().0
    }

    /// Whether there is a short group.
    #[inline(always)]
    fn has_tail(&self) -> bool {
        !self.tails.is_empty()
    }
}

#[cfg(test)]
mod tests;
