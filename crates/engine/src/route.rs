//! The router: logits to scores to choice to combine weights, one token at a time, in f32.

use crate::backend::Span;
use crate::math::{exp, sigmoid, softmax};
use crate::observer::Routes;
use crate::sampler::SplitMix64;
use smoe_model::spec::{ExpertGroups, MoeSpec, RouterScore};

/// One token's experts with their combine weights, by falling weight; the lower index first among equals.
///
/// `logits` `[experts]`, the router's own bias already in them. A NaN counts as the lowest value: a choice is made
/// among the rest, and the damage shows in the logits of the model.
pub(crate) fn route(moe: &MoeSpec, selection_bias: Option<&[f32]>, logits: &[f32]) -> Vec<(u32, f32)> {
    let router = &moe.router;
    let mut scores = logits.to_vec();
    let mut chosen = match router.score {
        RouterScore::SparseMixer { jitter } => sparse_mixer(logits, jitter, moe.top_k),
        RouterScore::Softmax | RouterScore::Sigmoid | RouterScore::SoftmaxOfChosen => {
            match router.score {
                RouterScore::Softmax => softmax(&mut scores),
                RouterScore::Sigmoid => scores.iter_mut().for_each(|s| *s = sigmoid(*s)),
                RouterScore::SoftmaxOfChosen | RouterScore::SparseMixer { .. } => {}
            }
            let mut selection = scores.clone();
            if let Some(bias) = selection_bias {
                selection.iter_mut().zip(bias).for_each(|(s, b)| *s += b);
            }
            if let Some(groups) = router.groups {
                limit_groups(groups, &mut selection);
            }
            top(&selection, moe.top_k).into_iter().map(|e| (e, scores[e as usize])).collect()
        }
    };
    if router.score == RouterScore::SoftmaxOfChosen {
        let mut weights: Vec<f32> = chosen.iter().map(|c| c.1).collect();
        softmax(&mut weights);
        chosen.iter_mut().zip(weights).for_each(|(c, w)| c.1 = w);
    }
    if let Some(normalise) = router.normalise {
        let sum: f32 = chosen.iter().map(|c| c.1).sum();
        let divisor = sum.max(normalise.floor) + normalise.eps;
        chosen.iter_mut().for_each(|c| c.1 /= divisor);
    }
    chosen.iter_mut().for_each(|c| c.1 *= router.scale);
    chosen.sort_by(|a, b| rank(b.1).total_cmp(&rank(a.1)).then(a.0.cmp(&b.0)));
    chosen
}

/// Distinct experts at random with equal weights, by seed, layer and position alone: what no cache can foresee.
pub(crate) fn random_routes(moe: &MoeSpec, seed: u64, layer: usize, span: Span) -> Routes {
    let (k, n) = (moe.top_k, span.n);
    let mut ids = Vec::with_capacity(n * k);
    let mut deck: Vec<u32> = (0u32..).take(moe.experts).collect();
    for position in span.start..span.start + n {
        let mut rng = SplitMix64::new(SplitMix64::new(seed ^ ((layer as u64) << 40) ^ position as u64).next_u64());
        for at in 0..k {
            let left = (moe.experts - at) as u64;
            deck.swap(at, at + (rng.next_u64() % left) as usize);
        }
        ids.extend_from_slice(&deck[..k]);
        deck.sort_unstable();
    }
    Routes { k, ids, weights: vec![1.0 / k as f32; n * k] }
}

/// A value to order by: NaN is the lowest.
fn rank(x: f32) -> f32 {
    if x.is_nan() { f32::NEG_INFINITY } else { x }
}

/// The indices of the `k` largest values, largest first, the lower index first among equals.
fn top(values: &[f32], k: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0u32..).take(values.len()).collect();
    let by_rank = |&a: &u32, &b: &u32| rank(values[b as usize]).total_cmp(&rank(values[a as usize])).then(a.cmp(&b));
    if k < order.len() {
        order.select_nth_unstable_by(k, by_rank);
        order.truncate(k);
    }
    order.sort_unstable_by(by_rank);
    order
}

