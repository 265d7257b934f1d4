//! From a vault to an S-MoE file and its trunk.

use super::{TRUNK_HEADER, TRUNK_SUFFIX};
use crate::control::{Control, Progress};
use crate::error::{QuantizeError, Result};
use crate::export::ExportReport;
use crate::opened::{self, Opened};
use serde_json::Value;
use smoe_vault::smoe_v2::{ArchBlock, ExpertShape, Header, Index, SmoeWriter};
use smoe_vault::{BlobLayout, Existing};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of the trunk copied at a time.
const CHUNK: usize = 4 << 20;

/// Writes an imported vault as the S-MoE version 2 file that it came from, with the trunk beside it.
///
/// # Errors
/// A vault that was not imported from such a file; a target that exists; failed reads and writes; cancellation.
pub fn to_smoe_v2(vault: &Path, target: &Path, force: bool, control: &Control<'_>) -> Result<ExportReport> {
    let started = Instant::now();
    let vault = opened::open(vault)?;
    let trunk = trunk_name(target);
    for path in [target, &trunk] {
        if path.exists() && !force {
            return Err(QuantizeError::Exists(path.to_owned()));
        }
    }
    let index = index(&vault)?;
    let trunk_bytes: u64 = vault.file.manifest().trunk.iter().map(|t| t.length).sum();
    crate::disk::require_space(&crate::disk::parent(target), index.file_length + trunk_bytes)?;
    let total = index.file_length + trunk_bytes;
    let existing = if force { Existing::Replace } else { Existing::Refuse };
    let mut writer = SmoeWriter::create(target, index.clone(), existing)?;
    let mut done = 0;
    let mut advance = |phase, bytes: u64| {
        done += bytes;
        (control.progress)(Progress { phase, done, total });
        control.check()
    };
    for (number, part) in index.experts.iter().enumerate() {
        let record = vault
            .file
            .expert(part.layer, part.expert)
            .ok_or_else(|| QuantizeError::Refused(format!("no expert {} of layer {}", part.expert, part.layer)))?;
        let layout = BlobLayout::new(record.codecs, record.hidden, record.width, record.biases)
            .map_err(|e| QuantizeError::Refused(e.to_string()))?;
        let blob = vault.file.read_blob(record)?;
        let parts = [0, 1, 2].map(|proj| (&blob[layout.codes(proj)], &blob[layout.scales(proj)]));
        writer.write_expert(number, parts)?;
        advance("experts", part.padded_size)?;
    }
    let trunk_len = write_trunk(&vault, &trunk, |bytes| advance("trunk", bytes))?;
    writer.finish()?;
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ExportReport {
        path: target.display().to_string(),
        format: "s-moe-v2",
        bytes: index.file_length + trunk_len,
        files: vec![name(target), name(&trunk)],
        seconds: started.elapsed().as_secs_f64(),
        notes: Vec::new(),
    })
}

/// `NAME.smoe` has its trunk in `NAME.scout.safetensors`.
fn trunk_name(target: &Path) -> PathBuf {
    let stem = target.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    target.with_file_name(format!("{stem}{TRUNK_SUFFIX}"))
}

/// The tables of the file that the vault came from.
fn index(vault: &Opened) -> Result<Index> {
    let refused = |what: &str| QuantizeError::Refused(format!("{}: {what}", vault.file.name()));
    let provenance = &vault.file.manifest().provenance;
    let Some(kept) = provenance.get("s_moe_v2") else {
        return Err(refused(
            "it was not imported from an S-MoE file; this version exports only such vaults to s-moe-v2 (use --to hf)",
        ));
    };
    let field = |key: &str| kept.get(key).cloned().unwrap_or(Value::Null);
    let header: Header =
        serde_json::from_value(field("header")).map_err(|_| refused("its provenance lost the S-MoE header"))?;
    let arch: Option<ArchBlock> =
        serde_json::from_value(field("arch")).map_err(|_| refused("its provenance lost the architecture block"))?;
    let shape = |r: &smoe_vault::ExpertRecord| ExpertShape { layer: r.layer, expert: r.expert, width: r.width };
    let experts: Vec<_> = vault.file.experts().iter().map(shape).collect();
    Index::build(header, arch, &experts).map_err(|e| refused(&e.to_string()))
}

/// Writes the trunk under its imported header: the same bytes.
fn write_trunk(vault: &Opened, target: &Path, mut advance: impl FnMut(u64) -> Result<()>) -> Result<u64> {
    let refused = |what: &str| QuantizeError::Refused(format!("{}: {what}", vault.file.name()));
    let header = vault.file.section(TRUNK_HEADER)?.ok_or_else(|| refused("it lost the header of its trunk file"))?;
    let parent = crate::disk::parent(target);
    let mut file =
        tempfile::NamedTempFile::new_in(&parent).map_err(QuantizeError::io(&parent, "create a file in it"))?;
    let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(QuantizeError::io(target, "write"));
    put(&(header.len() as u64).to_le_bytes())?;
    put(&header)?;
    let mut written = 8 + header.len() as u64;
    let mut buffer = vec![0; CHUNK];
    for tensor in &vault.file.manifest().trunk {
        let mut at = 0;
        while at < tensor.length {
            let piece = &mut buffer[..(tensor.length - at).min(CHUNK as u64) as usize];
            vault.file.read_trunk(&tensor.name, at, piece)?;
            put(piece)?;
            at += piece.len() as u64;
            advance(piece.len() as u64)?;
        }
        written += tensor.length;
    }
    file.as_file().sync_all().map_err(QuantizeError::io(target, "write"))?;
    let file =
        file.persist(target).map_err(|e| QuantizeError::io(target, "rename the finished file to it")(e.error))?;
    crate::disk::open_to_readers(&file, target)?;
    Ok(written)
}
