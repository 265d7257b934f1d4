//! q4: the errors of all 64 candidates side by side, weight after weight as in the definition.

use super::{Group, Output, code};
use smoe_codec::{half, q4};

#[inline(always)]
pub(super) fn encode(group: &Group, out: Output<'_>) {
    code::uniform::<4>(group, search(group), out);
}

/// The scale of a group, as [`q4::scale`] gives it.
#[inline(always)]
fn search(group: &Group) -> f32 {
    let mut scales = [0.0; q4::CANDIDATES];
    for (s, share) in scales.iter_mut().zip(&q4::SHARES) {
        *s = half::round_f16(share * group.absmax);
    }
    if scales[0] == 0.0 {
        return if group.absmax == 0.0 { 0.0 } else { tiny(group) };
    }
    let steps_per_unit = scales.map(|s| 7.5 / s);
    let mut errors = [0.0f32; q4::CANDIDATES];
    for w in &group.w[..group.len] {
        let magnitude = w.abs();
        for (error, steps_per_unit) in errors.iter_mut().zip(&steps_per_unit) {
            *error += q4::miss(magnitude * steps_per_unit);
        }
    }
    let (mut best_error, mut best) = (f32::INFINITY, 0.0);
    for (error, s) in errors.into_iter().zip(scales) {
        let error = error * (s * s);
        if error < best_error {
            (best_error, best) = (error, s);
        }
    }
    best
}

/// Weights so small that candidates vanish: the definition knows how.
#[cold]
fn tiny(group: &Group) -> f32 {
    q4::scale(&group.w[..group.len])
}
