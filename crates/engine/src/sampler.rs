//! [`Sampler`]: one token from logits.

use crate::math::exp;

/// How tokens are chosen. The default is greedy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplerParams {
    /// Logits are divided by it; 0 takes the largest.
    pub temperature: f32,
    /// Only the `k` most likely; 0 is no limit.
    pub top_k: usize,
    /// Only the most likely that together reach this probability; 1 is no limit.
    pub top_p: f32,
    /// Only those at least this share as likely as the most likely; 0 is no limit.
    pub min_p: f32,
    /// Logits of tokens that occurred are divided (positive) or multiplied (negative) by it; 1 is off.
    pub repeat_penalty: f32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 0 }
    }
}

/// SplitMix64: small, seeded by any number, the same on every machine.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), in steps of 2^-53.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Chooses tokens; remembers which occurred and where its random numbers are.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplerParams,
    rng: SplitMix64,
    /// Ids that occurred, in the order of their first occurrence.
    seen: Vec<u32>,
}

impl Sampler {
    /// A sampler that has seen nothing.
    pub fn new(params: SamplerParams) -> Self {
        Self { params, rng: SplitMix64::new(params.seed), seen: Vec::new() }
    }

    /// Notes that `id` occurred, in the prompt or in what was generated.
    pub fn saw(&mut self, id: u32) {
        if self.params.repeat_penalty != 1.0 && !self.seen.contains(&id) {
            self.seen.push(id);
        }
    }

    /// The next token; `None` where no logit is a finite number. Values that are not numbers are never chosen.
    pub fn sample(&mut self, logits: &[f32]) -> Option<u32> {
        let SamplerParams { temperature, repeat_penalty, .. } = self.params;
        let mut logits = logits.to_vec();
        if repeat_penalty != 1.0 {
            for &id in &self.seen {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit = if *logit > 0.0 { *logit / repeat_penalty } else { *logit * repeat_penalty };
                }
            }
        }
        let best = argmax(&logits)?;
        if temperature <= 0.0 {
            return Some(best);
        }
        let max = logits[best as usize];
        let mut candidates: Vec<(u32, f32)> = (0u32..)
            .zip(&logits)
            .filter(|(_, logit)| logit.is_finite())
            .map(|(id, logit)| (id, exp((logit - max) / temperature)))
            .collect();
        self.limit(&mut candidates);
        Some(self.draw(&candidates).unwrap_or(best))
    }

    /// Keeps the candidates (weights relative to the largest, which is 1) that the limits allow, most likely first.
    fn limit(&self, candidates: &mut Vec<(u32, f32)>) {
        let SamplerParams { top_k, top_p, min_p, .. } = self.params;
        candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if top_k > 0 {
            candidates.truncate(top_k);
        }
        if top_p < 1.0 {
            let total: f64 = candidates.iter().map(|c| f64::from(c.1)).sum();
            let mut sum = 0.0;
            let reached = candidates.iter().position(|c| {
                sum += f64::from(c.1);
                sum >= f64::from(top_p) * total
            });
            candidates.truncate(reached.map_or(candidates.len(), |i| i + 1));
        }
        if min_p > 0.0 {
            let least = min_p.min(1.0);
            candidates.retain(|c| c.1 >= least);
        }
    }

    /// One candidate by its share.
    fn draw(&mut self, candidates: &[(u32, f32)]) -> Option<u32> {
        let total: f64 = candidates.iter().map(|c| f64::from(c.1)).sum();
        let mut left = self.rng.next_f64() * total;
        for (id, weight) in candidates {
            left -= f64::from(*weight);
            if left < 0.0 {
                return Some(*id);
            }
        }
        candidates.last().map(|c| c.0)
    }
}

/// The index of the largest finite value, the lowest among equals; `None` where none is finite.
pub fn argmax(values: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (i, &value) in (0u32..).zip(values) {
        if value.is_finite() && best.is_none_or(|(_, most)| value > most) {
            best = Some((i, value));
        }
    }
    best.map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(params: SamplerParams, logits: &[f32], count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(params);
        (0..count).map(|_| sampler.sample(logits).expect("finite logits")).collect()
    }

    const WARM: SamplerParams =
        SamplerParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed: 7 };

    #[test]
    fn greedy_takes_the_first_of_equals_and_skips_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(argmax(&[f32::NAN, f32::INFINITY, -2.0, f32::NEG_INFINITY]), Some(2));
        assert_eq!(argmax(&[f32::NAN; 3]), None);
        assert_eq!(Sampler::new(WARM).sample(&[f32::NAN; 3]), None);
        assert!(draws(WARM, &[f32::NAN, 0.0, 0.0, f32::INFINITY], 100).iter().all(|id| [1, 2].contains(id)));
    }

    #[test]
    fn shares_follow_the_softmax() {
        let logits = [0.0, 3.0_f32.ln(), f32::NEG_INFINITY];
        let ones = draws(WARM, &logits, 20_000).iter().filter(|id| **id == 1).count();
        assert!((ones as f64 / 20_000.0 - 0.75).abs() < 0.01, "{ones}");
        let cold = SamplerParams { temperature: 0.5, ..WARM };
        let ones = draws(cold, &logits, 20_000).iter().filter(|id| **id == 1).count();
        assert!((ones as f64 / 20_000.0 - 0.9).abs() < 0.01, "{ones}");
    }

    #[test]
    fn limits_cut_the_unlikely() {
        // Probabilities 0.5, 0.25, 0.15, 0.1.
        let logits = [0.5_f32.ln(), 0.25_f32.ln(), 0.15_f32.ln(), 0.1_f32.ln()];
        for (params, kept) in [
            (SamplerParams { top_k: 1, ..WARM }, 1),
            (SamplerParams { top_k: 3, ..WARM }, 3),
            (SamplerParams { top_p: 0.7, ..WARM }, 2),
            (SamplerParams { top_p: 0.0, ..WARM }, 1),
            (SamplerParams { min_p: 0.25, ..WARM }, 3),
            (SamplerParams { min_p: 2.0, ..WARM }, 1),
            (SamplerParams { top_k: 3, top_p: 0.6, ..WARM }, 2),
        ] {
            let most = draws(params, &logits, 2000).into_iter().max();
            assert_eq!(most, Some(kept - 1), "{params:?}");
        }
    }

    #[test]
    fn a_penalty_moves_what_was_seen() {
        let mut sampler = Sampler::new(SamplerParams { repeat_penalty: 2.0, ..SamplerParams::default() });
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0]), Some(0));
        sampler.saw(0);
        assert_eq!(sampler.sample(&[3.0, 2.0, -1.0]), Some(1));
        sampler.saw(1);
        assert_eq!(sampler.sample(&[-0.6, -0.6, -1.0]), Some(2));
    }

    #[test]
    fn a_seed_repeats_itself() {
        let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 * 0.3).collect();
        assert_eq!(draws(WARM, &logits, 50), draws(WARM, &logits, 50));
        assert_ne!(draws(WARM, &logits, 50), draws(SamplerParams { seed: 8, ..WARM }, &logits, 50));
        // The published first outputs of SplitMix64 from seed 0.
        let mut rng = SplitMix64::new(0);
        assert_eq!([rng.next_u64(), rng.next_u64()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }
}
