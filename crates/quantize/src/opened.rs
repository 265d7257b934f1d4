//! A vault with its model parsed.

use crate::error::{QuantizeError, Result};
use smoe_model::store::Dtype;
use smoe_model::{Bindings, ModelSpec};
use smoe_vault::VaultFile;
use std::path::Path;

/// An open vault, its spec and its bindings.
pub(crate) struct Opened {
    pub(crate) file: VaultFile,
    pub(crate) spec: ModelSpec,
    pub(crate) bindings: Bindings,
}

pub(crate) fn open(path: &Path) -> Result<Opened> {
    let file = VaultFile::open(path)?;
    let fault = |what: &str, e: serde_json::Error| {
        QuantizeError::Refused(format!(
            "{}: manifest: its {what} is not one that this version knows: {e}",
            path.display()
        ))
    };
    let spec = serde_json::from_value(file.manifest().spec.clone()).map_err(|e| fault("model", e))?;
    let bindings = serde_json::from_value(file.manifest().bindings.clone()).map_err(|e| fault("bindings", e))?;
    Ok(Opened { file, spec, bindings })
}

/// The same element type as the model's seam names it.
pub(crate) fn dtype(stored: smoe_vault::Dtype) -> Dtype {
    match stored {
        smoe_vault::Dtype::Bf16 => Dtype::Bf16,
        smoe_vault::Dtype::F16 => Dtype::F16,
        smoe_vault::Dtype::F32 => Dtype::F32,
        smoe_vault::Dtype::Q8 => Dtype::Q8,
    }
}

/// The same element type as the vault names it.
pub(crate) fn vault_dtype(dtype: Dtype) -> smoe_vault::Dtype {
    match dtype {
        Dtype::Bf16 => smoe_vault::Dtype::Bf16,
        Dtype::F16 => smoe_vault::Dtype::F16,
        Dtype::F32 => smoe_vault::Dtype::F32,
        Dtype::Q8 => smoe_vault::Dtype::Q8,
    }
}
