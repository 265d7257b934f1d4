//! What a run of the gate keeps in memory, known from headers.

use smoe_engine::{EngineOptions, MemoryEstimate};
use smoe_model::counts::counts;
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, ModelSpec, OpenOptions};
use smoe_vault::VaultFile;

use super::claims::{Claims, Making};
use super::{GateOptions, Subjects};
use crate::error::GateError;
use crate::windows::Windows;

/// Refuses a run that would hold more than `options.ram`, before a weight is read.
pub(super) fn keep_promise(subjects: Subjects<'_>, windows: &Windows, options: &GateOptions) -> Result<(), GateError> {
    let Some(allowed) = options.ram else { return Ok(()) };
    let open = OpenOptions { ignore_config: options.ignore_config.clone() };
    let checkpoint = Checkpoint::open(subjects.reference, &open)?;
    let (spec, chunk) = (checkpoint.spec(), EngineOptions::default().chunk);
    let of = |trunk, experts| MemoryEstimate::new(spec, trunk, experts, windows.longest(), chunk).total();
    let weights = counts(spec);
    // One reference for good, and its trunk once more on each other instruction set, one at a time.
    let mut needed = of(2 * weights.trunk, 2 * weights.experts).saturating_add(2 * weights.trunk);
    let candidate = VaultFile::open(subjects.candidate)?;
    let given = subjects.baseline.map(VaultFile::open).transpose()?;
    let calibrated = Claims::of(&candidate.manifest().provenance).making == Making::Calibrated;
    // The twin made on the spot is as large as the candidate.
    let twin = calibrated.then_some(&candidate);
    let vaults = [Some(&candidate), given.as_ref(), twin];
    for vault in vaults.into_iter().flatten() {
        let trunk = vault.manifest().trunk.iter().map(|tensor| tensor.length).sum();
        let experts = vault.experts().iter().map(|record| record.length).sum();
        needed = needed.saturating_add(of(trunk, experts)).saturating_add(logits(spec, windows));
    }
    needed = needed.saturating_add(logits(spec, windows));
    if needed > allowed {
        return Err(GateError::Memory { needed, allowed });
    }
    Ok(())
}

/// Logits of a window.
fn logits(spec: &ModelSpec, windows: &Windows) -> u64 {
    4 * spec.vocab as u64 * windows.longest() as u64
}
