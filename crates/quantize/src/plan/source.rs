//! What a plan is made from.

use super::PlanOptions;
use crate::convert::QuantizeOptions;
use crate::error::{QuantizeError, Result};
use crate::opened::Opened;
use smoe_model::needs::trunk_needs;
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, ModelSpec, OpenOptions, families};
use std::collections::BTreeMap;
use std::path::Path;

/// The largest config.json that is read.
const MAX_CONFIG: u64 = 64 << 20;

/// A model, and what is known of its bytes.
pub(super) struct Source {
    pub(super) kind: &'static str,
    pub(super) spec: ModelSpec,
    pub(super) trunk_bytes: u64,
    /// Exact length of the vault, where headers give it.
    pub(super) vault_bytes: Option<u64>,
    pub(super) mtp_layers: usize,
    pub(super) skipped: BTreeMap<String, u64>,
    pub(super) notes: Vec<String>,
}

pub(super) fn read(path: &Path, options: &PlanOptions) -> Result<Source> {
    let open = OpenOptions { ignore_config: options.ignore_config.clone() };
    if path.is_dir() {
        return from_headers(path, &Checkpoint::open(path, &open)?, options);
    }
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
        return from_config(path, &open);
    }
    from_vault(&crate::opened::open(path)?, options)
}

fn from_vault(vault: &Opened, options: &PlanOptions) -> Result<Source> {
    let other = vault.file.experts().iter().flat_map(|r| r.codecs).any(|codec| codec != options.codec);
    let note = "the vault's experts have another codec: sizes are those of a conversion to the one asked for";
    let length = vault.file.index().header.file_length;
    Ok(Source {
        kind: "vault",
        spec: vault.spec.clone(),
        trunk_bytes: vault.file.manifest().trunk.iter().map(|t| t.length).sum(),
        vault_bytes: (!other).then_some(length),
        mtp_layers: 0,
        skipped: BTreeMap::new(),
        notes: if other { vec![note.into()] } else { Vec::new() },
    })
}

fn from_headers(path: &Path, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<Source> {
    let convert =
        QuantizeOptions { ignore_config: options.ignore_config.clone(), ..QuantizeOptions::new(options.codec) };
    let bytes = |name: &str| {
        checkpoint.stored(name).map_or(0, |stored| {
            let (rows, cols) = stored.rows_cols();
            stored.dtype.bytes(rows, cols) as u64
        })
    };
    let trunk_bytes = checkpoint.trunk_tensors().into_iter().map(bytes).sum();
    let mut skipped = BTreeMap::new();
    for (rule, name) in &checkpoint.report().skipped {
        let elements = checkpoint.stored(name).map_or(0, |s| s.shape.iter().map(|&n| n as u64).product());
        *skipped.entry(rule.clone()).or_default() += elements;
    }
    Ok(Source {
        kind: "checkpoint headers",
        spec: checkpoint.spec().clone(),
        trunk_bytes,
        vault_bytes: Some(crate::convert::vault_bytes(path, &convert)?),
        mtp_layers: 0,
        skipped,
        notes: checkpoint.report().notes.clone(),
    })
}

fn from_config(path: &Path, open: &OpenOptions) -> Result<Source> {
    let len = std::fs::metadata(path).map_err(QuantizeError::io(path, "read"))?.len();
    if len > MAX_CONFIG {
        return Err(QuantizeError::Refused(format!(
            "{}: expected a config.json of at most {MAX_CONFIG} B, found {len} B",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(QuantizeError::io(path, "read"))?;
    let plan = families::spec_from_config(&text, open)?;
    let elements: u64 =
        trunk_needs(&plan.spec).iter().map(|(_, shape)| shape.iter().map(|&n| n as u64).product::<u64>()).sum();
    let note = "from the config alone: no tensor confirmed the family; the trunk is taken as bf16";
    Ok(Source {
        kind: "config.json alone",
        spec: plan.spec,
        trunk_bytes: elements * 2,
        vault_bytes: None,
        mtp_layers: plan.mtp_layers,
        skipped: BTreeMap::new(),
        notes: vec![note.into()],
    })
}
