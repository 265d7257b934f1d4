//! Stored bytes to f32, by format. Pure: no file is read here.

use crate::checkpoint::header::FileDtype;
use crate::store::Dtype;
use smoe_codec::half;

/// Columns that share a scale in MXFP4.
pub(crate) const MXFP4_GROUP: usize = 32;

/// A plain element type of a file, where it is one.
#[must_use]
pub fn plain(dtype: &FileDtype) -> Option<Dtype> {
    match dtype {
        FileDtype::Bf16 => Some(Dtype::Bf16),
        FileDtype::F16 => Some(Dtype::F16),
        FileDtype::F32 => Some(Dtype::F32),
        _ => None,
    }
}

/// Decodes plain little-endian elements, as many as `out` takes.
///
/// # Panics
/// If `bytes` does not hold `out.len()` elements, or for `Q8`, which no checkpoint holds.
pub fn decode_plain(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    assert_ne!(dtype, Dtype::Q8, "a checkpoint holds no q8 tensor");
    assert_eq!(bytes.len(), dtype.bytes(1, out.len()), "the bytes of {} elements", out.len());
    let pairs = bytes.as_chunks::<2>().0;
    match dtype {
        Dtype::Bf16 => out.iter_mut().zip(pairs).for_each(|(o, b)| *o = half::bf16_to_f32(u16::from_le_bytes(*b))),
        Dtype::F16 => out.iter_mut().zip(pairs).for_each(|(o, b)| *o = half::f16_to_f32(u16::from_le_bytes(*b))),
        Dtype::F32 | Dtype::Q8 => {
            out.iter_mut().zip(bytes.as_chunks::<4>().0).for_each(|(o, b)| *o = f32::from_le_bytes(*b));
        }
    }
}

/// An e4m3 value ("fn": no infinities, 0x7f and 0xff are not numbers).
pub(crate) fn e4m3(byte: u8) -> f32 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction * 2_f32.powi(-9),
        _ => (1.0 + fraction / 8.0) * 2_f32.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

/// All e4m3 values.
pub(crate) fn e4m3_table() -> [f32; 256] {
    std::array::from_fn(|byte| e4m3(byte as u8))
}

/// e2m1 values by code.
const E2M1: [f32; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// One block of 32 values: 16 bytes, low nibble first, times `2^(scale - 127)`; scale 255 is not a number.
pub(crate) fn mxfp4_block(codes: &[u8; 16], scale: u8, out: &mut [f32; MXFP4_GROUP]) {
    let scale = if scale == 255 { f32::NAN } else { (f64::from(scale) - 127.0).exp2() as f32 };
    for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
        *pair = [E2M1[usize::from(byte & 15)] * scale, E2M1[usize::from(byte >> 4)] * scale];
    }
}

/// One packed word: eight values of 4 bits, lowest first, each stored as value + 8.
pub(crate) fn int4_word(word: u32) -> [f32; 8] {
    std::array::from_fn(|i| ((word >> (4 * i) & 15) as i32 - 8) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_values_are_those_of_the_format() {
        for (byte, want) in
            [(0, 0.0), (1, 0.001953125), (8, 0.015625), (0x38, 1.0), (0x3c, 1.5), (0x7e, 448.0), (0xb8, -1.0)]
        {
            assert_eq!(e4m3(byte), want, "{byte:#x}");
        }
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        assert_eq!(e4m3_table().iter().filter(|v| v.is_finite()).count(), 254);
    }

    #[test]
    fn an_mxfp4_block_has_neighbours_in_a_byte() {
        let codes = [0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0x2f];
        let mut out = [9.0; 32];
        mxfp4_block(&codes, 128, &mut out);
        let want = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, -0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];
        assert_eq!(out[..16], want);
        assert_eq!(out[30..], [-12.0, 2.0]);
        mxfp4_block(&codes, 0, &mut out);
        assert_eq!(out[1], 2_f32.powi(-127) * 0.5);
    }

    #[test]
    fn a_packed_word_has_its_lowest_bits_first() {
        assert_eq!(int4_word(0xfedc_ba98), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(int4_word(0x7654_3210), [-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0]);
    }
}
