//! The trunk: copied in chunks, or its projections encoded as q8, a few rows at a time.

use crate::error::{QuantizeError, Result};
use rayon::prelude::*;
use smoe_codec::Codec;
use smoe_kernels::{Isa, encode_rows};
use smoe_model::formats::decode_plain;
use smoe_model::role::{Part, Role};
use smoe_model::store::TensorStore;
use smoe_model::store::{Dtype, Stored, q8_scales_at};
use smoe_model::{Bindings, Checkpoint};
use std::collections::BTreeMap;

/// Bytes copied at a time.
const CHUNK: usize = 4 << 20;
/// Weights encoded at a time, all threads together.
const BATCH: usize = 4 << 20;

/// A trunk tensor of the vault to be.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    /// Name in checkpoint and vault.
    pub(crate) name: String,
    /// As the checkpoint stores it.
    pub(crate) from: Stored,
    /// As the vault will.
    pub(crate) dtype: Dtype,
    /// Bytes in the vault.
    pub(crate) bytes: u64,
}

/// Whether `--trunk q8` may encode a tensor that plays `role`: projections, embedding and head. Norms, routers, biases,
/// convolutions and what drives a recurrence (its decay and write strength) stay as they came.
pub(crate) fn is_projection(role: Role) -> bool {
    match role {
        Role::Embedding | Role::Head => true,
        Role::FinalNorm | Role::FinalNormBias | Role::HeadBias => false,
        Role::Layer(_, part) => matches!(
            part,
            Part::Q
                | Part::K
                | Part::V
                | Part::O
                | Part::QA
                | Part::QB
                | Part::KvA
                | Part::KvB
                | Part::DeltaQkv
                | Part::DeltaZ
                | Part::DeltaOut
                | Part::ConvIn
                | Part::ConvOut
                | Part::DenseGate
                | Part::DenseUp
                | Part::DenseDown
                | Part::SharedGateProj
                | Part::SharedUpProj
                | Part::SharedDownProj
        ),
    }
}

/// The tensors in the order of their names; with `q8`, which of them are encoded.
pub(crate) fn plan(checkpoint: &Checkpoint, q8: bool) -> Result<Vec<Planned>> {
    let projections = projections(checkpoint.bindings());
    let planned = |name: &str| {
        let from = checkpoint
            .stored(name)
            .ok_or_else(|| QuantizeError::Refused(format!("`{name}` is bound and not in the checkpoint")))?;
        let encode = q8 && from.shape.len() == 2 && projections.get(name) == Some(&true);
        let dtype = if encode { Dtype::Q8 } else { from.dtype };
        let (rows, cols) = from.rows_cols();
        Ok(Planned { name: name.to_owned(), dtype, bytes: dtype.bytes(rows, cols) as u64, from })
    };
    checkpoint.trunk_tensors().into_iter().map(planned).collect()
}

/// Of each bound tensor, whether all that it plays are projections.
fn projections(bindings: &Bindings) -> BTreeMap<&str, bool> {
    let mut all = BTreeMap::new();
    for (role, binding) in &bindings.trunk {
        *all.entry(binding.tensor.as_str()).or_insert(true) &= is_projection(*role);
    }
    all
}

/// Hands the bytes of a tensor as the vault stores it to `sink`, piece by piece.
pub(crate) fn stream(
    checkpoint: &Checkpoint,
    tensor: &Planned,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    if tensor.dtype == Dtype::Q8 { encode(checkpoint, tensor, sink) } else { copy(checkpoint, tensor, sink) }
}

fn copy(checkpoint: &Checkpoint, tensor: &Planned, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (_, cols) = tensor.from.rows_cols();
    let mut buffer = vec![0; CHUNK.min(usize::try_from(tensor.bytes).unwrap_or(CHUNK))];
    let mut at = 0;
    while at < tensor.bytes {
        let len = (tensor.bytes - at).min(CHUNK as u64) as usize;
        let piece = &mut buffer[..len];
        checkpoint.read_stored(&tensor.name, at, piece)?;
        if let Some(i) = not_finite(tensor.dtype, piece) {
            let element = at / tensor.dtype.bytes(1, 1) as u64 + i as u64;
            return Err(bad_weight(checkpoint, &tensor.name, element / cols.max(1) as u64, "a NaN or an infinity"));
        }
        sink(piece)?;
        at += len as u64;
    }
    Ok(())
}

