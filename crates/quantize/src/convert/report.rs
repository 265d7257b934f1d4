//! What a conversion did.

use super::calibration::Calibrating;
use crate::calibrate::{Exempt, Outcome, Projection, TensorReport};
use crate::capture::CapturePlan;
use serde::Serialize;
use smoe_codec::Codec;

/// The result, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct QuantizeReport {
    /// The vault's path.
    pub vault: String,
    /// Its bytes.
    pub bytes: u64,
    /// The codec of the experts.
    pub codec: &'static str,
    /// How the trunk is stored.
    pub trunk: &'static str,
    /// Bits of codes and scales over expert weights.
    pub bits_per_weight: f64,
    /// Routed experts.
    pub experts: u64,
    /// Weights of the text model.
    pub parameters: u64,
    /// Bytes of the trunk in the vault.
    pub trunk_bytes: u64,
    /// Bytes of the expert blobs.
    pub expert_bytes: u64,
    /// Time taken.
    pub seconds: f64,
    /// The most memory that the process held.
    pub peak_rss_bytes: Option<u64>,
    /// Expert matrices that were calibrated.
    pub calibrated_tensors: u64,
    /// Expert matrices that were rounded to nearest.
    pub rtn_tensors: u64,
    /// What the calibration did; `None` without one, and before it.
    pub calibration: Option<CalibrationReport>,
    /// Whether an interrupted conversion was continued.
    pub resumed: bool,
    /// Nothing was written: `--dry-run`.
    pub dry_run: bool,
    /// Tensors that rules skipped, as (rule, count).
    pub skipped: Vec<(String, usize)>,
    /// What the reader should know, one line each.
    pub notes: Vec<String>,
}

/// What a calibration did.
#[derive(Debug, Clone, Serialize)]
pub struct CalibrationReport {
    /// What it was planned to take.
    pub plan: CapturePlan,
    /// Calibrated matrices.
    pub calibrated: usize,
    /// Matrices rounded to nearest.
    pub rtn: usize,
    /// Experts that no token reached: calibrated on the prior.
    pub experts_without_tokens: usize,
    /// Effective tokens by input column of gate and up, over the experts.
    pub gate_up_tokens_per_column: Spread,
    /// The same of down.
    pub down_tokens_per_column: Spread,
    /// Share of codes that differ from rounding to nearest, over the calibrated matrices.
    pub codes_differ: Spread,
    /// Output error on the calibration text by that of rounding to nearest.
    pub error_ratio: Spread,
    /// The same on text that chose no codes.
    pub held_out_error_ratio: Spread,
    /// Matrices with rows that come from a descent from the rounded codes.
    pub from_twin: usize,
    /// Matrices whose damping was raised.
    pub damping_raised: usize,
    /// Why the vault is not for use, where it is a diagnosis.
    pub diagnostic: Option<String>,
}

/// Least, middle and greatest of some numbers; zeros where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(0.0);
        Self { min: at(0), median: at(values.len() / 2), max: at(values.len().saturating_sub(1)) }
    }
}

impl CalibrationReport {
    pub(super) fn new(calibrating: &Calibrating, reports: &[TensorReport]) -> Self {
        let columns = |down: bool| {
            let of = reports.iter().filter(move |r| (r.at.projection == Projection::Down) == down);
            Spread::of(of.map(|r| r.tokens_per_column))
        };
        let calibrated = || {
            reports.iter().filter_map(|r| match &r.outcome {
                Outcome::Calibrated { facts, held_out } => Some((facts, held_out)),
                Outcome::Rtn { .. } => None,
            })
        };
        let held = calibrated().filter_map(|(_, held)| held.as_ref()).filter(|h| h.twin_error > 0.0);
        let seen = calibrated().filter(|(f, _)| f.twin_objective > 0.0);
        let without = |r: &&TensorReport| r.tokens == 0 && r.at.projection == Projection::Gate;
        Self {
            plan: calibrating.plan.clone(),
            calibrated: calibrated().count(),
            rtn: reports.len() - calibrated().count(),
            experts_without_tokens: reports.iter().filter(without).count(),
            gate_up_tokens_per_column: columns(false),
            down_tokens_per_column: columns(true),
            codes_differ: Spread::of(calibrated().map(|(f, _)| f.codes_differ)),
            error_ratio: Spread::of(seen.map(|(f, _)| f.objective / f.twin_objective)),
            held_out_error_ratio: Spread::of(held.map(|h| h.error / h.twin_error)),
            from_twin: calibrated().filter(|(f, _)| f.rows_from_twin > 0).count(),
            damping_raised: calibrated().filter(|(f, _)| f.damping_raised > 0).count(),
            diagnostic: calibrating.diagnostic.clone(),
        }
    }
}

/// What the reader should know of a calibration, in words.
pub(super) fn calibration_notes(reports: &[TensorReport]) -> Vec<String> {
    let gates = reports.iter().filter(|r| r.at.projection == Projection::Gate && r.tokens == 0);
    let starved: Vec<_> = gates.map(|r| format!("layer {} expert {}", r.at.layer, r.at.expert)).collect();
    let exempt = reports.iter().filter_map(|r| match r.outcome {
        Outcome::Rtn { exempt: Exempt::NotAskedFor } | Outcome::Calibrated { .. } => None,
        Outcome::Rtn { exempt } => Some(format!("{} ({})", r.at, exempt.reason())),
    });
    let exempt: Vec<_> = exempt.collect();
    let mut notes = Vec::new();
    if !starved.is_empty() {
        let names = first_of(&starved);
        notes.push(format!("{} experts saw no token, and lean on all tokens of their layer: {names}", starved.len()));
    }
    if !exempt.is_empty() {
        notes.push(format!("{} matrices were rounded to nearest: {}", exempt.len(), first_of(&exempt)));
    }
    notes
}

/// The first of many, and how many more there are.
fn first_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let rest = names.len().saturating_sub(SHOWN);
    let more = if rest == 0 { String::new() } else { format!(" and {rest} more") };
    names[..names.len() - rest].join(", ") + &more
}

/// Says how the experts were made, in words.
pub(crate) fn method_notes(codec: Codec, why: &str) -> Vec<String> {
    let mut notes = vec![format!("experts were rounded to nearest at {} bits: {why}", codec.bits())];
    if codec.bits() <= 3 {
        notes.push("at 3 bits and below calibration gains much: --calibrate TEXT".into());
    }
    notes
}
