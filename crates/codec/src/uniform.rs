//! The core that the uniform codecs share: `2^bits` equally spaced levels from `-s` to `s`, without a zero.
//!
//! weight = `(c - m) / m * s` with `m = (2^bits - 1) / 2`; c = `clamp(round_ties_even((w / s) * m + m), 0, 2 m)`, in
//! f32, in this order, without fused multiply-add or reciprocal. Codes are packed lowest bits first.

use crate::error::{EncodeError, largest};
use crate::half::{F16_OVERFLOW, f16_to_f32, f32_to_f16};
use crate::{GROUP, SCALE_BYTES};

/// A uniform codec of `bits` bits a code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uniform {
    bits: usize,
    m: f32,
}

impl Uniform {
    pub(crate) const fn new(bits: usize) -> Self {
        Self { bits, m: ((1 << bits) - 1) as f32 / 2.0 }
    }

    /// The code of weight `w` under scale `s > 0`.
    pub(crate) fn code(self, w: f32, s: f32) -> u8 {
        let c = ((w / s) * self.m + self.m).round_ties_even();
        c.clamp(0.0, 2.0 * self.m) as u8
    }

    /// The weight of code `c` under scale 1.
    pub(crate) const fn level(self, c: u8) -> f32 {
        (c as f32 - self.m) / self.m
    }

    /// The weight of code `c` under scale `s`.
    pub(crate) fn weight(self, c: u8, s: f32) -> f32 {
        self.level(c) * s
    }

    /// The levels of the codes `0..N` under scale 1.
    pub(crate) const fn levels<const N: usize>(self) -> [f32; N] {
        let mut levels = [0.0; N];
        let mut c = 0;
        while c < N {
            levels[c] = self.level(c as u8);
            c += 1;
        }
        levels
    }

    /// Encodes a row group by group; `search` gives the scale (an f16 value) of a group that is finite, not all zeros
    /// and below [`F16_OVERFLOW`].
    pub(crate) fn encode_row(
        self,
        w: &[f32],
        search: fn(&[f32]) -> f32,
        codes: &mut [u8],
        scales: &mut [u8],
    ) -> Result<(), EncodeError> {
        codes.fill(0);
        let scales = scales.chunks_exact_mut(SCALE_BYTES);
        for (g, (group, scale)) in w.chunks(GROUP).zip(scales).enumerate() {
            let (col, absmax) = largest(group).map_err(|e| e.offset(g * GROUP))?;
            if absmax >= F16_OVERFLOW {
                return Err(EncodeError::Overflow { col: g * GROUP + col, value: group[col] });
            }
            let s = if absmax == 0.0 { 0.0 } else { search(group) };
            scale.copy_from_slice(&f32_to_f16(s).to_le_bytes());
            if s == 0.0 {
                continue;
            }
            for (i, &w) in group.iter().enumerate() {
                let bit = (g * GROUP + i) * self.bits;
                codes[bit / 8] |= self.code(w, s) << (bit % 8);
            }
        }
        Ok(())
    }

    pub(crate) fn decode_row(self, codes: &[u8], scales: &[u8], out: &mut [f32]) {
        let mask = ((1u32 << self.bits) - 1) as u8;
        let scales = scales.chunks_exact(SCALE_BYTES);
        for (g, (group, scale)) in out.chunks_mut(GROUP).zip(scales).enumerate() {
            let s = f16_to_f32(u16::from_le_bytes([scale[0], scale[1]]));
            if s == 0.0 {
                group.fill(0.0); // Not level * 0, which is -0 for half of the codes.
                continue;
            }
            for (i, w) in group.iter_mut().enumerate() {
                let bit = (g * GROUP + i) * self.bits;
                *w = self.weight(codes[bit / 8] >> (bit % 8) & mask, s);
            }
        }
    }
}
