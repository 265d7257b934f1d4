//! Identity of the checkpoint's files: BLAKE3, in a pass of its own beside the conversion.

use crate::control::Control;
use crate::error::{QuantizeError, Result};
use serde_json::{Value, json};
use smoe_model::Checkpoint;
use smoe_model::positional::read_exact_at;

/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;

/// Name, length and hash of each file, as the provenance has them.
pub(crate) fn files(checkpoint: &Checkpoint, control: &Control<'_>) -> Result<Vec<Value>> {
    let mut buffer = vec![0; CHUNK as usize];
    let mut out = Vec::new();
    for shard in checkpoint.files() {
        let mut hasher = blake3::Hasher::new();
        let mut at = 0;
        while at < shard.len {
            control.check()?;
            let piece = &mut buffer[..(shard.len - at).min(CHUNK) as usize];
            let path = checkpoint.folder().join(&shard.name);
            read_exact_at(&shard.file, at, piece).map_err(QuantizeError::io(&path, "read"))?;
            hasher.update(piece);
            at += piece.len() as u64;
        }
        out.push(entry(&shard.name, shard.len, hasher.finalize().to_hex().as_str()));
    }
    Ok(out)
}

/// [`files`] with hashes of zeros: as long, and made from headers alone.
pub(crate) fn placeholders(checkpoint: &Checkpoint) -> Vec<Value> {
    let zeros = "0".repeat(2 * blake3::OUT_LEN);
    checkpoint.files().iter().map(|shard| entry(&shard.name, shard.len, &zeros)).collect()
}

fn entry(name: &str, bytes: u64, hash: &str) -> Value {
    json!({ "name": name, "bytes": bytes, "blake3": hash })
}
