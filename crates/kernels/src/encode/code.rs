//! Codes of a group under its scale, packed.

use super::{Group, Output};
use smoe_codec::GROUP;

/// Added to an integer-sized float, it rounds to the nearest integer, ties to even, which is then in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// The packed codes of a uniform codec of `BITS` bits: `clamp(round_ties_even((w / s) * m + m), 0, 2 m)`.
///
/// Clamping comes first here, which is the same since the bounds are integers.
#[inline(always)]
pub(super) fn uniform<const BITS: usize>(group: &Group, s: f32, mut out: Output<'_>) {
    out.scale(s);
    if s == 0.0 {
        out.codes.fill(0);
        return;
    }
    let m = ((1 << BITS) - 1) as f32 / 2.0;
    let mut codes = [0u8; GROUP];
    for (c, w) in codes.iter_mut().zip(&group.w) {
        *c = low_byte(clamp((w / s) * m + m, 0.0, 2.0 * m));
    }
    for c in &mut codes[group.len..] {
        *c = 0;
    }
    let mut packed = [0; GROUP / 2];
    for (bytes, codes) in packed.chunks_exact_mut(BITS).zip(codes.as_chunks::<8>().0) {
        bytes.copy_from_slice(&pack::<BITS>(u64::from_le_bytes(*codes)).to_le_bytes()[..BITS]);
    }
    out.codes.copy_from_slice(&packed[..out.codes.len()]);
}

/// The codes of q8: `clamp(round_ties_even(w / s), -127, 127)` as bytes.
#[inline(always)]
pub(super) fn signed(w: &[f32; GROUP], s: f32) -> [u8; GROUP] {
    let max = smoe_codec::q8::MAX_CODE;
    let mut codes = [0; GROUP];
    for (c, w) in codes.iter_mut().zip(w) {
        *c = low_byte(clamp(w / s, -max, max));
    }
    codes
}

/// The nearest integer of a value within +-2^21, ties to even, as a byte.
#[inline(always)]
fn low_byte(value: f32) -> u8 {
    (value + ROUND).to_bits() as u8
}

#[inline(always)]
pub(super) fn clamp(value: f32, low: f32, high: f32) -> f32 {
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}

/// Eight codes of `BITS` bits, one a byte, moved together.
#[inline(always)]
fn pack<const BITS: usize>(codes: u64) -> u32 {
    let step = |x: u64, width: usize, mask: u64| (x | x >> (8 * width - BITS * width)) & mask;
    let field = |bits: usize, every: usize| {
        let mut mask = 0;
        let mut at = 0;
        while at < 64 {
            mask |= ((1 << bits) - 1) << at;
            at += every;
        }
        mask
    };
    let pairs = step(codes, 1, field(2 * BITS, 16));
    let fours = step(pairs, 2, field(4 * BITS, 32));
    (fours | fours >> (32 - 4 * BITS)) as u32 & (u32::MAX >> (32 - 8 * BITS))
}
