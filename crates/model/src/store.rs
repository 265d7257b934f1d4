//! [`TensorStore`]: stored trunk tensors by name, whoever keeps them, and [`load_role`] from a role to its values.

use crate::role::{Bindings, Role, Rows};
use crate::spec::ModelSpec;
use std::fmt;

/// How a trunk tensor's elements are stored. What a checkpoint holds in a block format is handed out as bf16 (fp8) and
/// only routed experts come in others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Dtype {
    /// bfloat16, little-endian.
    #[serde(rename = "BF16")]
    Bf16,
    /// IEEE half, little-endian.
    #[serde(rename = "F16")]
    F16,
    /// IEEE single, little-endian.
    #[serde(rename = "F32")]
    F32,
    /// The codec `q8`: all codes `[rows, cols]` as i8, zero bytes up to a multiple of 64, then all scales
    /// `[rows, ceil(cols / 64)]` as f16.
    #[serde(rename = "Q8")]
    Q8,
}

impl Dtype {
    /// Bytes of a `[rows, cols]` tensor.
    pub fn bytes(self, rows: usize, cols: usize) -> usize {
        match self {
            Self::Bf16 | Self::F16 => rows * cols * 2,
            Self::F32 => rows * cols * 4,
            Self::Q8 => q8_scales_at(rows, cols) + rows * cols.div_ceil(64) * 2,
        }
    }
}

/// Offset of the scales in a `Q8` tensor.
pub fn q8_scales_at(rows: usize, cols: usize) -> usize {
    (rows * cols).next_multiple_of(64)
}

/// A stored tensor's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Element type.
    pub dtype: Dtype,
    /// Shape as in the file it came from.
    pub shape: Vec<usize>,
}

impl Stored {
    /// `[rows, cols]`: the last axis, and all before it; a vector is one row. A `[channels, 1, taps]` convolution is
    /// `[channels, taps]`.
    pub fn rows_cols(&self) -> (usize, usize) {
        let cols = self.shape.last().copied().unwrap_or(1);
        (self.shape.iter().rev().skip(1).product(), cols)
    }
}

/// A reading fault: which tensor of which file, and what happened.
#[derive(Debug)]
pub struct StoreError {
    /// File name (not its path) or "vault".
    pub file: String,
    /// Tensor, section or expert.
    pub item: String,
    /// Expected, found, what to do.
    pub fault: String,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.file, self.item, self.fault)
    }
}

impl std::error::Error for StoreError {}

/// Trunk tensors by their stored names.
pub trait TensorStore: Send + Sync {
    /// The model.
    fn spec(&self) -> &ModelSpec;
    /// Which tensor plays which role.
    fn bindings(&self) -> &Bindings;
    /// The description of a stored tensor.
    fn stored(&self, tensor: &str) -> Option<Stored>;
    /// Fills `out` with the stored bytes from `offset` on.
    fn read_stored(&self, tensor: &str, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;
}

/// A role's values in memory, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Element type.
    pub dtype: Dtype,
    /// All but the last axis.
    pub rows: usize,
    /// The last axis.
    pub cols: usize,
    /// `dtype.bytes(rows, cols)` bytes.
    pub bytes: Vec<u8>,
}

/// Reads the tensor of `role`; `None` where the model has none.
///
/// # Errors
/// When the bound tensor is not stored, is shorter than its rows say, or cannot be read.
pub fn load_role(store: &dyn TensorStore, role: Role) -> Result<Option<Tensor>, StoreError> {
    let Some(binding) = store.bindings().trunk.get(&role) else { return Ok(None) };
    let name = &binding.tensor;
    let fault = |fault: String| StoreError { file: "model".into(), item: name.clone(), fault };
    let stored = store.stored(name).ok_or_else(|| fault(format!("bound to {role:?} and not stored")))?;
    let (all_rows, cols) = stored.rows_cols();
    let runs = match &binding.rows {
        Rows::All => vec![(0, all_rows)],
        Rows::Runs(runs) => runs.clone(),
    };
    if let Some((first, count)) = runs.iter().find(|(first, count)| first.saturating_add(*count) > all_rows) {
        return Err(fault(format!("rows {first}..+{count} of {role:?} lie outside its {all_rows} rows")));
    }
    let rows = runs.iter().map(|(_, count)| count).sum();
    let dtype = stored.dtype;
    let mut bytes = vec![0; dtype.bytes(rows, cols)];
    // One segment for plain types; codes and scales for q8.
    let segments = match dtype {
        Dtype::Q8 => {
            vec![(0, 0, cols), (q8_scales_at(all_rows, cols), q8_scales_at(rows, cols), cols.div_ceil(64) * 2)]
        }
        plain => vec![(0, 0, plain.bytes(1, cols))],
    };
    for (stored_at, at, row_bytes) in segments {
        let mut at = at;
        for &(first, count) in &runs {
            let len = count * row_bytes;
            store.read_stored(name, (stored_at + first * row_bytes) as u64, &mut bytes[at..at + len])?;
            at += len;
        }
    }
    Ok(Some(Tensor { dtype, rows, cols, bytes }))
}

/// Routed expert weights of a checkpoint, dequantised to f32 by rows.
pub trait ExpertReader: Send + Sync {
    /// Fills `out` with rows `first_row ..` of a matrix (`out.len()` is a multiple of its columns).
    fn read_expert_rows(&self, at: ExpertMatrix, first_row: usize, out: &mut [f32]) -> Result<(), StoreError>;
    /// The bias of a matrix, where the spec has expert biases.
    fn read_expert_bias(&self, at: ExpertMatrix) -> Result<Option<Vec<f32>>, StoreError>;
}

/// Address of one expert matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertMatrix {
    /// Decoder layer.
    pub layer: usize,
    /// Expert within the layer.
    pub expert: usize,
    /// Gate, up or down.
    pub proj: crate::role::Proj,
}
