//! The checks, each a pure function from findings to a [`Check`], and the verdict that they add up to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::claims::Claims;
use super::matrices::{Equality, listed, name};
use super::measures::{Difference, Measures};
use super::paths::PathDifference;
use super::size::Size;

/// What a check or the gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Yes.
    Pass,
    /// The text does not decide it: no pass.
    Inconclusive,
    /// No.
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Inconclusive => "inconclusive",
            Self::Fail => "fail",
        })
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// What was found.
    pub value: Option<f64>,
    /// What it is held against.
    pub bound: Option<f64>,
    /// Whether it passed; false where the text does not decide it.
    pub pass: bool,
    /// The same with the third answer.
    pub outcome: Verdict,
    /// In words.
    pub what: String,
}

impl Check {
    fn new(name: &str, (value, bound): (f64, f64), outcome: Verdict, what: impl Into<String>) -> Self {
        let finite = |x: f64| x.is_finite().then_some(x);
        Self {
            name: name.into(),
            value: finite(value),
            bound: finite(bound),
            pass: outcome == Verdict::Pass,
            outcome,
            what: what.into(),
        }
    }
}

fn verdict(pass: bool) -> Verdict {
    if pass { Verdict::Pass } else { Verdict::Fail }
}

/// All checks together: one that failed fails, one that is undecided leaves it so.
pub(crate) fn together(checks: &[Check]) -> Verdict {
    checks.iter().map(|check| check.outcome).max().unwrap_or(Verdict::Inconclusive)
}

/// Mean KL divergence that experts of `bits` bits may cost: 0.20 at 2 bits, 0.06 at 3, 0.02 at 4 and above; between
/// them the logarithm is linear.
#[must_use]
pub fn kld_bound(bits: f64) -> f64 {
    const KNOWN: [(f64, f64); 3] = [(2.0, 0.20), (3.0, 0.06), (4.0, 0.02)];
    let bits = bits.clamp(KNOWN[0].0, KNOWN[2].0);
    let [low, high] = if bits < KNOWN[1].0 { [KNOWN[0], KNOWN[1]] } else { [KNOWN[1], KNOWN[2]] };
    let share = (bits - low.0) / (high.0 - low.0);
    // Exact at the ends.
    match share {
        0.0 => low.1,
        1.0 => high.1,
        share => (low.1.ln() * (1.0 - share) + high.1.ln() * share).exp(),
    }
}

/// A vault made to be measured never passes.
pub(crate) fn not_diagnostic(claims: &Claims) -> Check {
    let found = claims.diagnostic.as_deref();
    let what = found.map_or_else(
        || "the vault is meant to be used".to_owned(),
        |why| format!("the vault is a diagnostic one ({why}); it is reported on and never passes"),
    );
    Check::new("not_diagnostic", (f64::from(u8::from(found.is_some())), 0.0), verdict(found.is_none()), what)
}

/// The logits of every token are numbers.
pub(crate) fn finite_logits(fault: Option<&str>) -> Check {
    let what = fault.map_or_else(|| "every logit is finite".to_owned(), str::to_owned);
    Check::new("finite_logits", (f64::from(u8::from(fault.is_some())), 0.0), verdict(fault.is_none()), what)
}

/// No calibrated matrix is its round-to-nearest twin, byte for byte.
pub(crate) fn matrices_differ(found: &Equality) -> Check {
    let (equal, all) = (found.equal.len(), found.compared);
    let what = match equal {
        0 => format!("none of {all} matrices that should differ equals round-to-nearest"),
        _ => format!("calibrated in name only, codes and scales as rounded: {}", listed(&found.equal, |at| name(*at))),
    };
    Check::new("tensors_differ_from_baseline", (equal as f64, 0.0), verdict(equal == 0), what)
}

/// What is recorded as rounded to nearest is.
pub(crate) fn rtn_matrices_equal(found: &Equality) -> Check {
    let unlike = found.unlike.len();
    let what = match unlike {
        0 => "every matrix that is recorded as rounded to nearest is".to_owned(),
        _ => format!("recorded as rounded to nearest, and not: {}", listed(&found.unlike, |at| name(*at))),
    };
    Check::new("rtn_tensors_equal_baseline", (unlike as f64, 0.0), verdict(unlike == 0), what)
}

/// What four decimals show as 0.
const TIE: f64 = 0.5e-4;

/// The scores do not tie with the baseline's to four decimals, intervals included.
pub(crate) fn scores_differ(found: &Difference) -> Check {
    let ends = |value: f64, interval: Option<[f64; 2]>| interval.unwrap_or([value; 2]).map(f64::abs).into_iter();
    let ends = ends(found.kld, found.kld_interval).chain(ends(found.nll, found.nll_interval));
    let largest = ends.chain([found.kld.abs(), found.nll.abs()]).fold(0.0, f64::max);
    let what = match (largest == 0.0, largest < TIE) {
        (true, _) => "loss and divergence are exactly the baseline's: the conversion failed".to_owned(),
        (_, true) => "+0.0000 [0.0000, 0.0000] against the baseline: the conversion did next to nothing".to_owned(),
        _ => format!("the loss differs by {:+.6}, the divergence by {:+.6}", found.nll, found.kld),
    };
    Check::new("scores_differ_from_baseline", (largest, TIE), verdict(largest >= TIE), what)
}

