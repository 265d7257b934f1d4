//! The 8-bit codec `q8` of the trunk (FORMAT.md): one signed byte a weight and one f16 scale per 64.
//!
//! weight = `c * s`, c = `clamp(round_ties_even(w / s), -127, 127)`.
//!
//! The scale is the better of the two f16 around `absmax / 127`, by squared error, the lower one of equals. Two, since
//! an f16 scale is coarse where weights are small: below 0.0078 it is subnormal, and rounding it down clips.

use crate::error::{EncodeError, largest};
use crate::half::{F16_OVERFLOW, f16_to_f32, f32_to_f16};
use crate::{GROUP, SCALE_BYTES};

/// The largest code.
pub const MAX_CODE: f32 = 127.0;

/// The code of weight `w` under scale `s > 0`.
#[inline]
#[must_use]
pub fn code(w: f32, s: f32) -> i8 {
    (w / s).round_ties_even().clamp(-MAX_CODE, MAX_CODE) as i8
}

/// The two candidates for a group's scale, the lower first: f16 values around `absmax / 127`.
#[inline]
#[must_use]
pub fn candidates(absmax: f32) -> [f32; 2] {
    let exact = absmax / MAX_CODE;
    let nearest = f32_to_f16(exact);
    let low = if f16_to_f32(nearest) > exact { nearest - 1 } else { nearest };
    let high = if f16_to_f32(low) == exact { low } else { low + 1 };
    [f16_to_f32(low), f16_to_f32(high)]
}

/// The scale of a group of finite weights below `127 * 65520`: an f16 value, 0 where the other candidate is no better.
#[must_use]
pub fn scale(group: &[f32]) -> f32 {
    let absmax = group.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let [low, high] = candidates(absmax);
    if error(group, high) < error(group, low) { high } else { low }
}

pub(crate) fn encode_row(w: &[f32], codes: &mut [u8], scales: &mut [u8]) -> Result<(), EncodeError> {
    let outputs = codes.chunks_mut(GROUP).zip(scales.chunks_exact_mut(SCALE_BYTES));
    for (g, (group, (codes, scale))) in w.chunks(GROUP).zip(outputs).enumerate() {
        let (col, absmax) = largest(group).map_err(|e| e.offset(g * GROUP))?;
        if absmax / MAX_CODE >= F16_OVERFLOW {
            return Err(EncodeError::Overflow { col: g * GROUP + col, value: group[col] });
        }
        let s = self::scale(group);
        scale.copy_from_slice(&f32_to_f16(s).to_le_bytes());
        for (c, &w) in codes.iter_mut().zip(group) {
            *c = if s == 0.0 { 0 } else { code(w, s) as u8 };
        }
    }
    Ok(())
}

pub(crate) fn decode_row(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    let rows = codes.chunks(GROUP).zip(scales.chunks_exact(SCALE_BYTES));
    for (group, (codes, scale)) in out.chunks_mut(GROUP).zip(rows) {
        let s = f16_to_f32(u16::from_le_bytes([scale[0], scale[1]]));
        for (w, &c) in group.iter_mut().zip(codes) {
            *w = if s == 0.0 { 0.0 } else { f32::from(c as i8) * s };
        }
    }
}

/// The squared error of a group under scale `s`; an infinite scale is worse than any other.
fn error(group: &[f32], s: f32) -> f32 {
    if s.is_infinite() {
        return f32::INFINITY;
    }
    group.iter().fold(0.0, |sum, &w| {
        let decoded = if s == 0.0 { 0.0 } else { f32::from(code(w, s)) * s };
        sum + (w - decoded) * (w - decoded)
    })
}
