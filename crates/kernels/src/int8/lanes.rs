//! What the integer products need of an instruction set. As in `simd`: implementors are proofs, methods are inlined, and
//! no closure may call one.

use super::activations::Plane;
use super::tile::{BLOCK, GROUPS};

/// Vectors of 64 bytes, of 16 integers and of 16 floats.
pub(super) trait Ints: Copy {
    /// 16 floats.
    type F: Copy;
    /// 16 integers; lane `i` is the sum over bytes `4 i .. 4 i + 4`.
    type I: Copy;
    /// 64 codes.
    type C: Copy;
    /// 16 floats of which single ones are spread.
    type S: Copy;

    /// Rows that are computed side by side with one token, and with several.
    const ROWS: [usize; 2];

    fn on<W: Work>(self, work: W);

    /// Asks for the bytes at `ahead` from these on, which may lie anywhere.
    fn prefetch(self, bytes: &[u8; BLOCK], ahead: usize);
    fn zero(self) -> Self::F;
    fn load(self, x: &[f32; GROUPS]) -> Self::F;
    fn store(self, v: Self::F) -> [f32; GROUPS];
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// 16 f16.
    fn halves(self, bytes: &[u8; 2 * GROUPS]) -> Self::F;
    fn spreadable(self, v: Self::F) -> Self::S;
    /// Float `block * PER + i / (16 / PER)` in lane `i`.
    fn spread<const PER: usize>(self, v: &Self::S, block: usize) -> Self::F;
    fn float(self, v: Self::I) -> Self::F;

    /// The bytes.
    fn bytes(self, block: &[u8; BLOCK]) -> Self::C;
    /// The low and the high nibbles.
    fn nibbles(self, block: &[u8; BLOCK]) -> [Self::C; 2];
    /// Bits 0 and 1, 2 and 3, 4 and 5, 6 and 7.
    fn pairs(self, block: &[u8; BLOCK]) -> [Self::C; 4];
    /// Sums of products of codes of at most 15 with activations of at most 127 in magnitude, all planes together.
    fn dot_planes<const P: usize>(self, codes: &[Self::C; P], x: &[Plane; P]) -> Self::I;
    /// Sums of products of signed bytes with activations of at most 127 in magnitude.
    fn dot_signed(self, codes: Self::C, x: &Plane) -> Self::I;
}

/// A computation that is generic over the instruction set; `run` must be inlined always.
pub(super) trait Work {
    fn run<L: Ints>(self, ints: L);
}
