//! Intervals by a paired bootstrap over documents.
//!
//! Tokens of one document depend on each other, so documents are what is drawn. The definition, complete:
//!
//! - Documents are numbered 0 to n - 1 in the order in which they first appear. Each metric has a numerator for each
//!   document (a sum over its tokens), and all share the denominators (tokens).
//! - A SplitMix64 generator starts with the state `seed`. For each resample b = 0 .. B - 1 and each i = 0 .. n - 1, in
//!   this order, one output `r` gives the document `floor(r * n / 2^64)`.
//! - The value of a resample is the sum of the drawn numerators over the sum of the drawn tokens, in f64, summed in the
//!   order of the draws. Every metric, and every arm that is compared, uses the same draws: they depend on nothing but
//!   seed, B and n.
//! - The interval is the 2.5th and the 97.5th percentile of the B values, by linear interpolation: with the values
//!   sorted, percentile q is at place q / 100 * (B - 1). That is the default of `numpy.percentile`.
//!
//! `tests/reference.py` of this crate is the same in Python.

use smoe_engine::sampler::SplitMix64;

/// Resamples of an interval.
pub const RESAMPLES: usize = 2000;

/// A lower and an upper bound.
pub type Interval = [f64; 2];

/// Intervals of several metrics: `numerators[m][d]` is metric m's sum over document d, `tokens[d]` its length.
/// `None` for each metric where there are fewer than two documents.
///
/// # Panics
/// If a metric has another number of documents than `tokens`, or `resamples` is 0.
#[must_use]
pub fn intervals(numerators: &[&[f64]], tokens: &[u64], seed: u64, resamples: usize) -> Vec<Option<Interval>> {
    assert!(resamples > 0, "an interval needs resamples");
    assert!(numerators.iter().all(|metric| metric.len() == tokens.len()), "one numerator a document");
    let n = tokens.len();
    if n < 2 {
        return vec![None; numerators.len()];
    }
    let mut rng = SplitMix64::new(seed);
    let mut values = vec![Vec::with_capacity(resamples); numerators.len()];
    let mut sums = vec![0.0; numerators.len()];
    for _ in 0..resamples {
        sums.fill(0.0);
        let mut drawn_tokens = 0.0;
        for _ in 0..n {
            let document = draw(rng.next_u64(), n);
            drawn_tokens += tokens[document] as f64;
            for (sum, metric) in sums.iter_mut().zip(numerators) {
                *sum += metric[document];
            }
        }
        for (values, sum) in values.iter_mut().zip(&sums) {
            values.push(sum / drawn_tokens);
        }
    }
    values
        .iter_mut()
        .map(|values| {
            values.sort_by(f64::total_cmp);
            Some([percentile(values, 2.5), percentile(values, 97.5)])
        })
        .collect()
}

fn draw(random: u64, n: usize) -> usize {
    ((u128::from(random) * n as u128) >> 64) as usize
}

/// Percentile `q` (0 to 100) of sorted values, by linear interpolation.
///
/// # Panics
/// If there are no values, or `q` lies outside 0 to 100.
#[must_use]
pub fn percentile(sorted: &[f64], q: f64) -> f64 {
    assert!(!sorted.is_empty() && (0.0..=100.0).contains(&q), "a percentile of values");
    let place = q / 100.0 * (sorted.len() - 1) as f64;
    let (low, share) = (place.floor() as usize, place.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * share
}