/// Index of the first element whose exponent is all ones.
fn not_finite(dtype: Dtype, bytes: &[u8]) -> Option<usize> {
    let halves = |mask: u16| bytes.as_chunks::<2>().0.iter().position(|b| u16::from_le_bytes(*b) & mask == mask);
    match dtype {
        Dtype::Bf16 => halves(0x7F80),
        Dtype::F16 => halves(0x7C00),
        Dtype::F32 => bytes.as_chunks::<4>().0.iter().position(|b| u32::from_le_bytes(*b) & 0x7F80_0000 == 0x7F80_0000),
        Dtype::Q8 => None,
    }
}

fn encode(checkpoint: &Checkpoint, tensor: &Planned, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (rows, cols) = tensor.from.rows_cols();
    let (codec, isa) = (Codec::Q8, Isa::detect());
    let (code_bytes, scale_bytes) = (codec.code_bytes(cols), codec.scale_bytes(cols));
    let batch = (BATCH / cols.max(1)).max(1);
    let share = batch.div_ceil(rayon::current_num_threads()).max(1);
    let row_bytes = tensor.from.dtype.bytes(1, cols);
    let mut scales = vec![0; rows * scale_bytes];
    let (mut bytes, mut codes) = (Vec::new(), Vec::new());
    for first in (0..rows).step_by(batch) {
        let n = batch.min(rows - first);
        bytes.resize(n * row_bytes, 0);
        codes.resize(n * code_bytes, 0);
        checkpoint.read_stored(&tensor.name, (first * row_bytes) as u64, &mut bytes)?;
        let out = &mut scales[first * scale_bytes..(first + n) * scale_bytes];
        let runs = bytes
            .par_chunks(share * row_bytes)
            .zip(codes.par_chunks_mut(share * code_bytes))
            .zip(out.par_chunks_mut(share * scale_bytes));
        runs.enumerate().try_for_each_init(Vec::new, |values, (i, ((bytes, codes), scales))| {
            values.resize(bytes.len() / row_bytes * cols, 0.0);
            decode_plain(tensor.from.dtype, bytes, values);
            encode_rows(isa, codec, values, cols, codes, scales).map_err(|e| {
                let row = (first + i * share + e.row) as u64;
                bad_weight(checkpoint, &tensor.name, row, &e.error.to_string())
            })
        })?;
        sink(&codes)?;
    }
    sink(&vec![0; q8_scales_at(rows, cols) - rows * code_bytes])?;
    sink(&scales)
}

fn bad_weight(checkpoint: &Checkpoint, tensor: &str, row: u64, what: &str) -> QuantizeError {
    let file = checkpoint.file_of(tensor).unwrap_or("checkpoint");
    QuantizeError::BadWeight(format!(
        "{file}: `{tensor}`: row {row}, {what}; the checkpoint is damaged or was never sound: download this file again"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_projections_are_encoded() {
        assert!(is_projection(Role::Embedding) && is_projection(Role::Layer(3, Part::KvB)));
        for part in [Part::Router, Part::SharedGate, Part::MixerNorm, Part::QNorm, Part::DeltaConv, Part::DeltaA] {
            assert!(!is_projection(Role::Layer(0, part)), "{part:?}");
        }
    }

    #[test]
    fn the_first_bad_element_is_found() {
        assert_eq!(not_finite(Dtype::Bf16, &[0, 0, 0xC0, 0x7F]), Some(1));
        assert_eq!(not_finite(Dtype::F16, &[0xFF, 0x7B, 0, 0xFC]), Some(1));
        assert_eq!(not_finite(Dtype::F32, &f32::NEG_INFINITY.to_le_bytes()), Some(0));
        assert_eq!(not_finite(Dtype::F32, &f32::MAX.to_le_bytes()), None);
    }
}
