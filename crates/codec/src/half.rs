//! f16 and bf16 to f32 and back, rounding to nearest, ties to even; subnormals, infinities and NaNs kept.

/// The f16 infinity; every non-negative finite f16 has smaller bits.
pub const F16_INFINITY: u16 = 0x7C00;

/// The smallest magnitude that rounds to an infinite f16.
pub const F16_OVERFLOW: f32 = 65520.0;

/// The value of an f16.
#[inline]
#[must_use]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7FFF);
    let value = match magnitude {
        // Subnormals are multiples of 2^-24, exact in f32.
        0..=0x3FF => (magnitude as f32 * (1.0 / 16_777_216.0)).to_bits(),
        0x400..=0x7BFF => (magnitude << 13) + ((127 - 15) << 23),
        _ => 0x7F80_0000 | (magnitude & 0x3FF) << 13,
    };
    f32::from_bits(sign | value)
}

/// The nearest f16; from [`F16_OVERFLOW`] on an infinity. NaNs stay NaNs and become quiet.
#[inline]
#[must_use]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return sign | 0x7E00 | (magnitude >> 13 & 0x3FF) as u16;
    }
    let rounded = round_f16(f32::from_bits(magnitude)).to_bits();
    let half = match rounded {
        0x7F80_0000 => F16_INFINITY,
        0x3880_0000.. => ((rounded - ((127 - 15) << 23)) >> 13) as u16,
        _ => (f32::from_bits(rounded) * 16_777_216.0) as u16,
    };
    sign | half
}

/// The nearest f16 of a non-negative finite value, as an f32. Branchless, so that loops over it vectorise.
#[inline(always)]
#[must_use]
pub fn round_f16(value: f32) -> f32 {
    const SMALLEST_NORMAL: f32 = 1.0 / 16384.0;
    // At 0.75 the steps of f32 are 2^-24, the step of f16 subnormals: the addition rounds, the subtraction is exact.
    let subnormal = (value + 0.75) - 0.75;
    let bits = value.to_bits();
    let normal = f32::from_bits(bits.wrapping_add(0xFFF + (bits >> 13 & 1)) & !0x1FFF);
    let finite = if value < SMALLEST_NORMAL { subnormal } else { normal };
    if value >= F16_OVERFLOW { f32::INFINITY } else { finite }
}

/// The value of a bf16.
#[inline]
#[must_use]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16. NaNs stay NaNs and become quiet.
#[inline]
#[must_use]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a finite f16 from the definition, in f64.
    fn reference(bits: u16) -> f64 {
        let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3FF));
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        sign * if exponent == 0 { mantissa * 2f64.powi(-24) } else { (1024.0 + mantissa) * 2f64.powi(exponent - 25) }
    }

    #[test]
    fn every_f16_converts_and_returns() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if bits & 0x7FFF > F16_INFINITY {
                assert!(value.is_nan() && f32_to_f16(value) == bits | 0x200, "{bits:#x}");
                continue;
            }
            assert_eq!(f32_to_f16(value), bits, "{bits:#x}");
            if bits & 0x7FFF == F16_INFINITY {
                assert!(value.is_infinite());
            } else {
                assert_eq!(f64::from(value), reference(bits), "{bits:#x}");
            }
        }
    }

    /// Between every two neighbours: below the middle, the middle (to even), above it.
    #[test]
    fn f16_rounds_to_nearest_even_everywhere() {
        for bits in 0..F16_INFINITY {
            let below = f16_to_f32(bits);
            let above = if bits + 1 == F16_INFINITY { 65536.0 } else { f16_to_f32(bits + 1) };
            let middle = (below + above) / 2.0; // Exact: one more bit than f16 has.
            let even = bits + (bits & 1);
            for sign in [0u16, 0x8000] {
                let signed = |v: f32| if sign == 0 { v } else { -v };
                assert_eq!(f32_to_f16(signed(middle)), sign | even, "middle above {bits:#x}");
                assert_eq!(f32_to_f16(signed(middle.next_down())), sign | bits, "below the middle above {bits:#x}");
                assert_eq!(f32_to_f16(signed(middle.next_up())), sign | (bits + 1), "above the middle of {bits:#x}");
            }
            assert_eq!(round_f16(middle).to_bits(), f16_to_f32(even).to_bits());
        }
        assert_eq!(f32_to_f16(f32::MAX), F16_INFINITY);
        assert_eq!(f32_to_f16(f32::NEG_INFINITY), 0x8000 | F16_INFINITY);
        assert_eq!(f32_to_f16(f32::from_bits(1)), 0);
    }

    #[test]
    fn every_bf16_converts_and_returns() {
        for bits in 0..=u16::MAX {
            let value = bf16_to_f32(bits);
            if value.is_nan() {
                assert_eq!(f32_to_bf16(value), bits | 0x40);
                continue;
            }
            assert_eq!(f32_to_bf16(value), bits);
            if value.is_infinite() {
                continue;
            }
            let raw = u32::from(bits) << 16; // Magnitudes grow with the bits, whatever the sign.
            assert_eq!(f32_to_bf16(f32::from_bits(raw | 0x7FFF)), bits);
            assert_eq!(f32_to_bf16(f32::from_bits(raw | 0x8000)), bits + (bits & 1));
            assert_eq!(f32_to_bf16(f32::from_bits(raw | 0x8001)), bits + 1);
        }
    }
}
