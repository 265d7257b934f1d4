//! What a conversion did.

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
    /// Whether an interrupted conversion was continued.
    pub resumed: bool,
    /// Nothing was written: `--dry-run`.
    pub dry_run: bool,
    /// Tensors that rules skipped, as (rule, count).
    pub skipped: Vec<(String, usize)>,
    /// What the reader should know, one line each.
    pub notes: Vec<String>,
}

/// Says how the experts were made, in words.
pub(crate) fn method_notes(codec: Codec) -> Vec<String> {
    let mut notes = vec![format!("experts were rounded to nearest at {} bits: nothing was calibrated", codec.bits())];
    if codec.bits() <= 3 {
        notes.push("at 3 bits and below calibration gains much; this version does not calibrate yet".into());
    }
    notes
}
