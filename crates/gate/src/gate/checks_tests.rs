//! Each check passes, and each has a fault that trips it.

use super::*;
use std::collections::BTreeSet;

use super::super::claims::Making;

fn claims(diagnostic: Option<&str>) -> Claims {
    let diagnostic = diagnostic.map(str::to_owned);
    Claims { making: Making::Calibrated, diagnostic, codecs: None, rtn: BTreeSet::new(), q8: None }
}

fn difference(kld: f64, interval: Option<[f64; 2]>) -> Difference {
    Difference { nll: kld, nll_interval: interval, kld, kld_interval: interval, top1: 0.0, top1_interval: None }
}

fn outcome(check: &Check, wanted: Verdict, words: &str) {
    assert_eq!((check.outcome, check.pass), (wanted, wanted == Verdict::Pass), "{check:?}");
    assert!(check.what.contains(words), "{check:?}");
}

#[test]
fn bounds_are_the_recorded_ones_and_rise_with_fewer_bits() {
    for (bits, bound) in [(2.0, 0.20), (3.0, 0.06), (4.0, 0.02), (8.0, 0.02), (1.0, 0.20)] {
        assert_eq!(kld_bound(bits), bound, "{bits} bits");
    }
    let mixed = kld_bound(2.0 + 1.0 / 3.0);
    assert!((mixed - 0.1339).abs() < 1e-4, "{mixed}");
}

#[test]
fn the_worst_outcome_decides() {
    let check = |outcome| Check::new("x", (0.0, 0.0), outcome, "");
    for (outcomes, wanted) in [
        (vec![Verdict::Pass], Verdict::Pass),
        (vec![Verdict::Pass, Verdict::Inconclusive], Verdict::Inconclusive),
        (vec![Verdict::Fail, Verdict::Inconclusive, Verdict::Pass], Verdict::Fail),
        (vec![], Verdict::Inconclusive),
    ] {
        let checks: Vec<Check> = outcomes.into_iter().map(check).collect();
        assert_eq!(together(&checks), wanted);
    }
}

#[test]
fn diagnostic_vaults_never_pass() {
    outcome(&not_diagnostic(&claims(None)), Verdict::Pass, "meant to be used");
    outcome(&not_diagnostic(&claims(Some("only gate-up"))), Verdict::Fail, "only gate-up");
    outcome(&finite_logits(None), Verdict::Pass, "finite");
    outcome(&finite_logits(Some("window 3: NaN")), Verdict::Fail, "window 3");
}

#[test]
fn a_matrix_that_is_its_twin_is_named() {
    let found = |equal, unlike| Equality { compared: 9, equal, unlike };
    outcome(&matrices_differ(&found(vec![], vec![])), Verdict::Pass, "none of 9");
    outcome(&matrices_differ(&found(vec![(2, 5, 1)], vec![])), Verdict::Fail, "layer 2 expert 5 up");
    let many = (0..9).map(|expert| (1, expert, 0)).collect();
    outcome(&matrices_differ(&found(many, vec![])), Verdict::Fail, "layer 1 expert 5 gate and 3 more");
    outcome(&rtn_matrices_equal(&found(vec![], vec![])), Verdict::Pass, "is");
    outcome(&rtn_matrices_equal(&found(vec![], vec![(0, 0, 2)])), Verdict::Fail, "layer 0 expert 0 down");
}

#[test]
fn a_tie_to_four_decimals_is_a_failed_conversion() {
    outcome(&scores_differ(&difference(-0.01, Some([-0.02, 0.0]))), Verdict::Pass, "differs by -0.010000");
    outcome(&scores_differ(&difference(0.0, Some([-0.02, 0.02]))), Verdict::Pass, "");
    outcome(&scores_differ(&difference(0.0, Some([0.0, 0.0]))), Verdict::Fail, "exactly the baseline's");
    outcome(&scores_differ(&difference(0.0, None)), Verdict::Fail, "exactly the baseline's");
    // What a table of four decimals shows as +0.0000 [0.0000, 0.0000] is a tie, on whichever side of zero.
    outcome(&scores_differ(&difference(-2e-5, Some([-4e-5, -1e-5]))), Verdict::Fail, "did next to nothing");
    outcome(&scores_differ(&difference(-2e-5, Some([-6e-5, 1e-5]))), Verdict::Pass, "");
    outcome(&scores_differ(&difference(f64::NAN, Some([f64::NAN; 2]))), Verdict::Fail, "exactly");
}

