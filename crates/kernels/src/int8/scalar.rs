//! The definition: plain Rust, one lane after the other.

use super::activations::Plane;
use super::lanes::{Ints, Work};
use super::tile::{BLOCK, GROUPS};
use core::array::from_fn;
use smoe_codec::half::f16_to_f32;

/// Needs nothing of the CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scalar;

impl Ints for Scalar {
    type F = [f32; GROUPS];
    type I = [i32; GROUPS];
    type C = [u8; BLOCK];
    type S = [f32; GROUPS];

    const ROWS: [usize; 2] = [1, 1];

    fn on<W: Work>(self, work: W) {
        work.run(self);
    }

    fn prefetch(self, _: &[u8; BLOCK], _: usize) {}

    fn zero(self) -> Self::F {
        [0.0; GROUPS]
    }

    fn load(self, x: &[f32; GROUPS]) -> Self::F {
        *x
    }

    fn store(self, v: Self::F) -> [f32; GROUPS] {
        v
    }

    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }

    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    fn halves(self, bytes: &[u8; 2 * GROUPS]) -> Self::F {
        from_fn(|i| f16_to_f32(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])))
    }

    fn spreadable(self, v: Self::F) -> Self::S {
        v
    }

    fn spread<const PER: usize>(self, v: &Self::S, block: usize) -> Self::F {
        from_fn(|i| v[block * PER + i / (GROUPS / PER)])
    }

    fn float(self, v: Self::I) -> Self::F {
        from_fn(|i| v[i] as f32)
    }

    fn bytes(self, block: &[u8; BLOCK]) -> Self::C {
        *block
    }

    fn nibbles(self, block: &[u8; BLOCK]) -> [Self::C; 2] {
        from_fn(|plane| from_fn(|i| block[i] >> (4 * plane) & 15))
    }

    fn pairs(self, block: &[u8; BLOCK]) -> [Self::C; 4] {
        from_fn(|plane| from_fn(|i| block[i] >> (2 * plane) & 3))
    }

    fn dot_planes<const P: usize>(self, codes: &[Self::C; P], x: &[Plane; P]) -> Self::I {
        let mut sums = [0; GROUPS];
        for (codes, x) in codes.iter().zip(x) {
            for (i, (c, q)) in codes.iter().zip(&x.0).enumerate() {
                sums[i / 4] += i32::from(*c) * i32::from(*q);
            }
        }
        sums
    }

    fn dot_signed(self, codes: Self::C, x: &Plane) -> Self::I {
        let mut sums = [0; GROUPS];
        for (i, (c, q)) in codes.iter().zip(&x.0).enumerate() {
            sums[i / 4] += i32::from(*c as i8) * i32::from(*q);
        }
        sums
    }
}
