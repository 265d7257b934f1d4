//! The baseline made on the spot: the candidate's vault with every expert rounded to nearest.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::ThreadPool;
use rayon::prelude::*;
use serde_json::{Value, json};
use smoe_kernels::{Isa, encode_rows};
use smoe_model::Checkpoint;
use smoe_model::role::Proj;
use smoe_model::store::{ExpertMatrix, ExpertReader};
use smoe_vault::{
    BlobLayout, Contents, Existing, ExpertRecord, ExpertShape, Layout, Start, VaultFile, VaultWriter, WriteOptions,
};
use tempfile::TempDir;

use crate::error::GateError;
use crate::shingles::SHINGLES_SECTION;

/// Weights that a thread holds as f32 at a time.
const SLICE: usize = 256 << 10;
/// Bytes of the trunk that are copied at a time.
const CHUNK: usize = 4 << 20;

/// A vault in a folder that vanishes with this.
pub(crate) struct Twin {
    _folder: TempDir,
    pub(crate) path: PathBuf,
}

/// Writes the twin of `candidate`: the same trunk, the same codecs, the experts of `checkpoint` rounded to nearest. It
/// lies beside the candidate, where a file of its size has room already, or else in the system's temporary folder.
pub(crate) fn write(
    (candidate, path): (&VaultFile, &Path),
    checkpoint: &Checkpoint,
    pool: &ThreadPool,
    cancel: &AtomicBool,
) -> Result<Twin, GateError> {
    let beside = path.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let within = |folder: &Path| tempfile::Builder::new().prefix(".smoe-gate-").tempdir_in(folder);
    let folder = beside.and_then(|folder| within(&folder).ok());
    let folder = folder.map_or_else(|| within(&std::env::temp_dir()), Ok);
    let folder = folder.map_err(|source| GateError::Io { file: "a temporary folder".into(), source })?;
    let target = folder.path().join("baseline.vault");
    let (layout, sections) = layout(candidate)?;
    let how = WriteOptions { existing: Existing::Replace, start: Start::Fresh, fingerprint: String::new() };
    let writer = VaultWriter::create(&target, layout.clone(), how)?;
    for (index, name) in sections.iter().enumerate() {
        writer.write_section(index, &candidate.section(name)?.unwrap_or_default())?;
    }
    copy_trunk(candidate, &writer)?;
    let expert = |(index, record): (usize, &ExpertRecord)| {
        if cancel.load(Ordering::Relaxed) {
            return Err(GateError::Stopped);
        }
        Ok(writer.write_expert(index, &blob(checkpoint, record)?, Value::Null)?)
    };
    pool.install(|| layout.experts().par_iter().enumerate().try_for_each(expert))?;
    let manifest = candidate.manifest();
    writer.finish(Contents {
        spec: manifest.spec.clone(),
        bindings: manifest.bindings.clone(),
        provenance: json!({ "experts": { "method": "rtn", "why": "a baseline of the gate" } }),
        verdict: None,
    })?;
    Ok(Twin { _folder: folder, path: target })
}

/// The places of the twin's parts, and the names of its sections.
fn layout(candidate: &VaultFile) -> Result<(Layout, Vec<String>), GateError> {
    let manifest = candidate.manifest();
    let mut builder = Layout::builder();
    let kept = manifest.sections.iter().filter(|section| section.name != SHINGLES_SECTION);
    let mut names = Vec::new();
    for section in kept {
        builder.section(&section.name, section.length);
        names.push(section.name.clone());
    }
    for tensor in &manifest.trunk {
        builder.trunk(&tensor.name, tensor.dtype, &tensor.shape);
    }
    for record in candidate.experts() {
        builder.expert(shape(record));
    }
    let layout = builder.build().map_err(|fault| GateError::input(candidate.name(), fault.to_string()))?;
    Ok((layout, names))
}

/// What a record says of its expert's place in a layout.
pub(crate) fn shape(record: &ExpertRecord) -> ExpertShape {
    let ExpertRecord { layer, expert, codecs, hidden, width, biases, .. } = *record;
    ExpertShape { layer, expert, codecs, hidden, width, biases }
}

fn copy_trunk(candidate: &VaultFile, writer: &VaultWriter) -> Result<(), GateError> {
    for (index, tensor) in candidate.manifest().trunk.iter().enumerate() {
        let mut sink = writer.trunk_sink(index);
        let mut buffer = vec![0; CHUNK.min(usize::try_from(tensor.length).unwrap_or(CHUNK))];
        let mut at = 0;
        while at < tensor.length {
            let piece = buffer.len().min(usize::try_from(tensor.length - at).unwrap_or(usize::MAX));
            candidate.read_trunk(&tensor.name, at, &mut buffer[..piece])?;
            sink.write(&buffer[..piece])?;
            at += piece as u64;
        }
        sink.finish(Value::Null)?;
    }
    Ok(())
}

/// An expert rounded to nearest, its biases as the checkpoint has them.
fn blob(checkpoint: &Checkpoint, record: &ExpertRecord) -> Result<Vec<u8>, GateError> {
    let name = || format!("layer {} expert {}", record.layer, record.expert);
    let layout = record.layout().map_err(|kind| GateError::input(&name(), kind.to_string()))?;
    let mut blob = vec![0; layout.len_bytes()];
    for (index, proj) in [Proj::Gate, Proj::Up, Proj::Down].into_iter().enumerate() {
        let at = ExpertMatrix { layer: record.layer as usize, expert: record.expert as usize, proj };
        encode(checkpoint, at, (&layout, index), &mut blob)?;
        let Some(range) = layout.bias(index) else { continue };
        let bias = checkpoint.read_expert_bias(at)?.unwrap_or_default();
        if bias.len() * 4 != range.len() {
            return Err(GateError::input(&name(), "expected biases in the reference, found none of this length"));
        }
        for (out, value) in blob[range].as_chunks_mut::<4>().0.iter_mut().zip(bias) {
            *out = value.to_le_bytes();
        }
    }
    Ok(blob)
}

fn encode(
    checkpoint: &Checkpoint,
    at: ExpertMatrix,
    (layout, index): (&BlobLayout, usize),
    blob: &mut [u8],
) -> Result<(), GateError> {
    let ((rows, cols), codec) = (layout.shape(index), layout.codec(index));
    let step = (SLICE / cols).clamp(1, rows);
    let mut weights = vec![0.0; step * cols];
    let (codes, scales) = (layout.codes(index), layout.scales(index));
    // Codes come before scales in a blob.
    let (head, tail) = blob.split_at_mut(scales.start);
    for first in (0..rows).step_by(step) {
        let count = step.min(rows - first);
        let weights = &mut weights[..count * cols];
        checkpoint.read_expert_rows(at, first, weights)?;
        let (code, scale) = (codec.code_bytes(cols), codec.scale_bytes(cols));
        let codes = &mut head[codes.start + first * code..][..count * code];
        encode_rows(Isa::detect(), codec, weights, cols, codes, &mut tail[first * scale..][..count * scale]).map_err(
            |fault| {
                let reason = format!("row {} of {:?}: {}", first + fault.row, at.proj, fault.error);
                GateError::input(&format!("layer {} expert {}", at.layer, at.expert), reason)
            },
        )?;
    }
    Ok(())
}
