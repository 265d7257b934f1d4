//! Experts: read in slices of rows, encoded on all cores, handed on in order.

use crate::control::Control;
use crate::error::{QuantizeError, Result};
use rayon::prelude::*;
use smoe_kernels::{Isa, encode_rows};
use smoe_model::Checkpoint;
use smoe_model::role::Proj;
use smoe_model::store::{ExpertMatrix, ExpertReader, TensorStore};
use smoe_vault::BlobLayout;

/// Weights that a thread holds as f32 at a time.
const SLICE: usize = 256 << 10;
/// Bytes of finished blobs in a batch (one at least); a batch is encoded while the one before it is written.
const BATCH_BYTES: usize = 160 << 20;

/// One expert to encode.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// Layer.
    pub(crate) layer: usize,
    /// Expert within the layer.
    pub(crate) expert: usize,
    /// Where its parts lie.
    pub(crate) layout: BlobLayout,
}

/// How many of `jobs` from the first on make a batch.
pub(crate) fn batch_len(jobs: &[Job], threads: usize) -> usize {
    let mut bytes = 0;
    let fits = |job: &&Job| {
        bytes += job.layout.len_bytes();
        bytes <= BATCH_BYTES
    };
    jobs.iter().take_while(fits).count().clamp(1, (4 * threads).max(1)).min(jobs.len())
}

/// A run of rows of one matrix, with the bytes that it fills.
struct Piece<'a> {
    at: ExpertMatrix,
    first_row: usize,
    cols: usize,
    codec: smoe_codec::Codec,
    codes: &'a mut [u8],
    scales: &'a mut [u8],
}

/// Encodes `jobs` into `blobs` (made as long as each asks), on the threads of the current pool.
pub(crate) fn encode(
    checkpoint: &Checkpoint,
    jobs: &[Job],
    blobs: &mut Vec<Vec<u8>>,
    control: &Control<'_>,
) -> Result<()> {
    blobs.resize_with(jobs.len(), Vec::new);
    let isa = Isa::detect();
    let mut pieces = Vec::new();
    for (job, blob) in jobs.iter().zip(blobs.iter_mut()) {
        blob.clear();
        blob.resize(job.layout.len_bytes(), 0);
        biases(checkpoint, job, blob)?;
        cut(job, blob, &mut pieces);
    }
    let encode = |buffer: &mut Vec<f32>, piece: Piece<'_>| {
        control.check()?;
        let rows = piece.codes.len() / piece.codec.code_bytes(piece.cols);
        buffer.resize(rows * piece.cols, 0.0);
        checkpoint.read_expert_rows(piece.at, piece.first_row, buffer)?;
        encode_rows(isa, piece.codec, buffer, piece.cols, piece.codes, piece.scales)
            .map_err(|e| bad_weight(checkpoint, piece.at, piece.first_row + e.row, &e.error))
    };
    pieces.into_par_iter().try_for_each_init(Vec::new, encode)
}

/// Cuts the code and scale ranges of a blob into runs of rows.
fn cut<'a>(job: &Job, blob: &'a mut [u8], pieces: &mut Vec<Piece<'a>>) {
    let mut rest = blob;
    let mut at = 0;
    let mut take = |range: std::ops::Range<usize>| {
        let (_, from) = std::mem::take(&mut rest).split_at_mut(range.start - at);
        let (taken, after) = from.split_at_mut(range.len());
        (rest, at) = (after, range.end);
        taken
    };
    for (i, proj) in [Proj::Gate, Proj::Up, Proj::Down].into_iter().enumerate() {
        let (codes, scales) = (take(job.layout.codes(i)), take(job.layout.scales(i)));
        let ((_, cols), codec) = (job.layout.shape(i), job.layout.codec(i));
        let rows = (SLICE / cols).max(1);
        let runs =
            codes.chunks_mut(rows * codec.code_bytes(cols)).zip(scales.chunks_mut(rows * codec.scale_bytes(cols)));
        let address = ExpertMatrix { layer: job.layer, expert: job.expert, proj };
        pieces.extend(runs.enumerate().map(|(n, (codes, scales))| Piece {
            at: address,
            first_row: n * rows,
            cols,
            codec,
            codes,
            scales,
        }));
    }
}

/// Writes the biases of an expert that has some, as f32.
pub(crate) fn biases(checkpoint: &Checkpoint, job: &Job, blob: &mut [u8]) -> Result<()> {
    for (i, proj) in [Proj::Gate, Proj::Up, Proj::Down].into_iter().enumerate() {
        let Some(range) = job.layout.bias(i) else { continue };
        let at = ExpertMatrix { layer: job.layer, expert: job.expert, proj };
        let values = checkpoint.read_expert_bias(at)?.unwrap_or_default();
        if values.len() * 4 != range.len() || values.iter().any(|v| !v.is_finite()) {
            return Err(QuantizeError::Refused(format!(
                "bias of {}: expected {} finite values, found {} or a NaN or infinity among them",
                describe(checkpoint, at),
                range.len() / 4,
                values.len()
            )));
        }
        for (out, value) in blob[range].as_chunks_mut::<4>().0.iter_mut().zip(values) {
            *out = value.to_le_bytes();
        }
    }
    Ok(())
}

/// File, tensor and expert of a matrix, for people.
fn describe(checkpoint: &Checkpoint, at: ExpertMatrix) -> String {
    let view = checkpoint.bindings().experts.get(&at.layer).map(|b| &b.weights[at.proj as usize]);
    let Some(view) = view else { return format!("layer {} expert {}", at.layer, at.expert) };
    let tensor = view.tensor_of(at.expert);
    let file = checkpoint.file_of(&tensor).unwrap_or("checkpoint");
    let within = if view.expert_stride > 0 { format!(" (expert {} {:?})", at.expert, at.proj) } else { String::new() };
    format!("{file}: `{tensor}`{within}")
}

fn bad_weight(checkpoint: &Checkpoint, at: ExpertMatrix, row: usize, error: &smoe_codec::EncodeError) -> QuantizeError {
    QuantizeError::BadWeight(format!(
        "{}: row {row}, {error}; the checkpoint is damaged or was never sound: download this file again",
        describe(checkpoint, at)
    ))
}
