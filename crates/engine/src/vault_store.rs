//! [`VaultStore`]: a vault's trunk by the names and roles that its manifest gives.

use crate::error::EngineError;
use smoe_model::role::Bindings;
use smoe_model::spec::ModelSpec;
use smoe_model::store::{Dtype, StoreError, Stored, TensorStore};
use smoe_vault::VaultFile;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// An open vault as a model.
pub struct VaultStore {
    file: Arc<VaultFile>,
    spec: ModelSpec,
    bindings: Bindings,
    tensors: HashMap<String, Stored>,
}

impl VaultStore {
    /// Opens a vault.
    ///
    /// # Errors
    /// When the file is no vault, or its manifest holds no model.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        Self::new(Arc::new(VaultFile::open(path)?))
    }

    /// The model of an open vault.
    ///
    /// # Errors
    /// When its manifest holds no model.
    pub fn new(file: Arc<VaultFile>) -> Result<Self, EngineError> {
        let manifest = file.manifest();
        let fail = |part: &'static str, cause: String| EngineError::Manifest { file: file.name().into(), part, cause };
        let spec = serde_json::from_value(manifest.spec.clone()).map_err(|e| fail("spec", e.to_string()))?;
        let bindings =
            serde_json::from_value(manifest.bindings.clone()).map_err(|e| fail("bindings", e.to_string()))?;
        let mut tensors = HashMap::new();
        for tensor in &manifest.trunk {
            let shape = tensor.shape.iter().map(|axis| usize::try_from(*axis)).collect::<Result<_, _>>();
            let shape = shape.map_err(|_| fail("trunk", format!("`{}`: its shape exceeds memory", tensor.name)))?;
            let dtype = match tensor.dtype {
                smoe_vault::Dtype::Bf16 => Dtype::Bf16,
                smoe_vault::Dtype::F16 => Dtype::F16,
                smoe_vault::Dtype::F32 => Dtype::F32,
                smoe_vault::Dtype::Q8 => Dtype::Q8,
            };
            tensors.insert(tensor.name.clone(), Stored { dtype, shape });
        }
        Ok(Self { spec, bindings, tensors, file })
    }

    /// The vault.
    pub fn file(&self) -> &Arc<VaultFile> {
        &self.file
    }
}

impl TensorStore for VaultStore {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn stored(&self, tensor: &str) -> Option<Stored> {
        self.tensors.get(tensor).cloned()
    }

    fn read_stored(&self, tensor: &str, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.file.read_trunk(tensor, offset, out).map_err(|e| StoreError {
            file: e.file,
            item: tensor.to_owned(),
            fault: e.fault.kind.to_string(),
        })
    }
}
