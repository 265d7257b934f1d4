//! The 2-bit codec `smoe-q2` (FORMAT.md): 64 weights in 16 bytes of codes and one f16 scale.
//!
//! Byte `i` of a row has weights `4 i .. 4 i + 4`, the first in its lowest bits. weight = `(c - 1.5) / 1.5 * s`: the
//! levels are `-s, -s/3, s/3, s`.
//!
//! The scale is optimal among all f16: under a scale, the weights of smallest magnitude take `s/3` and the others `s`.
//! For each of the splits of the sorted magnitudes into small and large, with `A = sum(small)/3 + sum(large)` and
//! `B = n_small/9 + n_large`, the squared error is `sum(w^2) - (2 s A - s^2 B)`: a parabola, best at the f16 nearest to
//! `A/B`. The split with the largest gain `2 s A - s^2 B` wins; no grid of candidates can be better.

use crate::GROUP;
use crate::half::round_f16;
use crate::uniform::Uniform;

pub(crate) const UNIFORM: Uniform = Uniform::new(2);

/// The weight of each code under scale 1. A weight is this product with the scale, in f32.
pub const LEVELS: [f32; 4] = UNIFORM.levels();

/// The code of weight `w` under scale `s > 0`.
#[must_use]
pub fn code(w: f32, s: f32) -> u8 {
    UNIFORM.code(w, s)
}

/// The scale of a group of finite weights below 65520: an f16 value, 0 where every f16 above it is worse.
///
/// Sums run over the ascending magnitudes in f64, so the fast encoder can repeat them exactly.
///
/// # Panics
/// If the group is longer than [`GROUP`].
#[must_use]
pub fn scale(group: &[f32]) -> f32 {
    let mut sorted = [0.0f32; GROUP];
    let sorted = &mut sorted[..group.len()];
    for (a, w) in sorted.iter_mut().zip(group) {
        *a = w.abs();
    }
    sorted.sort_unstable_by(f32::total_cmp);
    let total = sorted.iter().fold(0.0, |sum, &a| sum + f64::from(a));
    let (mut small_sum, mut best_gain, mut best) = (0.0, 0.0, 0.0);
    for n_small in 0..=sorted.len() {
        let (s, gain) = split(small_sum, total, n_small as i32, (sorted.len() - n_small) as i32);
        if gain > best_gain {
            (best_gain, best) = (gain, s);
        }
        small_sum += sorted.get(n_small).map_or(0.0, |&a| f64::from(a));
    }
    best
}

/// The best f16 scale of one split and its gain, given the sums of the small and of all magnitudes. The gain of a split
/// whose scale would exceed f16 is below any other.
#[inline(always)]
#[must_use]
pub fn split(small_sum: f64, total: f64, n_small: i32, n_large: i32) -> (f32, f64) {
    let a = small_sum * (1.0 / 3.0) + (total - small_sum);
    let b = f64::from(n_small) * (1.0 / 9.0) + f64::from(n_large);
    let s = round_f16((a / b) as f32);
    let wide = f64::from(s);
    (s, wide * (2.0 * a - wide * b))
}
