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
        write!(f, "{}: ", Safe(&self.file))?;
        if let Some(item) = &self.item {
            write!(f, "`{}`: ", Safe(item))?;
        }
        Safe(&self.fault).fmt(f)
    }
}

impl std::error::Error for CheckpointError {}

/// Text from a file, for a terminal: what would act on it is spelt, and no more than fits on a screen.
struct Safe<'a>(&'a str);

/// Characters of a message's part that are shown.
const SHOWN: usize = 1500;

impl fmt::Display for Safe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Controls, and the marks that turn the direction of writing or take no room.
        let acts = |c: char| {
            c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        let mut shown = 0;
        for (at, c) in self.0.char_indices() {
            if shown >= SHOWN {
                return write!(f, "... and {} characters more", self.0[at..].chars().count());
            }
            if acts(c) {
                write!(f, "{}", c.escape_unicode())?;
                shown += 8;
            } else {
                write!(f, "{c}")?;
                shown += 1;
            }
        }
        Ok(())
    }
}

/// `a`, `b` and `c`, the first `limit` of them.
pub(crate) fn list<S: AsRef<str>>(names: &[S], limit: usize) -> String {
    let mut text = names.iter().take(limit).map(|n| format!("`{}`", n.as_ref())).collect::<Vec<_>>().join(", ");
    if names.len() > limit {
        text += &format!(" and {} more", names.len() - limit);
    }
    text
}
