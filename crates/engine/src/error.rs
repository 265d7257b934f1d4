//! [`EngineError`].

use smoe_model::CheckpointError;
use smoe_model::store::StoreError;
use smoe_vault::VaultError;

/// Why the engine could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A tensor or expert could not be read.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The vault is refused.
    #[error("{0}")]
    Vault(#[from] VaultError),
    /// A vault's manifest does not describe a model that this program knows.
    #[error("{file}: {part}: {cause}")]
    Manifest {
        /// The vault.
        file: String,
        /// Which part of its manifest.
        part: &'static str,
        /// What is wrong.
        cause: String,
    },
    /// The spec asks for something that no engine can compute.
    #[error("model spec: {0}")]
    Spec(String),
    /// A role of the spec has no tensor.
    #[error("model: no tensor plays {role}; the file does not fit its own description, convert it again")]
    MissingRole {
        /// The role.
        role: String,
    },
    /// A tensor's shape contradicts the spec.
    #[error("model: {role}: expected [{}, {}], found [{}, {}]", expected[0], expected[1], found[0], found[1])]
    Shape {
        /// The role.
        role: String,
        /// Rows and columns by the spec.
        expected: [usize; 2],
        /// Rows and columns stored.
        found: [usize; 2],
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} at position {position} lies outside the vocabulary of {vocab}")]
    TokenId {
        /// The id.
        id: u32,
        /// Its position in the input.
        position: usize,
        /// Rows of the embedding.
        vocab: usize,
    },
    /// No tokens at all.
    #[error("no tokens to start from: give a prompt or ids")]
    NoTokens,
    /// More tokens than the context holds.
    #[error(
        "{wanted} tokens do not fit the context of {context}; shorten the input or raise the context where the model \
         allows it"
    )]
    ContextFull {
        /// Tokens after the call.
        wanted: usize,
        /// Positions.
        context: usize,
    },
    /// A context beyond what the model's rotary table holds.
    #[error("a context of {wanted} is beyond the {limit} positions that the model's rotary table holds")]
    ContextLimit {
        /// Asked for.
        wanted: usize,
        /// Possible.
        limit: usize,
    },
    /// The logits hold no number.
    #[error("the logits at position {position} hold no finite number; the weights are damaged")]
    NotANumber {
        /// Position in the session.
        position: usize,
    },
    /// An expert could not be read; several may have waited for the same read.
    #[error("{0}")]
    Expert(std::sync::Arc<VaultError>),
    /// A drive did not answer.
    #[error(
        "layer {layer}, expert {expert}: {what} in {seconds} s; the drive may be gone or busy, or --ram too small for so \
         many at once"
    )]
    Stalled {
        /// Layer.
        layer: usize,
        /// Expert.
        expert: u32,
        /// What did not happen.
        what: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// A wait was given up because the user wished so.
    #[error("interrupted")]
    Interrupted,
    /// An earlier pass over this session failed.
    #[error("an earlier pass over this session failed half way; start a new session")]
    SessionTorn,
    /// Threads could not be started.
    #[error("cannot start {threads} threads: {cause}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why not.
        cause: String,
    },
    /// The checkpoint is refused.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// A file of reference outputs cannot be used.
    #[error("{file}: {fault}")]
    Golden {
        /// Its name.
        file: String,
        /// What is wrong.
        fault: String,
    },
    /// The device failed.
    #[error("device: {0}")]
    Device(String),
}
