//! The vectors in plain Rust, decoding by the definitions of `smoe_codec`.

use super::{LANES, STEPS, Simd, Work};
use smoe_codec::{Codec, GROUP, decode_row, half};

/// Needs nothing of the CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scalar;

type Group = [[f32; LANES]; STEPS];

fn group(weight: impl Fn(usize) -> f32) -> Group {
    core::array::from_fn(|step| core::array::from_fn(|lane| weight(step * LANES + lane)))
}

fn decode(codec: Codec, codes: &[u8], scale: u16) -> Group {
    let mut weights = [0.0; GROUP];
    decode_row(codec, codes, &scale.to_le_bytes(), &mut weights);
    group(|i| weights[i])
}

impl Simd for Scalar {
    type V = [f32; LANES];

    const TILE_ROWS: usize = 1;

    fn on<W: Work>(self, work: W) {
        work.run(self);
    }

    fn zero(self) -> Self::V {
        [0.0; LANES]
    }

    fn load(self, x: &[f32; LANES]) -> Self::V {
        *x
    }

    fn store(self, v: Self::V, out: &mut [f32; LANES]) {
        *out = v;
    }

    fn fma(self, w: Self::V, x: Self::V, sum: Self::V) -> Self::V {
        core::array::from_fn(|i| w[i] * x[i] + sum[i])
    }

    fn f32(self, bytes: &[u8; 4 * GROUP]) -> Group {
        let words = bytes.as_chunks::<4>().0;
        group(|i| f32::from_le_bytes(words[i]))
    }

    fn f16(self, bytes: &[u8; 2 * GROUP]) -> Group {
        let words = bytes.as_chunks::<2>().0;
        group(|i| half::f16_to_f32(u16::from_le_bytes(words[i])))
    }

    fn bf16(self, bytes: &[u8; 2 * GROUP]) -> Group {
        let words = bytes.as_chunks::<2>().0;
        group(|i| half::bf16_to_f32(u16::from_le_bytes(words[i])))
    }

    fn q2(self, codes: &[u8; GROUP / 4], scale: u16) -> Group {
        decode(Codec::Q2, codes, scale)
    }

    fn q4(self, codes: &[u8; GROUP / 2], scale: u16) -> Group {
        decode(Codec::Q4, codes, scale)
    }

    fn q8(self, codes: &[u8; GROUP], scale: u16) -> Group {
        decode(Codec::Q8, codes, scale)
    }
}
