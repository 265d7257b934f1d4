//! Which files of a folder are the checkpoint, and their tensors.

use super::header::{self, RawTensor};
use crate::error::CheckpointError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The index's name.
pub const INDEX: &str = "model.safetensors.index.json";

/// One file of the checkpoint.
#[derive(Debug)]
pub struct Shard {
    /// Name within the folder.
    pub name: String,
    /// Bytes.
    pub len: u64,
    /// Open for positional reads.
    pub file: File,
}

/// All tensors of a folder.
#[derive(Debug)]
pub struct Files {
    /// The files that make up the checkpoint.
    pub shards: Vec<Shard>,
    /// By name: shard index and description.
    pub tensors: BTreeMap<String, (usize, RawTensor)>,
    /// `.safetensors` files that are no part of it.
    pub ignored: Vec<String>,
}

/// Reads a small file of the folder as text, no more than `limit` bytes.
///
/// # Errors
/// When it cannot be read, is larger, or is not UTF-8.
pub fn read_text(folder: &Path, name: &str, limit: u64) -> Result<String, CheckpointError> {
    let path = folder.join(name);
    let len = std::fs::metadata(&path).map_err(|e| CheckpointError::file(name, format!("cannot be read: {e}")))?.len();
    if len > limit {
        return Err(CheckpointError::file(name, format!("expected at most {limit} B, found {len} B")));
    }
    std::fs::read_to_string(&path).map_err(|e| CheckpointError::file(name, format!("cannot be read as text: {e}")))
}

/// Finds the files, parses every header, cross-checks the index.
///
/// # Errors
/// A missing or surplus shard, a tensor in two shards, an index that does not match, any header fault.
pub fn open(folder: &Path) -> Result<Files, CheckpointError> {
    let present = safetensors_of(folder)?;
    let index = folder.join(INDEX).exists().then(|| read_index(folder)).transpose()?;
    let names = match &index {
        Some(index) => shards_of_index(index, &present)?,
        None => shards_by_name(&present)?,
    };
    let ignored = present.iter().filter(|n| !names.contains(*n)).cloned().collect();
    let mut files = Files { shards: Vec::new(), tensors: BTreeMap::new(), ignored };
    for name in names {
        let (shard, tensors) = open_shard(folder, &name)?;
        let i = files.shards.len();
        for t in tensors {
            if let Some((other, t)) = files.tensors.insert(t.name.clone(), (i, t)) {
                let other = &files.shards[other].name;
                return Err(CheckpointError::item(name, t.name, format!("is in {other} as well"))
                    .hint("remove the shard that does not belong to this checkpoint"));
            }
        }
        files.shards.push(shard);
    }
    if let Some(index) = index {
        check_index(&index, &files)?;
    }
    Ok(files)
}

fn safetensors_of(folder: &Path) -> Result<BTreeSet<String>, CheckpointError> {
    let shown = folder.display().to_string();
    let entries =
        std::fs::read_dir(folder).map_err(|e| CheckpointError::file(&shown, format!("cannot be listed: {e}")))?;
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(|e| CheckpointError::file(&shown, format!("cannot be listed: {e}")))?;
        if let Ok(name) = entry.file_name().into_string()
            && name.ends_with(".safetensors")
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Tensor name to file name.
fn read_index(folder: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let text = read_text(folder, INDEX, header::MAX_HEADER)?;
    let json: Value =
        serde_json::from_str(&text).map_err(|e| CheckpointError::file(INDEX, format!("is not valid JSON: {e}")))?;
    let map = json
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| CheckpointError::item(INDEX, "weight_map", "expected an object, found none"))?;
    map.iter()
        .map(|(tensor, file)| match file.as_str() {
            Some(file) if !file.is_empty() && !file.contains(['/', '\\']) => Ok((tensor.clone(), file.to_owned())),
            _ => Err(CheckpointError::item(
                INDEX,
                tensor,
                format!("expected the name of a file beside it, found {file}"),
            )),
        })
        .collect()
}

fn shards_of_index(
    index: &BTreeMap<String, String>,
    present: &BTreeSet<String>,
) -> Result<BTreeSet<String>, CheckpointError> {
    let named: BTreeSet<String> = index.values().cloned().collect();
    if named.is_empty() {
        return Err(CheckpointError::item(INDEX, "weight_map", "names no tensor"));
    }
    for name in &named {
        if !present.contains(name) {
            return Err(
                CheckpointError::file(name, format!("is missing: {INDEX} names it")).hint("download this shard")
            );
        }
    }
    // A shard that numbers itself into the series of the index and is not in it is a leftover of another download.
    if let Some(of) = named.iter().find_map(|n| series(n).map(|(_, of)| of)) {
        for name in present.difference(&named) {
            if let Some((i, n)) = series(name)
                && (n == of || i > of)
            {
                return Err(CheckpointError::file(
                    name,
                    format!("belongs to no tensor of {INDEX}, which has {of} shards"),
                )
                .hint("remove it if it is of another checkpoint, or download the index again"));
            }
        }
    }
    Ok(named)
}