/// The upper end of the paired interval lies below zero.
pub(crate) fn better(found: &Difference) -> Check {
    let [low, high] = found.kld_interval.unwrap_or([f64::NAN, f64::NAN]);
    let (outcome, what) = if found.kld_interval.is_none() {
        (Verdict::Inconclusive, "one document has no interval: give more documents".to_owned())
    } else if high < 0.0 {
        (Verdict::Pass, format!("better than the baseline by {:.4} [{:.4}, {:.4}]", -found.kld, -high, -low))
    } else if low > 0.0 {
        (Verdict::Fail, format!("worse than the baseline by {:.4} [{low:.4}, {high:.4}]", found.kld))
    } else {
        let what = format!("{:+.4} [{low:+.4}, {high:+.4}] against the baseline: this text cannot tell", found.kld);
        (Verdict::Inconclusive, what)
    };
    Check::new("better_than_baseline", (high, 0.0), outcome, what)
}

/// No other vault of at most the candidate's bytes is better.
pub(crate) fn not_dominated(bytes: [u64; 2], found: &Difference) -> Check {
    let [own, other] = bytes;
    let low = found.kld_interval.map_or(f64::NAN, |interval| interval[0]);
    let (outcome, what) = if other > own {
        (Verdict::Pass, format!("the given baseline takes {other} B, more than {own} B: no rival"))
    } else if low > 0.0 {
        (Verdict::Fail, format!("the given baseline is better by {:.4} with {other} B against {own} B", found.kld))
    } else {
        (Verdict::Pass, format!("the given baseline is not better, with {other} B against {own} B"))
    };
    Check::new("no_better_at_its_bytes", (low, 0.0), outcome, what)
}

/// The divergence is within the codec's bound.
pub(crate) fn divergence(found: &Measures, bits: f64, bound: f64) -> Check {
    let interval = found.kld_interval.map(|[low, high]| format!(" [{low:.4}, {high:.4}]")).unwrap_or_default();
    let what = format!("{:.4}{interval} nats a token at {bits:.2} bits", found.kld);
    Check::new("kld", (found.kld, bound), verdict(found.kld <= bound), what)
}

/// The vault weighs what its layout says.
pub(crate) fn size(found: Size) -> Check {
    let what = match found.predicted == found.found {
        true => "experts and trunk end where the layout says".to_owned(),
        false => "experts and trunk do not end where the layout of the asked codecs says".to_owned(),
    };
    let pass = found.predicted == found.found;
    Check::new("size", (found.found as f64, found.predicted as f64), verdict(pass), what)
}

/// Every tensor was read by the engine, or decoded where no token needed it.
pub(crate) fn all_read(unread: &[String]) -> Check {
    let what = match unread.len() {
        0 => "every tensor was used".to_owned(),
        _ => format!("never used: {}", listed(unread, String::clone)),
    };
    Check::new("tensors_read", (unread.len() as f64, 0.0), verdict(unread.is_empty()), what)
}

/// Two ways of computing the same agree to a tenth of the codec's bound.
pub(crate) fn same_path(name: &str, found: &PathDifference, bound: f64) -> Check {
    let bound = bound / 10.0;
    let ways = format!("{} against {}", found.ways[0], found.ways[1]);
    let (outcome, what) = match (found.two_ran, found.kld < bound) {
        (false, _) => (Verdict::Inconclusive, format!("the counters do not show that two ways ran: {ways}")),
        (true, true) => (Verdict::Pass, ways),
        (true, false) => (Verdict::Fail, format!("{ways}: the arithmetic alone moves the scores")),
    };
    Check::new(name, (found.kld, bound), outcome, what)
}

/// The evaluation text is not the calibration text; `shares` are the dropped tokens' share and the limit, absent where
/// the vault does not say what calibrated it.
pub(crate) fn text_overlap(shares: Option<(f64, f64)>) -> Check {
    let Some((dropped, most)) = shares else {
        let what = "the vault does not say which text calibrated it: convert it again";
        return Check::new("text_overlap", (f64::NAN, f64::NAN), Verdict::Inconclusive, what);
    };
    let what = match dropped == 0.0 {
        true => "no document is calibration text".to_owned(),
        false => format!("{:.1} % of the tokens were calibration text and are left out", 100.0 * dropped),
    };
    Check::new("text_overlap", (dropped, most), verdict(dropped <= most), what)
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
