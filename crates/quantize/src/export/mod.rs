//! A vault in another program's format.

mod folder;
mod tensors;

use serde::Serialize;

pub use folder::{HfOptions, to_hf};

/// Element type of a dequantised checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// bfloat16, rounded to nearest even.
    Bf16,
    /// Exactly the vault's weights.
    F32,
}

impl Element {
    /// The name on the command line.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "bf16" => Some(Self::Bf16),
            "f32" => Some(Self::F32),
            _ => None,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }

    pub(crate) fn safetensors(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
        }
    }

    /// As config.json spells it.
    pub(crate) fn config(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
        }
    }
}

/// What an export wrote.
#[derive(Debug, Clone, Serialize)]
pub struct ExportReport {
    /// The target.
    pub path: String,
    /// The format.
    pub format: &'static str,
    /// Bytes written.
    pub bytes: u64,
    /// Names of the files.
    pub files: Vec<String>,
    /// Time taken.
    pub seconds: f64,
    /// What the reader should know, one line each.
    pub notes: Vec<String>,
}
