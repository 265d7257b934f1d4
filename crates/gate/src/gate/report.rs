//! [`Report`]: what the gate found, for JSON, for the vault and for the HTML page.

use serde::Serialize;
use serde_json::Value;

use super::checks::{Check, Verdict};
use super::claims::Making;
use super::measures::{Difference, Measures};

/// A verdict with its evidence. Losses and divergences are nats a token; intervals are 95 %, over documents.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in a line.
    pub summary: String,
    /// How the vault was made, by its own account.
    pub made: Making,
    /// The checks that apply.
    pub checks: Vec<Check>,
    /// The vault that is judged.
    pub candidate: ArmReport,
    /// Its round-to-nearest twin; absent where the candidate is not calibrated.
    pub baseline: Option<ArmReport>,
    /// A baseline that was given and is not the candidate's twin.
    pub given: Option<ArmReport>,
    /// The unquantised model.
    pub reference: ReferenceReport,
    /// Candidate less baseline.
    pub difference: Option<Difference>,
    /// Candidate less the given baseline.
    pub given_difference: Option<Difference>,
    /// The evaluation text.
    pub text: TextReport,
    /// Layers with experts.
    pub layers: Vec<LayerReport>,
    /// The document with the largest mean divergence.
    pub worst_document: Option<WorstDocument>,
    /// The expert matrix whose output is furthest from the reference's.
    pub worst_tensor: Option<WorstTensor>,
    /// How much of the model the text reached.
    pub experts: ExpertsReport,
    /// Sums by document: what the intervals are made from.
    pub documents: Vec<DocumentReport>,
    /// How intervals are made.
    pub bootstrap: BootstrapReport,
    /// The program's version.
    pub smoe: &'static str,
    /// Which build of it: XXH3-64 of the program's own file, as 16 hexadecimal digits.
    pub build: Option<String>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// One vault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmReport {
    /// The file's name.
    pub name: String,
    /// How it was made, by its own account.
    pub made: Making,
    /// Codecs of its experts.
    pub codecs: Vec<&'static str>,
    /// Codes and scales over expert weights.
    pub bits_per_weight: f64,
    /// The file.
    pub bytes: u64,
    /// Expert blobs and trunk: what arms of unequal size are compared at.
    pub model_bytes: u64,
    /// Expert blobs.
    pub expert_bytes: u64,
    /// Absent where the evaluation could not end.
    #[serde(flatten)]
    pub measures: Option<Measures>,
}

/// The unquantised model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReferenceReport {
    /// The folder's name.
    pub name: String,
    /// Mean negative log-likelihood.
    pub nll: Option<f64>,
    /// Its expert weights at 16 bits.
    pub expert_bytes: u64,
}

/// The evaluation text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextReport {
    /// The file's name.
    pub source: String,
    /// Rows.
    pub windows: usize,
    /// Documents that judged.
    pub documents: usize,
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Documents that were left out: they are calibration text.
    pub dropped_documents: usize,
    /// Their tokens.
    pub dropped_tokens: usize,
    /// XXH3-64 of the ids that judged, as 16 hexadecimal digits.
    pub checksum: String,
}

/// Relative output errors by projection: `sum |Q x - W x|^2 / sum |W x|^2` over a layer's experts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OutputShares {
    /// Of gate.
    pub gate: Option<f64>,
    /// Of up.
    pub up: Option<f64>,
    /// Of down.
    pub down: Option<f64>,
}

/// One layer with experts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerReport {
    /// Its index, dense layers counted.
    pub layer: usize,
    /// Share of the router's choices that the reference makes too.
    pub router_overlap: Option<f64>,
    /// The same of the baseline.
    pub baseline_router_overlap: Option<f64>,
    /// The candidate's output errors.
    pub output_error: OutputShares,
    /// The baseline's.
    pub baseline_output_error: Option<OutputShares>,
    /// Tokens that the candidate's router sent to each expert.
    pub tokens: Vec<u64>,
}

/// The document that fares worst.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstDocument {
    /// Its name.
    pub name: String,
    /// Its tokens.
    pub tokens: u64,
    /// Its mean divergence.
    pub kld: f64,
    /// Its loss less the reference's.
    pub dnll: f64,
}

/// The matrix that fares worst.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstTensor {
    /// Decoder layer.
    pub layer: usize,
    /// Routed expert.
    pub expert: usize,
    /// `gate`, `up` or `down`.
    pub projection: &'static str,
    /// Relative output error.
    pub error: f64,
    /// The same of its twin.
    pub baseline_error: Option<f64>,
    /// Tokens looked at.
    pub tokens: u64,
}

/// How much of the model the text reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExpertsReport {
    /// Routed experts.
    pub total: usize,
    /// Those with a token of the text.
    pub reached: usize,
    /// Those without one: decoded once, and judged by nothing else.
    pub decoded_only: usize,
    /// Expert matrices that were compared with their twins.
    pub compared_with_baseline: usize,
    /// Those of them that equal it.
    pub equal_to_baseline: usize,
}

/// Sums over one document's tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DocumentReport {
    /// Its name.
    pub name: String,
    /// Predicted tokens.
    pub tokens: u64,
    /// Sum of the reference's losses.
    pub reference_nll: f64,
    /// Sums of the candidate.
    pub candidate: SumsReport,
    /// Sums of the baseline.
    pub baseline: Option<SumsReport>,
    /// Sums of a given baseline that is not the twin.
    pub given: Option<SumsReport>,
}

/// Sums of one vault over one document.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SumsReport {
    /// Of the losses.
    pub nll: f64,
    /// Of the divergences.
    pub kld: f64,
    /// Tokens at which it agrees with the reference.
    pub same: u64,
}

/// How intervals are made (see [`crate::bootstrap`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BootstrapReport {
    /// Seed of the draws.
    pub seed: u64,
    /// Resamples.
    pub resamples: usize,
}

impl Report {
    /// The whole report as JSON.
    ///
    /// # Panics
    /// Never: it holds text and numbers.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("text and numbers serialise")
    }

    /// What is recorded in the vault: everything but the tables by document and by expert.
    ///
    /// # Panics
    /// Never, as [`Report::to_json`].
    #[must_use]
    pub fn evidence(&self) -> Value {
        let mut value = self.to_json();
        if let Some(object) = value.as_object_mut() {
            object.remove("documents");
            let layers = object.get_mut("layers").and_then(Value::as_array_mut);
            for layer in layers.into_iter().flatten().filter_map(Value::as_object_mut) {
                layer.remove("tokens");
            }
        }
        value
    }
}