/// `(i, n)` of `model-0000i-of-0000n.safetensors`.
fn series(name: &str) -> Option<(usize, usize)> {
    let (i, n) = name.strip_prefix("model-")?.strip_suffix(".safetensors")?.split_once("-of-")?;
    Some((i.parse().ok()?, n.parse().ok()?))
}

fn shards_by_name(present: &BTreeSet<String>) -> Result<BTreeSet<String>, CheckpointError> {
    const ONE: &str = "model.safetensors";
    if present.contains(ONE) {
        return Ok(BTreeSet::from([ONE.to_owned()]));
    }
    let members: Vec<(usize, usize, &String)> =
        present.iter().filter_map(|name| series(name).map(|(i, n)| (i, n, name))).collect();
    let Some(&(_, of, first)) = members.first() else {
        return Err(CheckpointError::file(ONE, format!("is missing, and there is no {INDEX} and no numbered series"))
            .hint("give the folder that holds the checkpoint's config.json and .safetensors files"));
    };
    for &(i, n, name) in &members {
        if n != of || i == 0 || i > of {
            return Err(CheckpointError::file(
                name,
                format!("is beyond the series of {of} shards that {first} announces"),
            )
            .hint("remove it, or download the whole series again"));
        }
    }
    for i in 1..=of {
        if !members.iter().any(|m| m.0 == i) {
            let missing = format!("model-{i:05}-of-{of:05}.safetensors");
            return Err(CheckpointError::file(missing, format!("is missing from the series of {of} shards"))
                .hint("download this shard"));
        }
    }
    Ok(members.into_iter().map(|m| m.2.clone()).collect())
}

fn open_shard(folder: &Path, name: &str) -> Result<(Shard, Vec<RawTensor>), CheckpointError> {
    let unreadable = |e: std::io::Error| CheckpointError::file(name, format!("cannot be read: {e}"));
    let mut file = File::open(folder.join(name)).map_err(unreadable)?;
    let len = file.metadata().map_err(unreadable)?.len();
    let mut prefix = [0; 8];
    if len < 8 {
        return Err(CheckpointError::file(name, format!("expected a safetensors file, found {len} B"))
            .hint("download this shard again"));
    }
    file.read_exact(&mut prefix).map_err(unreadable)?;
    if &prefix == b"version " {
        return Err(lfs_pointer(name, &mut file, len));
    }
    let fault =
        |f: header::HeaderFault| CheckpointError { file: name.into(), item: f.tensor, fault: f.what, hint: None };
    let json_len = header::json_len(prefix, len).map_err(fault)?;
    let mut json = vec![0; json_len as usize];
    file.read_exact(&mut json).map_err(unreadable)?;
    let tensors = header::parse(&json, len).map_err(fault)?;
    Ok((Shard { name: name.to_owned(), len, file }, tensors))
}

fn lfs_pointer(name: &str, file: &mut File, len: u64) -> CheckpointError {
    let mut rest = String::new();
    let _ = file.take(1024).read_to_string(&mut rest);
    let size = rest.lines().find_map(|l| l.strip_prefix("size ")).unwrap_or("an unknown number of");
    CheckpointError::file(name, format!("is a Git LFS pointer of {len} B in place of the {size} B that it announces"))
        .hint("fetch the real file (git lfs pull, or download it again)")
}

fn check_index(index: &BTreeMap<String, String>, files: &Files) -> Result<(), CheckpointError> {
    for (tensor, file) in index {
        match files.tensors.get(tensor) {
            Some((i, _)) if files.shards[*i].name == *file => {}
            Some((i, _)) => {
                let fault =
                    format!("index does not match files: it says {file}, the tensor is in {}", files.shards[*i].name);
                return Err(CheckpointError::item(INDEX, tensor, fault).hint("download the index again"));
            }
            None => {
                let fault = format!("index does not match files: it says {file}, and no shard has the tensor");
                return Err(CheckpointError::item(INDEX, tensor, fault).hint("download that shard and the index again"));
            }
        }
    }
    Ok(())
}
