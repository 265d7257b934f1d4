//! Why a row cannot be encoded. The caller knows the tensor and the row, and adds them.

use core::fmt;

/// A weight that no codec can store.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum EncodeError {
    /// A NaN or an infinity.
    NotFinite {
        /// Column of the weight.
        col: usize,
        /// The weight.
        value: f32,
    },
    /// The scale of the weight's group exceeds f16.
    Overflow {
        /// Column of the group's largest weight.
        col: usize,
        /// The weight.
        value: f32,
    },
}

impl EncodeError {
    /// The column of the weight at fault.
    #[must_use]
    pub fn col(&self) -> usize {
        match *self {
            Self::NotFinite { col, .. } | Self::Overflow { col, .. } => col,
        }
    }

    /// The same error for a row in which this one's begins at column `start`.
    #[must_use]
    pub fn offset(self, start: usize) -> Self {
        match self {
            Self::NotFinite { col, value } => Self::NotFinite { col: col + start, value },
            Self::Overflow { col, value } => Self::Overflow { col: col + start, value },
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { col, value } => {
                write!(f, "column {col}: expected a finite weight, found {value}; this checkpoint is damaged")
            }
            Self::Overflow { col, value } => {
                write!(f, "column {col}: expected a weight whose scale fits f16 (at most 65504), found {value}")
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// The largest magnitude of a group and its first column, or the first weight that is not finite.
pub(crate) fn largest(group: &[f32]) -> Result<(usize, f32), EncodeError> {
    let mut best = (0, 0.0);
    for (col, &value) in group.iter().enumerate() {
        if !value.is_finite() {
            return Err(EncodeError::NotFinite { col, value });
        }
        if value.abs() > best.1 {
            best = (col, value.abs());
        }
    }
    Ok(best)
}
