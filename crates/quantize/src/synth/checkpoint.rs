//! A random checkpoint folder.

use super::shape::Tensor;
use super::{SynthOptions, SynthReport, config, require_room};
use crate::control::{Control, Progress};
use crate::error::{QuantizeError, Result};
use crate::random::{NormalTable, SplitMix64};
use crate::shards::{self, Folder};
use rayon::prelude::*;
use std::path::Path;
use std::time::Instant;

/// Bytes that are made at a time; a part of the bytes' definition, since each piece has a random stream of its own.
const PIECE: usize = 1 << 20;
/// Pieces in memory at a time.
const PIECES: usize = 16;

/// bf16 1.0.
const ONE: [u8; 2] = [0x80, 0x3F];

/// Writes a checkpoint folder: bf16 weights of deviation `1 / sqrt(cols)`, norms of ones, config.json; no tokenizer. The
/// bytes follow from options and seed alone.
///
/// # Errors
/// An unknown shape, a target that exists, too little space, failed writes, cancellation.
pub fn checkpoint(target: &Path, options: &SynthOptions, control: &Control<'_>) -> Result<SynthReport> {
    let started = Instant::now();
    let (config, shape) = config(options)?;
    let tensors = shape.tensors();
    let entries: Vec<_> = tensors.iter().map(|t| t.entry.clone()).collect();
    let shards = shards::plan(&entries, shards::SHARD_BYTES);
    let bytes: u64 = shards.iter().map(|s| s.bytes).sum();
    shards::check_target(target, options.force)?;
    require_room(target, bytes, control)?;
    let folder = Folder::create(target, options.force)?;
    let mut done = 0;
    for shard in &shards {
        let mut file = folder.shard(shard)?;
        for i in shard.entries.clone() {
            tensor_pieces(options.seed, i as u64, &tensors[i], &mut |piece| {
                control.check()?;
                file.write(piece)?;
                done += piece.len() as u64;
                (control.progress)(Progress { phase: "weights", done, total: bytes });
                Ok(())
            })?;
        }
        file.finish()?;
    }
    if shards.len() > 1 {
        folder.text("model.safetensors.index.json", &shards::index(&entries, &shards).to_string())?;
    }
    folder.text("config.json", &format!("{config:#}"))?;
    folder.finish()?;
    Ok(SynthReport {
        path: target.display().to_string(),
        bytes,
        files: shards.len(),
        parameters: entries.iter().map(|e| e.bytes() / 2).sum(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Makes the bytes of tensor number `stream` and hands them on, piece by piece.
pub(super) fn tensor_pieces(
    seed: u64,
    stream: u64,
    tensor: &Tensor,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let bytes = usize::try_from(tensor.entry.bytes())
        .map_err(|_| QuantizeError::Refused(format!("{}: too large for this machine", tensor.entry.name)))?;
    let cols = tensor.entry.shape.last().copied().unwrap_or(1);
    let table = NormalTable::new(1.0 / (cols as f64).sqrt());
    let mut buffer = vec![0; bytes.min(PIECE * PIECES)];
    for (batch, start) in (0..bytes).step_by(PIECE * PIECES).enumerate() {
        let out = &mut buffer[..(bytes - start).min(PIECE * PIECES)];
        if tensor.ones {
            out.as_chunks_mut().0.fill(ONE);
        } else {
            out.par_chunks_mut(PIECE).enumerate().for_each(|(i, piece)| {
                table.fill(&mut SplitMix64::new(seed, stream, (batch * PIECES + i) as u64), piece);
            });
        }
        sink(out)?;
    }
    Ok(())
}
