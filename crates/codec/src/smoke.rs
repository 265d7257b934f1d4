//! The smoke test of the codecs, what `smoe test-quant` runs: is this build's quantiser as good as it must be?
//!
//! A random `[128, 64]` tensor through q2 and q4, and a million Gaussian weights from a fixed seed, whose
//! signal-to-noise ratio must lie within [`bounds`]. It takes the quantiser as an argument, so that a test can show a
//! bad one failing.

use crate::{Codec, EncodeError, decode_row, encode_row};

/// Rows and columns of the small tensor.
pub const TENSOR: [usize; 2] = [128, 64];

/// Weights of the large sample: 625 rows of 1600.
const SAMPLE: [usize; 2] = [625, 1600];

/// The seed of both samples.
pub const SEED: u64 = 0x5EED_0009;

/// How far decoded weights are from the weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quality {
    /// Root of the mean squared error.
    pub rmse: f64,
    /// The largest magnitude among the errors.
    pub absmax: f64,
    /// Signal-to-noise ratio in dB: mean square of the weights over mean square of the errors.
    pub snr_db: f64,
}

impl Quality {
    /// Compares `[n]` weights with their decoded twins.
    ///
    /// # Panics
    /// If the lengths differ.
    #[must_use]
    pub fn of(weights: &[f32], decoded: &[f32]) -> Self {
        assert_eq!(weights.len(), decoded.len(), "weights and decoded weights");
        let (mut signal, mut noise, mut absmax) = (0.0, 0.0, 0.0f64);
        for (&w, &d) in weights.iter().zip(decoded) {
            let (w, error) = (f64::from(w), f64::from(w) - f64::from(d));
            signal += w * w;
            noise += error * error;
            absmax = absmax.max(error.abs());
        }
        Self { rmse: (noise / weights.len() as f64).sqrt(), absmax, snr_db: 10.0 * (signal / noise).log10() }
    }
}

/// What one codec did.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// The codec.
    pub codec: Codec,
    /// On the small tensor.
    pub tensor: Quality,
    /// On a million Gaussian weights.
    pub sample: Quality,
    /// What `sample.snr_db` must lie within.
    pub bounds: (f64, f64),
}

impl Outcome {
    /// Whether the ratio over the million lies within the bounds.
    #[must_use]
    pub fn passed(&self) -> bool {
        (self.bounds.0..=self.bounds.1).contains(&self.sample.snr_db)
    }
}

/// The signal-to-noise ratio in dB that a sound quantiser reaches on Gaussian weights, where the smoke test knows it.
#[must_use]
pub fn bounds(codec: Codec) -> Option<(f64, f64)> {
    match codec {
        Codec::Q2 => Some((9.35, 9.6)),
        Codec::Q4 => Some((20.4, 20.9)),
        Codec::Q8 => None,
    }
}

/// Runs the smoke test with `quantise`, which encodes a row and writes what it decodes to.
///
/// # Errors
/// The first that `quantise` returns; on these finite weights a sound one returns none.
pub fn run<Q>(quantise: Q) -> Result<Vec<Outcome>, EncodeError>
where
    Q: Fn(Codec, &[f32], &mut [f32]) -> Result<(), EncodeError>,
{
    let mut random = Gaussian::new(SEED);
    let tensor: Vec<f32> = random.by_ref().take(TENSOR[0] * TENSOR[1]).collect();
    let sample: Vec<f32> = random.take(SAMPLE[0] * SAMPLE[1]).collect();
    let quality = |codec, weights: &[f32], cols| {
        let mut decoded = vec![0.0; weights.len()];
        for (row, out) in weights.chunks(cols).zip(decoded.chunks_mut(cols)) {
            quantise(codec, row, out)?;
        }
        Ok(Quality::of(weights, &decoded))
    };
    let judged = Codec::ALL.into_iter().filter_map(|codec| Some((codec, bounds(codec)?)));
    judged
        .map(|(codec, bounds)| {
            let (tensor, sample) = (quality(codec, &tensor, TENSOR[1])?, quality(codec, &sample, SAMPLE[1])?);
            Ok(Outcome { codec, tensor, sample, bounds })
        })
        .collect()
}

/// The quantiser of this crate, for [`run`].
///
/// # Errors
/// As [`encode_row`].
pub fn encode_and_decode(codec: Codec, row: &[f32], out: &mut [f32]) -> Result<(), EncodeError> {
    let (mut codes, mut scales) = (vec![0; codec.code_bytes(row.len())], vec![0; codec.scale_bytes(row.len())]);
    encode_row(codec, row, &mut codes, &mut scales)?;
    decode_row(codec, &codes, &scales, out);
    Ok(())
}

/// Standard normal numbers from a seed, without end: SplitMix64 and Box and Muller's transform.
#[derive(Debug, Clone)]
pub struct Gaussian {
    state: u64,
    spare: Option<f32>,
}

impl Gaussian {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed, spare: None }
    }

    /// The next 64 random bits (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Iterator for Gaussian {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        if let Some(spare) = self.spare.take() {
            return Some(spare);
        }
        let mut uniform = || ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64; // In (0, 1]: its logarithm exists.
        let radius = (-2.0 * uniform().ln()).sqrt();
        let (sin, cos) = (core::f64::consts::TAU * uniform()).sin_cos();
        self.spare = Some((radius * sin) as f32);
        Some((radius * cos) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codecs_pass() {
        for outcome in run(encode_and_decode).expect("Gaussian weights encode") {
            println!("{outcome:?}");
            assert!(outcome.passed(), "{outcome:?}");
            assert!((outcome.tensor.snr_db - outcome.sample.snr_db).abs() < 0.5, "{outcome:?}");
        }
    }

    /// The public script's q4 takes the largest magnitude as the scale: it must not pass for a scale search.
    #[test]
    fn plain_absmax_fails() {
        let absmax = |codec, row: &[f32], out: &mut [f32]| {
            let levels = crate::uniform::Uniform::new(Codec::bits(codec));
            for (group, out) in row.chunks(crate::GROUP).zip(out.chunks_mut(crate::GROUP)) {
                let s = group.iter().fold(0.0f32, |m, w| m.max(w.abs()));
                for (out, &w) in out.iter_mut().zip(group) {
                    *out = levels.weight(levels.code(w, s), s);
                }
            }
            Ok(())
        };
        for outcome in run(absmax).expect("no error in the closure") {
            println!("{outcome:?}");
            assert!(!outcome.passed() && outcome.sample.snr_db < outcome.bounds.0, "{outcome:?}");
        }
    }
}
