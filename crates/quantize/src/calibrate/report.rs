//! What happened to each matrix, and the rules by which a calibration that did nothing is a failure.

use super::error::CalibrateError;
use super::recipe::Arm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// One of an expert's matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Projection {
    /// `[width, hidden]`, through the activation.
    Gate,
    /// `[width, hidden]`.
    Up,
    /// `[hidden, width]`.
    Down,
}

impl Projection {
    /// In stored order.
    pub const ALL: [Self; 3] = [Self::Gate, Self::Up, Self::Down];

    /// `gate`, `up` or `down`.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["gate", "up", "down"][self as usize]
    }

    /// Whether an arm calibrates it.
    #[must_use]
    pub fn is_in(self, arm: Arm) -> bool {
        match arm {
            Arm::Both => true,
            Arm::GateUp => self != Self::Down,
            Arm::Down => self == Self::Down,
        }
    }
}

/// Names an expert matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TensorAt {
    /// Decoder layer.
    pub layer: usize,
    /// Routed expert.
    pub expert: usize,
    /// Which of its matrices.
    pub projection: Projection,
}

impl fmt::Display for TensorAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer {} expert {} {}", self.layer, self.expert, self.projection.name())
    }
}

/// Why a matrix was rounded to nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exempt {
    /// The arm does not calibrate this projection.
    NotAskedFor,
    /// Its inputs are zero on every token, routed or not.
    NoSignal,
    /// Its weights are all zero.
    ZeroWeights,
    /// No token was routed to the expert, and plain GPTQ has no prior.
    NoTokens,
}

impl Exempt {
    /// In words.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotAskedFor => "not asked for",
            Self::NoSignal => "its inputs are zero on every token",
            Self::ZeroWeights => "its weights are all zero",
            Self::NoTokens => "no token was routed to it, and plain GPTQ has no prior",
        }
    }
}

/// Output error on the last sixteenth of the windows, of codes that were chosen on the rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// `tr((W - Q) A (W - Q)^T)` of the calibrated codes.
    pub error: f64,
    /// Of the round-to-nearest twin.
    pub twin_error: f64,
    /// Routed tokens behind it; 0 where it was measured on the prior.
    pub tokens: u64,
}

/// What the solver did with a matrix.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// `tr((W* - Q) A (W* - Q)^T)`, A damped.
    pub objective: f64,
    /// The same of the round-to-nearest twin.
    pub twin_objective: f64,
    /// Damping used, as a share of the mean diagonal.
    pub damping: f32,
    /// How often it had to be raised tenfold.
    pub damping_raised: u32,
    /// Input columns that are zero on every token.
    pub dead_columns: usize,
    /// Rows whose refit scales were worse after rounding to f16 and were not taken.
    pub refits_rejected: usize,
    /// Scales that kept their old value in a refit.
    pub scales_kept: usize,
    /// Rows whose codes come from a descent from the twin's.
    pub rows_from_twin: usize,
    /// Columns that a descent visited, summed over blocks of rows.
    pub columns_visited: usize,
    /// Those of them where some code moved.
    pub columns_moved: usize,
    /// Share of the codes that differ from the twin's.
    pub codes_differ: f64,
    /// Whether codes and scales are the twin's, bytewise.
    pub equals_twin: bool,
}

/// How a matrix was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "made")]
pub enum Outcome {
    /// Calibrated.
    Calibrated {
        /// What the solver did.
        facts: Facts,
        /// The gain on windows that it did not see.
        held_out: Option<HeldOut>,
    },
    /// Rounded to nearest.
    Rtn {
        /// Why.
        exempt: Exempt,
    },
}

/// The record of a matrix in the vault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorReport {
    /// Which.
    #[serde(flatten)]
    pub at: TensorAt,
    /// Tokens routed to the expert.
    pub tokens: u64,
    /// Their effective number, `(sum g^2)^2 / sum g^4`.
    pub effective_tokens: f64,
    /// Effective tokens by input column.
    pub tokens_per_column: f64,
    /// Weight of the expert's own statistic against the prior.
    pub own_share: f64,
    /// How it was made.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Totals of a calibration that passed [`check_reports`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Calibrated matrices.
    pub calibrated: usize,
    /// Matrices rounded to nearest.
    pub rtn: usize,
    /// Experts that no token reached.
    pub experts_without_tokens: usize,
    /// Matrices with rows that come from a descent from the twin's codes.
    pub from_twin: usize,
    /// Matrices whose damping was raised.
    pub damping_raised: usize,
}

/// Judges the reports of all layers: each expected matrix has one report, no calibrated matrix is its twin, no layer
/// and no projection that was asked for is exempt as a whole.
///
/// # Errors
/// [`CalibrateError::Missing`], [`CalibrateError::EqualsTwin`] or [`CalibrateError::AllExempt`].
pub fn check_reports(expected: &[TensorAt], reports: &[TensorReport], arm: Arm) -> Result<Summary, CalibrateError> {
    let found: BTreeSet<TensorAt> = reports.iter().map(|r| r.at).collect();
    let missing: Vec<_> = expected.iter().filter(|at| !found.contains(at)).copied().collect();
    if !missing.is_empty() || found.len() != reports.len() || reports.len() != expected.len() {
        return Err(CalibrateError::Missing { expected: expected.len(), found: reports.len(), missing });
    }
    let equal = |r: &&TensorReport| matches!(&r.outcome, Outcome::Calibrated { facts, .. } if facts.equals_twin);
    let twins: Vec<_> = reports.iter().filter(equal).map(|r| r.at).collect();
    if !twins.is_empty() {
        return Err(CalibrateError::EqualsTwin(twins));
    }
    let asked = || reports.iter().filter(|r| r.at.projection.is_in(arm));
    for layer in reports.iter().map(|r| r.at.layer).collect::<BTreeSet<_>>() {
        not_all_exempt(&format!("layer {layer}"), asked().filter(|r| r.at.layer == layer))?;
    }
    for projection in Projection::ALL.into_iter().filter(|p| p.is_in(arm)) {
        let of = asked().filter(|r| r.at.projection == projection);
        not_all_exempt(&format!("projection {}", projection.name()), of)?;
    }
    Ok(summary(reports))
}

fn not_all_exempt<'a>(place: &str, reports: impl Iterator<Item = &'a TensorReport>) -> Result<(), CalibrateError> {
    let mut why = "there is none";
    for report in reports {
        match report.outcome {
            Outcome::Calibrated { .. } => return Ok(()),
            Outcome::Rtn { exempt } => why = exempt.reason(),
        }
    }
    Err(CalibrateError::AllExempt { place: place.to_string(), why: why.to_string() })
}

fn summary(reports: &[TensorReport]) -> Summary {
    let mut summary = Summary::default();
    for report in reports {
        let without = report.tokens == 0 && report.at.projection == Projection::Gate;
        summary.experts_without_tokens += usize::from(without);
        match &report.outcome {
            Outcome::Rtn { .. } => summary.rtn += 1,
            Outcome::Calibrated { facts, .. } => {
                summary.calibrated += 1;
                summary.from_twin += usize::from(facts.rows_from_twin > 0);
                summary.damping_raised += usize::from(facts.damping_raised > 0);
            }
        }
    }
    summary
}
