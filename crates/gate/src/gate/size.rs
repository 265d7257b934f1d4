//! What a vault should weigh: the layout of the reference's tensors in the codecs that were asked for.

use smoe_model::Checkpoint;
use smoe_model::store::{Dtype as Stored, TensorStore};
use smoe_vault::{Dtype, ExpertShape, Layout, VaultFile};

use super::claims::Claims;
use super::twin;
use crate::error::GateError;

/// Bytes up to the end of the last blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) predicted: u64,
    pub(crate) found: u64,
}

/// Compares a vault with its prediction: experts and trunk of the reference, codecs as the provenance names them (as
/// the vault has them where it names none), sections as the vault has them.
pub(crate) fn size(file: &VaultFile, checkpoint: &Checkpoint, claims: &Claims) -> Result<Size, GateError> {
    let manifest = file.manifest();
    let mut builder = Layout::builder();
    for section in &manifest.sections {
        builder.section(&section.name, section.length);
    }
    for name in checkpoint.trunk_tensors() {
        let Some(stored) = checkpoint.stored(name) else { continue };
        let shape: Vec<u64> = stored.shape.iter().map(|axis| *axis as u64).collect();
        builder.trunk(name, dtype(file, name, stored.dtype, claims), &shape);
    }
    for record in file.experts() {
        builder.expert(ExpertShape { codecs: claims.codecs.unwrap_or(record.codecs), ..twin::shape(record) });
    }
    let layout = builder.build().map_err(|fault| GateError::input(file.name(), fault.to_string()))?;
    let last = file.experts().iter().map(|record| record.offset + record.length).max();
    Ok(Size { predicted: layout.data_end(), found: last.unwrap_or(0) })
}

/// How the vault should store a trunk tensor.
fn dtype(file: &VaultFile, name: &str, published: Stored, claims: &Claims) -> Dtype {
    let as_published = match published {
        Stored::Bf16 => Dtype::Bf16,
        Stored::F16 => Dtype::F16,
        Stored::F32 => Dtype::F32,
        Stored::Q8 => Dtype::Q8,
    };
    let own = || file.manifest().trunk.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.dtype);
    match &claims.q8 {
        Some(q8) if q8.contains(name) => Dtype::Q8,
        Some(_) => as_published,
        None => own().unwrap_or(as_published),
    }
}