/// Puts every expert outside the kept groups out of the choice.
fn limit_groups(groups: ExpertGroups, selection: &mut [f32]) {
    let size = selection.len() / groups.count;
    let group_scores: Vec<f32> = selection
        .chunks_exact(size)
        .map(|group| top(group, groups.scored_by).into_iter().map(|e| group[e as usize]).sum())
        .collect();
    let kept = top(&group_scores, groups.keep);
    for (g, group) in (0u32..).zip(selection.chunks_exact_mut(size)) {
        if !kept.contains(&g) {
            group.fill(f32::NEG_INFINITY);
        }
    }
}

/// Each round takes the best remaining logit and weighs it by a softmax over those within `2 * jitter` of it, relative
/// to the larger of the two magnitudes.
fn sparse_mixer(logits: &[f32], jitter: f32, rounds: usize) -> Vec<(u32, f32)> {
    let mut remaining = logits.to_vec();
    let mut chosen = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let best = top(&remaining, 1)[0];
        let max = remaining[best as usize];
        let band =
            logits.iter().zip(&remaining).filter(|(logit, _)| (max - **logit) / logit.abs().max(max) <= 2.0 * jitter);
        let sum: f32 = band.map(|(_, remaining)| exp(remaining - max)).sum();
        chosen.push((best, 1.0 / sum));
        remaining[best as usize] = f32::NEG_INFINITY;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoe_model::spec::{Activation, Normalise, RouterSpec};

    fn moe(score: RouterScore, experts: usize, top_k: usize) -> MoeSpec {
        let router =
            RouterSpec { score, logit_bias: false, selection_bias: false, groups: None, normalise: None, scale: 1.0 };
        MoeSpec { experts, top_k, width: 1, act: Activation::SwiGlu, router, shared: None, expert_bias: false }
    }

    fn ids(chosen: &[(u32, f32)]) -> Vec<u32> {
        chosen.iter().map(|c| c.0).collect()
    }

    #[test]
    fn softmax_weights_are_shares_of_all_or_of_the_chosen() {
        let logits = [0.0, 2.0_f32.ln(), 5.0_f32.ln(), f32::NEG_INFINITY];
        let all = route(&moe(RouterScore::Softmax, 4, 2), None, &logits);
        assert_eq!(ids(&all), [2, 1]);
        assert!((all[0].1 - 0.625).abs() < 1e-6 && (all[1].1 - 0.25).abs() < 1e-6, "{all:?}");
        let chosen = route(&moe(RouterScore::SoftmaxOfChosen, 4, 2), None, &logits);
        assert!((chosen[0].1 - 5.0 / 7.0).abs() < 1e-6, "{chosen:?}");
    }

    #[test]
    fn a_selection_bias_moves_the_choice_and_not_the_weights() {
        let mut moe = moe(RouterScore::Sigmoid, 3, 2);
        moe.router.normalise = Some(Normalise { eps: 0.0, floor: 0.0 });
        moe.router.scale = 3.0;
        let chosen = route(&moe, Some(&[0.0, 0.0, 1.0]), &[0.0, 1.0, -1.0]);
        assert_eq!(ids(&chosen), [1, 2]);
        let sum: f32 = chosen.iter().map(|c| c.1).sum();
        assert!((sum - 3.0).abs() < 1e-5 && chosen[0].1 > chosen[1].1, "{chosen:?}");
    }

    #[test]
    fn groups_limit_the_choice() {
        let mut moe = moe(RouterScore::Sigmoid, 6, 2);
        moe.router.groups = Some(ExpertGroups { count: 3, keep: 1, scored_by: 2 });
        // The best single expert is in the first group, the best pair in the last.
        assert_eq!(ids(&route(&moe, None, &[3.0, -9.0, -9.0, -9.0, 2.0, 2.5])), [5, 4]);
        moe.router.groups = Some(ExpertGroups { count: 3, keep: 1, scored_by: 1 });
        assert_eq!(ids(&route(&moe, None, &[3.0, -9.0, -9.0, -9.0, 2.0, 2.5])), [0, 1]);
    }

    #[test]
    fn sparse_mixer_weighs_within_its_band() {
        let moe = moe(RouterScore::SparseMixer { jitter: 0.01 }, 4, 2);
        let chosen = route(&moe, None, &[1.0, 0.99, -3.0, 0.5]);
        assert_eq!(ids(&chosen), [1, 0]);
        assert!((chosen[0].1 - 1.0).abs() < 1e-6 && (chosen[1].1 - 0.5025).abs() < 1e-3, "{chosen:?}");
    }

    #[test]
    fn equal_scores_take_the_lower_index_and_nan_is_last() {
        let moe = moe(RouterScore::Softmax, 4, 2);
        assert_eq!(ids(&route(&moe, None, &[1.0; 4])), [0, 1]);
        assert_eq!(ids(&route(&moe, None, &[f32::NAN; 4])), [0, 1]);
    }

    /// Once, in every way of scoring and normalising.
    #[test]
    fn the_scale_multiplies_the_weights_once() {
        let logits = [0.3, -1.0, 2.0, 0.25, 1.5, -0.5];
        let scores = [
            RouterScore::Softmax,
            RouterScore::Sigmoid,
            RouterScore::SoftmaxOfChosen,
            RouterScore::SparseMixer { jitter: 0.01 },
        ];
        for score in scores {
            for normalise in [None, Some(Normalise { eps: 1e-20, floor: 0.0 })] {
                let mut moe = moe(score, 6, 3);
                moe.router.normalise = normalise;
                let plain = route(&moe, Some(&[0.0; 6]), &logits);
                moe.router.scale = 2.5;
                for (a, b) in route(&moe, Some(&[0.0; 6]), &logits).iter().zip(&plain) {
                    assert_eq!((a.0, a.1), (b.0, 2.5 * b.1), "{score:?}");
                }
            }
        }
    }

    /// Scores near nothing beside a bias that is everything: the weights are those of the scores, finite, summing to 1.
    #[test]
    fn a_large_bias_takes_nothing_from_small_scores() {
        let mut moe = moe(RouterScore::Sigmoid, 4, 2);
        moe.router.normalise = Some(Normalise { eps: 1e-20, floor: 0.0 });
        let chosen = route(&moe, Some(&[35.0, 35.5, 0.0, 34.0]), &[-16.0, -16.0, -15.0, -17.0]);
        assert_eq!(ids(&chosen), [0, 1]);
        let sum: f32 = chosen.iter().map(|c| c.1).sum();
        assert!((sum - 1.0).abs() < 1e-6 && chosen.iter().all(|c| (c.1 - 0.5).abs() < 1e-6), "{chosen:?}");
    }

    /// Two biases that sixteen bits would make one.
    #[test]
    fn close_biases_keep_their_order() {
        let moe = moe(RouterScore::Sigmoid, 3, 1);
        for close in [1e-4, -1e-4] {
            let chosen = route(&moe, Some(&[34.5, 34.5 + close, 0.0]), &[0.0; 3]);
            assert_eq!(ids(&chosen), [u32::from(close > 0.0)]);
        }
    }

    #[test]
    fn sixteen_of_a_thousand_experts_are_chosen() {
        let logits: Vec<f32> = (0..1024).map(|e| (e * 37 % 1024) as f32).collect();
        let chosen = route(&moe(RouterScore::SoftmaxOfChosen, 1024, 16), None, &logits);
        let most: Vec<f32> = chosen.iter().map(|c| logits[c.0 as usize]).collect();
        assert_eq!(most, (1008..1024).rev().map(|e| e as f32).collect::<Vec<_>>());
    }
}
