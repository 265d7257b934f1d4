//! Products with activations in eight bits: integer sums, exact in every instruction set.
//!
//! A token's activations have one f32 scale for each group of 64 columns ([`Int8`]). Within a group the products of codes
//! and activations are summed in integers, lane by lane; the lanes are scaled and added in f32 in one fixed order. The
//! integers are exact and the order is the same everywhere, so every instruction set gives the same bits, and the plain
//! Rust one ([`scalar`]) is the definition.
//!
//! With codes `c`, activations `q` and the scales `s` of the weights and `d` of the activations, a group of `smoe-q4`
//! adds `s d (sum c q - 7.5 sum q) / 7.5`; `smoe-q2` has 1.5 in place of 7.5, and `q8` is `s d sum c q`. The second sum
//! depends on the token alone: it is made with the activations.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod kind;
mod lanes;
mod scalar;
#[cfg(test)]
mod tests;
mod tile;

pub use activations::Int8;

use crate::isa::Isa;
use crate::matrix::{Data, Matrix};
use core::ops::Range;
use kind::{Q2, Q4, Q8};
use lanes::{Ints, Work};
use scalar::Scalar;
use smoe_codec::Codec;
use tile::{Packed, product};

/// How far a product with eight-bit activations may be from the exact one: the root of the summed squares of the
/// differences, relative to that of the exact outputs, for Gaussian weights and activations. Half a step of 1/127 of the
/// largest of 64 values in each place comes to about 0.007 of its magnitude.
pub const DRIFT: f32 = 1e-2;

/// `out[r, t] = sum over c of matrix[rows.start + r, c] * x[t, c]`, with the activations as `x` has rounded them.
///
/// `out` is `[rows.len(), x.tokens()]`. The same bits on every instruction set, whatever `rows` and the tokens beside
/// one. A scale that is no number comes out in the sums it belongs to.
///
/// # Panics
/// If `rows` is not within the matrix, the matrix is not packed in the codec that `x` was made for, or `x` or `out` has
/// another length than the shapes say.
pub fn matmul_int8(isa: Isa, matrix: &Matrix<'_>, rows: Range<usize>, x: &Int8, out: &mut [f32]) {
    let end = rows.end;
    assert!(rows.start <= end && end <= matrix.rows(), "rows {rows:?} of a matrix of {}", matrix.rows());
    assert_eq!(x.cols(), matrix.cols(), "columns of the activations and of the matrix");
    assert_eq!(Some(out.len()), x.tokens().checked_mul(rows.len()), "outputs of {} rows", rows.len());
    let Data::Coded { codec, codes, scales } = matrix.data() else { panic!("a matrix of plain numbers has no codes") };
    assert_eq!(codec, x.codec(), "the codec that the activations were made for");
    let packed = Packed::new(codec, codes, scales, matrix.cols());
    let job = Job { codec, packed, first: rows.start, x, out };
    match isa {
        Isa::Scalar => Scalar.on(job),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(avx2) => avx2.on(job),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(avx512) => match avx512.vnni() {
            Some(vnni) => vnni.on(job),
            None => avx512.on(job),
        },
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => unreachable!("detected on another architecture"),
    }
}

struct Job<'a> {
    codec: Codec,
    packed: Packed<'a>,
    first: usize,
    x: &'a Int8,
    out: &'a mut [f32],
}

impl Work for Job<'_> {
    #[inline(always)]
    fn run<L: Ints>(self, ints: L) {
        let Self { codec, packed, first, x, out } = self;
        match codec {
            Codec::Q2 => product::<L, Q2>(ints, &packed, first, x, out),
            Codec::Q4 => product::<L, Q4>(ints, &packed, first, x, out),
            Codec::Q8 => product::<L, Q8>(ints, &packed, first, x, out),
        }
    }
}
