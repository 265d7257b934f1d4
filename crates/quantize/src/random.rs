//! Random weights, made fast and the same everywhere: any piece of any tensor can be made by itself.

use smoe_codec::half;
use std::sync::LazyLock;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A stream of its own for each `(seed, stream, piece)`.
    #[must_use]
    pub fn new(seed: u64, stream: u64, piece: u64) -> Self {
        let mut rng = Self(seed);
        for word in [stream, piece] {
            rng.0 = rng.next_u64() ^ word.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        }
        rng
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

const TABLE_BITS: usize = 12;

/// Quantiles of deviation 1, in the middle of 4,096 steps of probability: made once, since each costs a bisection.
static UNIT_QUANTILES: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let n = 1 << TABLE_BITS;
    (0..n).map(|i| inverse_normal((f64::from(i) + 0.5) / f64::from(n))).collect()
});

/// Normal weights in bf16: a table of 4,096 quantiles, drawn by 12 random bits each. Its tails end at 3.7 deviations,
/// which no quantiser notices, and a draw costs a table read.
pub struct NormalTable(Vec<u16>);

impl NormalTable {
    /// Deviation `std`.
    #[must_use]
    pub fn new(std: f64) -> Self {
        Self(UNIT_QUANTILES.iter().map(|q| half::f32_to_bf16((q * std) as f32)).collect())
    }

    /// Fills `out` with little-endian bf16 values.
    pub fn fill(&self, rng: &mut SplitMix64, out: &mut [u8]) {
        const PER_WORD: usize = 64 / TABLE_BITS;
        for block in out.chunks_mut(2 * PER_WORD) {
            let mut word = rng.next_u64();
            for value in block.chunks_mut(2) {
                let drawn = self.0[(word & ((1 << TABLE_BITS) - 1)) as usize];
                value.copy_from_slice(&drawn.to_le_bytes()[..value.len()]);
                word >>= TABLE_BITS;
            }
        }
    }
}

/// Fills `out` with random bytes: codes of any width.
pub fn fill_bytes(rng: &mut SplitMix64, out: &mut [u8]) {
    for block in out.chunks_mut(8) {
        block.copy_from_slice(&rng.next_u64().to_le_bytes()[..block.len()]);
    }
}

/// The `p` quantile of the standard normal distribution by bisection of its distribution function; made 4,096 times a
/// table, so plain is fast enough.
fn inverse_normal(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0_f64, 8.0_f64);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if normal_cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Abramowitz and Stegun 26.2.17, within 7.5e-8: finer than bf16 by far.
fn normal_cdf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let upper = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if x >= 0.0 { 1.0 - upper } else { upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_weights_have_the_asked_deviation() {
        let mut bytes = vec![0; 200_000];
        NormalTable::new(0.02).fill(&mut SplitMix64::new(7, 1, 2), &mut bytes);
        let values: Vec<f64> =
            bytes.chunks_exact(2).map(|b| f64::from(half::bf16_to_f32(u16::from_le_bytes([b[0], b[1]])))).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let std = (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt();
        // Five standard errors of 100,000 draws.
        assert!(mean.abs() < 5.0 * 0.02 / 316.0, "{mean}");
        assert!((std / 0.02 - 1.0).abs() < 0.015, "{std}");
    }

    #[test]
    fn pieces_differ_and_repeat() {
        let draw = |seed, stream, piece| SplitMix64::new(seed, stream, piece).next_u64();
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 3, 2));
        assert_ne!(draw(1, 2, 3), draw(2, 2, 3));
    }
}
