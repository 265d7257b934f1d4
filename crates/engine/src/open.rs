//! Opening a model by its path, whatever holds it.

use crate::check::check;
use crate::engine::{Engine, EngineOptions};
use crate::error::EngineError;
use crate::sources::{CheckpointExperts, VaultExperts};
use crate::vault_store::VaultStore;
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, OpenOptions};
use std::path::Path;
use std::sync::Arc;

impl Engine {
    /// Opens a vault or, unquantised, a checkpoint folder.
    ///
    /// # Errors
    /// When it is neither, is refused, or cannot be computed.
    pub fn open(path: &Path, options: &EngineOptions) -> Result<Self, EngineError> {
        if !path.is_dir() {
            return Self::of_vault(&VaultStore::open(path)?, options);
        }
        let checkpoint = Checkpoint::open(path, &OpenOptions::default())?;
        Self::of_checkpoint(&Arc::new(checkpoint), options)
    }

    /// An engine over an open vault, its experts in memory.
    ///
    /// # Errors
    /// When the model cannot be computed, or a tensor or expert cannot be read or is damaged.
    pub fn of_vault(store: &VaultStore, options: &EngineOptions) -> Result<Self, EngineError> {
        check(store.spec())?;
        let source = VaultExperts::load(store.file(), store.spec())?;
        let engine = Self::new(store, Box::new(source), options)?;
        // Blobs and tensors were checked as they were read; a vault with a damaged byte elsewhere does not answer either.
        store.file().check_unread()?;
        Ok(engine)
    }

    /// An engine over an open checkpoint; its experts are read when first needed.
    ///
    /// # Errors
    /// When the model cannot be computed or a tensor cannot be read.
    pub fn of_checkpoint(checkpoint: &Arc<Checkpoint>, options: &EngineOptions) -> Result<Self, EngineError> {
        let source = CheckpointExperts::new(checkpoint.spec(), checkpoint.clone());
        Self::new(&**checkpoint, Box::new(source), options)
    }
}
