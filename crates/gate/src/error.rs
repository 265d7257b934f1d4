//! [`GateError`].

use smoe_engine::EngineError;
use smoe_model::CheckpointError;
use smoe_model::store::StoreError;
use smoe_model::text::TextError;
use smoe_vault::VaultError;

use crate::model::ModelFault;

/// Why an evaluation could not be made. All of these are errors of the input or the machine, not verdicts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// A file cannot be read or written.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is not evaluation text.
    #[error("{file}: {reason}")]
    Input {
        /// The file.
        file: String,
        /// What was expected and found.
        reason: String,
    },
    /// The tokenizer failed on a document.
    #[error("{file}: {source}")]
    Text {
        /// The file with the document.
        file: String,
        /// The fault.
        source: TextError,
    },
    /// A model failed on a window.
    #[error("{arm}, window {row}: {source}")]
    Model {
        /// `candidate` or `reference`.
        arm: &'static str,
        /// The window, from 0.
        row: usize,
        /// The fault.
        source: ModelFault,
    },
    /// A model gave what no model gives.
    #[error("{arm}, window {row}: {reason}")]
    Logits {
        /// `candidate` or `reference`.
        arm: &'static str,
        /// The window, from 0.
        row: usize,
        /// What was expected and found.
        reason: String,
    },
    /// The two models cannot be compared.
    #[error("the candidate has a vocabulary of {candidate}, the reference of {reference}; compare two of one model")]
    Vocabulary {
        /// Ids of the candidate.
        candidate: usize,
        /// Ids of the reference.
        reference: usize,
    },
    /// The caller raised the flag.
    #[error("stopped after {rows} of {total} windows")]
    Cancelled {
        /// Windows done.
        rows: usize,
        /// Windows in all.
        total: usize,
    },
    /// The caller raised the flag outside an evaluation.
    #[error("stopped before the end")]
    Stopped,
    /// The reference is refused.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A tensor cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A vault is refused or cannot be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A model cannot be computed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Too much of the evaluation text is calibration text.
    #[error(
        "{file}: {dropped_documents} of {documents} documents ({dropped_tokens} of {tokens} tokens) are calibration text \
         of this vault; expected at most {most_percent} % of the tokens: take another text"
    )]
    Overlap {
        /// The evaluation text.
        file: String,
        /// Documents that overlap.
        dropped_documents: usize,
        /// Documents in all.
        documents: usize,
        /// Tokens of those that overlap.
        dropped_tokens: usize,
        /// Tokens in all.
        tokens: usize,
        /// The limit.
        most_percent: f64,
    },
    /// The run would take more memory than is allowed.
    #[error("needs {needed} B of memory, --ram allows {allowed} B; take shorter windows or more memory")]
    Memory {
        /// Bytes that it would take.
        needed: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
}

impl GateError {
    pub(crate) fn input(file: &str, reason: impl Into<String>) -> Self {
        Self::Input { file: file.to_owned(), reason: reason.into() }
    }
}
