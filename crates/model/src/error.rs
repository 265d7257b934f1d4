//! Why a checkpoint was refused.

use std::fmt;

/// A refusal: which file, which tensor or key, what was expected and found, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointError {
    /// File name within the folder, or the folder's path.
    pub file: String,
    /// Tensor or config key.
    pub item: Option<String>,
    /// Expected and found.
    pub fault: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl CheckpointError {
    /// A fault of a whole file.
    pub fn file(file: impl Into<String>, fault: impl Into<String>) -> Self {
        Self { file: file.into(), item: None, fault: fault.into(), hint: None }
    }

    /// A fault of a tensor or key of a file.
    pub fn item(file: impl Into<String>, item: impl Into<String>, fault: impl Into<String>) -> Self {
        Self { file: file.into(), item: Some(item.into()), fault: fault.into(), hint: None }
    }

    /// A fault of a key of `config.json`.
    pub(crate) fn key(key: impl Into<String>, fault: impl Into<String>) -> Self {
        Self::item("config.json", key, fault)
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if let Some(item) = &self.item {
            write!(f, "`{item}`: ")?;
        }
        f.write_str(&self.fault)
    }
}

impl std::error::Error for CheckpointError {}

/// `a`, `b` and `c`, the first `limit` of them.
pub(crate) fn list<S: AsRef<str>>(names: &[S], limit: usize) -> String {
    let mut text = names.iter().take(limit).map(|n| format!("`{}`", n.as_ref())).collect::<Vec<_>>().join(", ");
    if names.len() > limit {
        text += &format!(" and {} more", names.len() - limit);
    }
    text
}
