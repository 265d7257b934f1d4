//! What can be wrong with a vault: where ([`Place`]), what ([`FaultKind`]), and in which file ([`VaultError`]).

use std::fmt;
use std::io;
use std::path::Path;

/// A part of a vault, by the name that people know it by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The file as a whole.
    File,
    /// The first 64 bytes.
    Header,
    /// The JSON manifest.
    Manifest,
    /// The expert table.
    ExpertTable,
    /// A small section (`tokenizer.json`, ...).
    Section(String),
    /// A trunk tensor.
    Trunk(String),
    /// An expert's blob or record.
    Expert {
        /// Decoder layer.
        layer: u32,
        /// Expert within the layer.
        expert: u32,
    },
    /// A manifest that a later one replaced, by age.
    RetiredManifest(usize),
    /// The zero bytes before a part.
    PaddingBefore(Box<Place>),
    /// Bytes beyond the end that the header gives.
    Tail,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => write!(f, "file"),
            Self::Header => write!(f, "header"),
            Self::Manifest => write!(f, "manifest"),
            Self::ExpertTable => write!(f, "expert table"),
            Self::Section(name) => write!(f, "section `{name}`"),
            Self::Trunk(name) => write!(f, "trunk tensor `{name}`"),
            Self::Expert { layer, expert } => write!(f, "layer {layer} expert {expert}"),
            Self::RetiredManifest(age) => write!(f, "retired manifest {age}"),
            Self::PaddingBefore(place) => write!(f, "padding before {place}"),
            Self::Tail => write!(f, "tail"),
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The bytes are not those that were written.
    Damaged {
        /// The recorded checksum.
        expected: u64,
        /// The checksum of what was read.
        found: u64,
    },
    /// The file ends too early.
    Truncated {
        /// Bytes that the file must have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Padding that is not zero.
    NotZero {
        /// Offset in the file of the first such byte.
        offset: u64,
    },
    /// The final name is taken.
    Exists,
    /// A statement of the file that cannot be accepted.
    Refused(String),
    /// The operating system refused.
    Io {
        /// What was tried ("read", "write", ...).
        doing: &'static str,
        /// Its kind, for decisions.
        kind: io::ErrorKind,
        /// Its text, for people.
        text: String,
    },
}

impl FaultKind {
    pub(crate) fn io(doing: &'static str, error: &io::Error) -> Self {
        Self::Io { doing, kind: error.kind(), text: error.to_string() }
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }

    /// This fault, at a place.
    pub(crate) fn at(self, place: Place) -> Fault {
        Fault { place, kind: self }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { expected, found } => write!(
                f,
                "damaged: checksum expected {expected:016x}, found {found:016x}; copy the file again or convert again"
            ),
            Self::Truncated { expected, found } => {
                write!(f, "expected {expected} B in the file, found {found} B; copy the file again or convert again")
            }
            Self::NotZero { offset } => {
                write!(f, "damaged: expected zero bytes, found another at offset {offset}; copy the file again")
            }
            Self::Exists => write!(f, "it exists already; choose another name, or `--force` to replace it"),
            Self::Refused(text) => f.write_str(text),
            Self::Io { doing, text, .. } => write!(f, "cannot {doing}: {text}"),
        }
    }
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The part.
    pub place: Place,
    /// What is wrong with it.
    pub kind: FaultKind,
}

impl Fault {
    /// This fault, in a file.
    #[must_use]
    pub fn in_file(self, file: &str) -> VaultError {
        VaultError { file: file.to_string(), fault: self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.kind)
    }
}

impl std::error::Error for Fault {}

/// A fault, and the file that has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {fault}")]
pub struct VaultError {
    /// The file's name as the user gave it.
    pub file: String,
    /// Where and what.
    pub fault: Fault,
}

impl VaultError {
    pub(crate) fn refused(path: &Path, text: impl Into<String>) -> Self {
        FaultKind::refused(text).at(Place::File).in_file(&path.display().to_string())
    }

    pub(crate) fn io(path: &Path, doing: &'static str, error: &io::Error) -> Self {
        FaultKind::io(doing, error).at(Place::File).in_file(&path.display().to_string())
    }
}
