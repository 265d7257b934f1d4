//! The 4-bit codec `smoe-q4` (FORMAT.md): 64 weights in 32 bytes of codes and one f16 scale.
//!
//! Byte `i` of a row has weight `2 i` in its low and `2 i + 1` in its high nibble. weight = `(c - 7.5) / 7.5 * s`; the
//! magnitudes of the levels are `0.5, 1.5, ... 7.5` steps of `s / 7.5`.
//!
//! The scale is the candidate of least squared error among the f16 nearest to `linspace(0.1, 1.0, 64) * absmax`, the
//! first of equals. Errors are measured in steps against the nearest level, in f32, weight after weight.

use crate::half::round_f16;
use crate::uniform::Uniform;

pub(crate) const UNIFORM: Uniform = Uniform::new(4);

/// Candidates of the scale search.
pub const CANDIDATES: usize = 64;

/// The candidates as shares of the group's largest magnitude, ascending.
pub const SHARES: [f32; CANDIDATES] = {
    let mut shares = [0.0; CANDIDATES];
    let mut i = 0;
    while i < CANDIDATES {
        shares[i] = (0.1 + 0.9 * i as f64 / (CANDIDATES - 1) as f64) as f32;
        i += 1;
    }
    shares
};

/// The weight of each code under scale 1. A weight is this product with the scale, in f32.
pub const LEVELS: [f32; 16] = UNIFORM.levels();

/// The code of weight `w` under scale `s > 0`.
#[must_use]
pub fn code(w: f32, s: f32) -> u8 {
    UNIFORM.code(w, s)
}

/// The scale of a group of finite weights below 65520: an f16 value, 0 where every candidate above it is worse.
#[must_use]
pub fn scale(group: &[f32]) -> f32 {
    let absmax = group.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let (mut best_error, mut best) = (f32::INFINITY, 0.0);
    for share in SHARES {
        let s = round_f16(share * absmax);
        let error = error(group, s);
        if error < best_error {
            (best_error, best) = (error, s);
        }
    }
    best
}

/// The squared error of a group under scale `s`, times 7.5 squared.
fn error(group: &[f32], s: f32) -> f32 {
    if s == 0.0 {
        return group.iter().fold(0.0, |sum, w| sum + w * w) * (7.5 * 7.5);
    }
    let steps_per_unit = 7.5 / s;
    group.iter().fold(0.0, |sum, w| sum + miss(w.abs() * steps_per_unit)) * (s * s)
}

/// The squared distance of a magnitude, in steps, to the nearest level.
#[inline(always)]
#[must_use]
pub fn miss(steps: f32) -> f32 {
    // Levels are at 0.5, 1.5, ... 7.5: integers from here on. Adding 1.5 * 2^23 rounds to an integer, as every CPU can.
    const ROUND: f32 = 12_582_912.0;
    let shifted = steps - 0.5;
    let nearest = (shifted + ROUND) - ROUND;
    let distance = shifted - if nearest < 7.0 { nearest } else { 7.0 };
    distance * distance
}
