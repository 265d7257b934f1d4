//! What can go wrong, as values.

use crate::calibrate::CalibrateError;
use std::path::{Path, PathBuf};

/// A job that was refused, failed or was stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// A file or folder could not be read or written.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was tried: "create", "write".
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The target exists.
    #[error("{} exists; --force replaces it", .0.display())]
    Exists(PathBuf),
    /// Too little space, found before a byte was written.
    #[error("{}: expected {needed} B of free space, found {free} B; choose another drive or free some", path.display())]
    NoSpace {
        /// The folder that was to hold the output.
        path: PathBuf,
        /// Bytes that the job would write.
        needed: u64,
        /// Bytes that are free to this user.
        free: u64,
    },
    /// The checkpoint was refused.
    #[error(transparent)]
    Checkpoint(#[from] smoe_model::CheckpointError),
    /// A tensor could not be read.
    #[error(transparent)]
    Store(#[from] smoe_model::store::StoreError),
    /// The vault could not be read or written.
    #[error(transparent)]
    Vault(#[from] smoe_vault::VaultError),
    /// A tokenizer or chat template was refused.
    #[error(transparent)]
    Text(#[from] smoe_model::text::TextError),
    /// The model could not be computed.
    #[error(transparent)]
    Engine(#[from] smoe_engine::EngineError),
    /// A calibration that failed; nothing is left under the final name.
    #[error(transparent)]
    Calibrate(CalibrateError),
    /// A weight that no codec can store, with its file, tensor and row.
    #[error("{0}")]
    BadWeight(String),
    /// What was asked for makes no sense or is not supported; the text says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// The caller's flag was set.
    #[error("stopped before the end")]
    Cancelled,
}

impl From<CalibrateError> for QuantizeError {
    fn from(error: CalibrateError) -> Self {
        match error {
            // What a source of ours failed with is our own error again: a cancelled job stays one.
            CalibrateError::Source { layer, source } => match source.downcast::<Self>() {
                Ok(own) => *own,
                Err(source) => Self::Calibrate(CalibrateError::Source { layer, source }),
            },
            other => Self::Calibrate(other),
        }
    }
}

impl QuantizeError {
    /// Whether it is an answer (the calibration did nothing, or not what it should) and no fault of what was given.
    #[must_use]
    pub fn is_negative_result(&self) -> bool {
        matches!(self, Self::Calibrate(error) if !matches!(error, CalibrateError::Options(_)))
    }

    /// For `map_err` on I/O.
    pub(crate) fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), what, source }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, QuantizeError>;
