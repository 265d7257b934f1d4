//! From sums over documents and tokens to figures with intervals.

use serde::{Deserialize, Serialize};

use super::survey::ArmSums;
use crate::bootstrap::{Interval, intervals, percentile};
use crate::eval::DocumentSums;

/// What quantising cost, against the reference. Losses and divergences are nats a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Mean negative log-likelihood.
    pub nll: f64,
    /// Its interval.
    pub nll_interval: Option<Interval>,
    /// `nll` less the reference's.
    pub dnll: f64,
    /// Its interval.
    pub dnll_interval: Option<Interval>,
    /// Mean KL(reference || this).
    pub kld: f64,
    /// Its interval.
    pub kld_interval: Option<Interval>,
    /// Median over tokens.
    pub kld_median: f64,
    /// 99th percentile over tokens.
    pub kld_p99: f64,
    /// Largest of all tokens.
    pub kld_max: f64,
    /// Share of tokens at which both find one id most likely.
    pub top1: f64,
    /// Its interval.
    pub top1_interval: Option<Interval>,
    /// Tokens at which they do not.
    pub flips: u64,
    /// Share of the router's choices that the reference makes too, over all layers.
    pub router_overlap: Option<f64>,
}

/// The candidate less the baseline, on the same documents and the same draws.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Of the losses.
    pub nll: f64,
    /// Its interval.
    pub nll_interval: Option<Interval>,
    /// Of the divergences: below zero, the candidate is better.
    pub kld: f64,
    /// Its interval.
    pub kld_interval: Option<Interval>,
    /// Of the shares of agreement.
    pub top1: f64,
    /// Its interval.
    pub top1_interval: Option<Interval>,
}

/// How intervals are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Draws {
    pub(crate) seed: u64,
    pub(crate) resamples: usize,
}

impl Draws {
    /// Means over tokens of some metrics, each with its interval; `metric(d)` is a sum over document d.
    fn means<const N: usize>(
        self,
        documents: usize,
        tokens: &[u64],
        metric: impl Fn(usize) -> [f64; N],
    ) -> [(f64, Option<Interval>); N] {
        let sums: Vec<[f64; N]> = (0..documents).map(metric).collect();
        let columns: Vec<Vec<f64>> = (0..N).map(|m| sums.iter().map(|sums| sums[m]).collect()).collect();
        let slices: Vec<&[f64]> = columns.iter().map(Vec::as_slice).collect();
        let intervals = intervals(&slices, tokens, self.seed, self.resamples);
        let all = tokens.iter().sum::<u64>() as f64;
        std::array::from_fn(|m| (columns[m].iter().sum::<f64>() / all, intervals[m]))
    }
}

fn tokens(documents: &[DocumentSums]) -> Vec<u64> {
    documents.iter().map(|document| document.tokens).collect()
}

/// The figures of one vault.
pub(crate) fn measures(sums: &ArmSums, draws: Draws) -> Measures {
    let (documents, tokens) = (&sums.documents, tokens(&sums.documents));
    let [nll, dnll, kld, top1] = draws.means(documents.len(), &tokens, |d| {
        let it = &documents[d];
        [it.nll, it.nll - it.reference_nll, it.kld, it.same as f64]
    });
    let mut klds: Vec<f64> = sums.klds.iter().map(|kld| f64::from(*kld)).collect();
    klds.sort_by(f64::total_cmp);
    let (same, chosen) = sums.overlap.iter().fold((0, 0), |all, layer| (all.0 + layer.0, all.1 + layer.1));
    Measures {
        nll: nll.0,
        nll_interval: nll.1,
        dnll: dnll.0,
        dnll_interval: dnll.1,
        kld: kld.0,
        kld_interval: kld.1,
        kld_median: percentile(&klds, 50.0),
        kld_p99: percentile(&klds, 99.0),
        kld_max: percentile(&klds, 100.0),
        top1: top1.0,
        top1_interval: top1.1,
        flips: documents.iter().map(|document| document.tokens - document.same).sum(),
        router_overlap: (chosen > 0).then(|| same as f64 / chosen as f64),
    }
}

/// The candidate less the baseline.
pub(crate) fn difference(candidate: &ArmSums, baseline: &ArmSums, draws: Draws) -> Difference {
    let (own, other) = (&candidate.documents, &baseline.documents);
    let [nll, kld, top1] = draws.means(own.len(), &tokens(own), |d| {
        let same = own[d].same as f64 - other[d].same as f64;
        [own[d].nll - other[d].nll, own[d].kld - other[d].kld, same]
    });
    Difference { nll: nll.0, nll_interval: nll.1, kld: kld.0, kld_interval: kld.1, top1: top1.0, top1_interval: top1.1 }
}

/// The document with the largest mean divergence; the first of equals.
pub(crate) fn worst_document(documents: &[DocumentSums]) -> usize {
    let mean = |d: usize| documents[d].kld / documents[d].tokens as f64;
    (0..documents.len()).reduce(|worst, d| if mean(d) > mean(worst) { d } else { worst }).unwrap_or(0)
}
