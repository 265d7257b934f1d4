//! q8: both candidates side by side.

use super::{Group, Output, code};
use smoe_codec::{GROUP, q8};

#[inline(always)]
pub(super) fn encode(group: &Group, mut out: Output<'_>) {
    let [low, high] = q8::candidates(group.absmax);
    if low == 0.0 || high.is_infinite() {
        return rare(group, out);
    }
    let (low_codes, high_codes) = (code::signed(&group.w, low), code::signed(&group.w, high));
    let (low_misses, high_misses) = (misses(group, &low_codes, low), misses(group, &high_codes, high));
    let (mut low_error, mut high_error) = (0.0, 0.0);
    for (a, b) in low_misses.iter().zip(&high_misses).take(group.len) {
        (low_error, high_error) = (low_error + a, high_error + b);
    }
    let (codes, s) = if high_error < low_error { (high_codes, high) } else { (low_codes, low) };
    out.scale(s);
    out.codes.copy_from_slice(&codes[..group.len]);
}

#[inline(always)]
fn misses(group: &Group, codes: &[u8; GROUP], s: f32) -> [f32; GROUP] {
    let mut misses = [0.0; GROUP];
    for ((miss, w), c) in misses.iter_mut().zip(&group.w).zip(codes) {
        let difference = w - f32::from(*c as i8) * s;
        *miss = difference * difference;
    }
    misses
}

/// Zeros, and weights at the ends of what f16 scales can hold.
#[cold]
fn rare(group: &Group, mut out: Output<'_>) {
    let s = if group.absmax == 0.0 { 0.0 } else { q8::scale(&group.w[..group.len]) };
    out.scale(s);
    if s == 0.0 {
        out.codes.fill(0);
    } else {
        out.codes.copy_from_slice(&code::signed(&group.w, s)[..group.len]);
    }
}
