//! What the kernels need of an instruction set: vectors of 16 floats, and groups of 64 packed weights decoded into
//! four of them.
//!
//! An implementor is a proof that the CPU has the instructions, so the methods are safe. They and everything generic
//! over them are inlined into the functions that [`on`](Simd::on) compiles for the instruction set. No closure may call
//! a vector method: nothing forces a closure to be inlined, and one that is not calls a function for each instruction.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use smoe_codec::GROUP;

pub(crate) use scalar::Scalar;

/// Floats in a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// Vectors in a group.
pub(crate) const STEPS: usize = GROUP / LANES;

/// 16 floats in memory, on a cache line of their own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Lane(pub(crate) [f32; LANES]);

impl Lane {
    pub(crate) const ZERO: Self = Self([0.0; LANES]);

    /// The lanes added pairwise, halves first: the one order in which every instruction set ends a sum.
    #[inline(always)]
    pub(crate) fn sum(&self) -> f32 {
        let mut lanes = self.0;
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// Vectors of [`LANES`] floats. Scales are f16 bits.
pub(crate) trait Simd: Copy {
    /// The vector.
    type V: Copy;

    /// Rows and tokens of a register tile.
    const TILE_ROWS: usize;

    /// Runs `work` compiled for this instruction set.
    fn on<W: Work>(self, work: W);

    fn zero(self) -> Self::V;
    fn load(self, x: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, out: &mut [f32; LANES]);
    /// `w * x + sum`, rounded once where the hardware can.
    fn fma(self, w: Self::V, x: Self::V, sum: Self::V) -> Self::V;

    fn f32(self, bytes: &[u8; 4 * GROUP]) -> [Self::V; STEPS];
    fn f16(self, bytes: &[u8; 2 * GROUP]) -> [Self::V; STEPS];
    fn bf16(self, bytes: &[u8; 2 * GROUP]) -> [Self::V; STEPS];
    fn q2(self, codes: &[u8; GROUP / 4], scale: u16) -> [Self::V; STEPS];
    fn q4(self, codes: &[u8; GROUP / 2], scale: u16) -> [Self::V; STEPS];
    fn q8(self, codes: &[u8; GROUP], scale: u16) -> [Self::V; STEPS];
}

/// A computation that is generic over the instruction set; `run` must be inlined always.
pub(crate) trait Work {
    fn run<S: Simd>(self, simd: S);
}
