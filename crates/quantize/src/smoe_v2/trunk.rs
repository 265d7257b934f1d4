//! The trunk file beside an S-MoE file: plain safetensors.

use crate::error::{QuantizeError, Result};
use smoe_model::checkpoint::header::{RawTensor, json_len, parse};
use smoe_model::formats::plain;
use smoe_model::positional::read_exact_at;
use smoe_model::store::Dtype;
use std::fs::File;
use std::path::{Path, PathBuf};

/// An open trunk file.
pub(super) struct TrunkFile {
    pub(super) name: String,
    pub(super) file: File,
    /// The JSON as it is.
    pub(super) header: Vec<u8>,
    /// In the order of their data.
    pub(super) tensors: Vec<(RawTensor, Dtype)>,
}

/// The trunk file of `smoe`: the given one, else `NAME.scout.safetensors`, with or without the last part of the name.
pub(super) fn locate(smoe: &Path, given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let stem = smoe.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let shorter = stem.rsplit_once('.').map(|(before, _)| before.to_owned());
    let candidates: Vec<PathBuf> = [Some(stem), shorter]
        .into_iter()
        .flatten()
        .map(|stem| smoe.with_file_name(format!("{stem}{}", super::TRUNK_SUFFIX)))
        .collect();
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let names: Vec<_> = candidates.iter().map(|p| p.display().to_string()).collect();
        QuantizeError::Refused(format!(
            "no trunk beside the file: expected {}; name it with --trunk",
            names.join(" or ")
        ))
    })
}

pub(super) fn open(path: &Path) -> Result<TrunkFile> {
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let file = File::open(path).map_err(QuantizeError::io(path, "open"))?;
    let len = file.metadata().map_err(QuantizeError::io(path, "read"))?.len();
    let refused = |what: String| QuantizeError::Refused(format!("{}: {what}", path.display()));
    let mut prefix = [0; 8];
    read_exact_at(&file, 0, &mut prefix).map_err(QuantizeError::io(path, "read"))?;
    let fault = |f: smoe_model::checkpoint::header::HeaderFault| match f.tensor {
        Some(tensor) => refused(format!("`{tensor}`: {}", f.what)),
        None => refused(f.what),
    };
    let json = json_len(prefix, len).map_err(fault)?;
    let mut header = vec![0; usize::try_from(json).map_err(|_| refused("its header is too large".into()))?];
    read_exact_at(&file, 8, &mut header).map_err(QuantizeError::io(path, "read"))?;
    let typed = |t: RawTensor| match plain(&t.dtype) {
        Some(dtype) => Ok((t, dtype)),
        None => Err(refused(format!("`{}`: expected bf16, f16 or f32, found {}", t.name, t.dtype))),
    };
    let tensors = parse(&header, len).map_err(fault)?.into_iter().map(typed).collect::<Result<_>>()?;
    Ok(TrunkFile { name, file, header, tensors })
}