#[test]
fn better_is_an_interval_below_zero() {
    outcome(&better(&difference(-0.02, Some([-0.03, -0.01]))), Verdict::Pass, "by 0.0200 [0.0100, 0.0300]");
    outcome(&better(&difference(-0.02, Some([-0.05, 0.0]))), Verdict::Inconclusive, "cannot tell");
    outcome(&better(&difference(0.02, Some([0.01, 0.03]))), Verdict::Fail, "worse than the baseline");
    outcome(&better(&difference(-0.02, None)), Verdict::Inconclusive, "one document");
}

#[test]
fn a_smaller_vault_that_is_better_is_a_rival_and_a_larger_one_is_none() {
    let worse = difference(0.02, Some([0.01, 0.03]));
    outcome(&not_dominated([100, 90], &worse), Verdict::Fail, "better by 0.0200 with 90 B against 100 B");
    outcome(&not_dominated([100, 100], &worse), Verdict::Fail, "");
    outcome(&not_dominated([100, 110], &worse), Verdict::Pass, "no rival");
    outcome(&not_dominated([100, 90], &difference(0.0, Some([-0.01, 0.01]))), Verdict::Pass, "not better");
}

#[test]
fn divergence_size_and_reading_have_bounds() {
    let measures = |kld| Measures {
        nll: 3.0,
        nll_interval: None,
        dnll: 0.1,
        dnll_interval: None,
        kld,
        kld_interval: Some([kld - 0.001, kld + 0.001]),
        kld_median: 0.0,
        kld_p99: 0.0,
        kld_max: 0.0,
        top1: 0.9,
        top1_interval: None,
        flips: 3,
        router_overlap: None,
    };
    outcome(
        &divergence(&measures(0.02), 4.0, 0.02),
        Verdict::Pass,
        "0.0200 [0.0190, 0.0210] nats a token at 4.00 bits",
    );
    outcome(&divergence(&measures(0.0201), 4.0, 0.02), Verdict::Fail, "");
    outcome(&divergence(&measures(f64::NAN), 4.0, 0.02), Verdict::Fail, "");
    outcome(&size(Size { predicted: 10, found: 10 }), Verdict::Pass, "where the layout says");
    outcome(&size(Size { predicted: 10, found: 18 }), Verdict::Fail, "do not end");
    outcome(&all_read(&[]), Verdict::Pass, "every tensor");
    outcome(&all_read(&["`x`".into()]), Verdict::Fail, "never used: `x`");
}

#[test]
fn noise_must_be_small_and_two_ways_must_have_run() {
    let found = |kld, two_ran| PathDifference { kld, ways: ["a".into(), "b".into()], two_ran };
    outcome(&same_path("noise", &found(0.0, true), 0.2), Verdict::Pass, "a against b");
    outcome(&same_path("noise", &found(0.0199, true), 0.2), Verdict::Pass, "");
    outcome(&same_path("noise", &found(0.02, true), 0.2), Verdict::Fail, "arithmetic");
    outcome(&same_path("noise", &found(f64::NAN, true), 0.2), Verdict::Fail, "");
    outcome(&same_path("noise", &found(0.0, false), 0.2), Verdict::Inconclusive, "do not show that two ways ran");
}

#[test]
fn text_that_calibrated_does_not_judge() {
    outcome(&text_overlap(Some((0.0, 0.05))), Verdict::Pass, "no document");
    outcome(&text_overlap(Some((0.031, 0.05))), Verdict::Pass, "3.1 %");
    outcome(&text_overlap(None), Verdict::Inconclusive, "does not say which text");
}
