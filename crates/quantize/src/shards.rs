//! Writing safetensors: every header is planned from names and shapes, then the data streams through.

use crate::error::{QuantizeError, Result};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Bytes of tensors after which a shard is full, as the usual tools cut.
pub const SHARD_BYTES: u64 = 5_000_000_000;

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: String,
    /// Element type as the format spells it.
    pub dtype: &'static str,
    /// Shape.
    pub shape: Vec<usize>,
    /// Bytes of an element.
    pub element: usize,
}

impl Entry {
    /// Bytes of its data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape.iter().map(|&n| n as u64).product::<u64>() * self.element as u64
    }
}

/// One file to be: its name, its header, and the entries whose data follow in this order.
#[derive(Debug)]
pub struct Shard {
    /// File name.
    pub name: String,
    /// Length prefix and JSON.
    pub header: Vec<u8>,
    /// Range of the planned entries.
    pub entries: std::ops::Range<usize>,
    /// Bytes of all of it.
    pub bytes: u64,
}

/// Cuts `entries` into shards of at most `limit` bytes of data (one tensor at least) and makes their headers.
#[must_use]
pub fn plan(entries: &[Entry], limit: u64) -> Vec<Shard> {
    let mut cuts = vec![0];
    let mut filled = 0;
    for (i, entry) in entries.iter().enumerate() {
        if filled > 0 && filled + entry.bytes() > limit {
            cuts.push(i);
            filled = 0;
        }
        filled += entry.bytes();
    }
    cuts.push(entries.len());
    let count = cuts.len() - 1;
    let name = |i: usize| match count {
        1 => "model.safetensors".to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", i + 1),
    };
    let shard = |(i, cut): (usize, &[usize])| {
        let range = cut[0]..cut[1];
        let header = header(&entries[range.clone()]);
        let bytes = header.len() as u64 + entries[range.clone()].iter().map(Entry::bytes).sum::<u64>();
        Shard { name: name(i), header, entries: range, bytes }
    };
    cuts.windows(2).enumerate().map(shard).collect()
}

/// The header of one file, padded with spaces so that data starts at a multiple of 8.
fn header(entries: &[Entry]) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!({ "format": "pt" }));
    let mut at = 0;
    for entry in entries {
        let end = at + entry.bytes();
        let value = json!({ "dtype": entry.dtype, "shape": entry.shape, "data_offsets": [at, end] });
        map.insert(entry.name.clone(), value);
        at = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.append(&mut text);
    out
}

/// The index of a checkpoint of several files.
#[must_use]
pub fn index(entries: &[Entry], shards: &[Shard]) -> Value {
    let total: u64 = entries.iter().map(Entry::bytes).sum();
    let mut map = Map::new();
    for shard in shards {
        for entry in &entries[shard.entries.clone()] {
            map.insert(entry.name.clone(), shard.name.clone().into());
        }
    }
    json!({ "metadata": { "total_size": total }, "weight_map": map })
}

/// A checkpoint folder being written: under a temporary name until it is whole.
pub(crate) struct Folder {
    temporary: tempfile::TempDir,
    target: PathBuf,
}

impl Folder {
    /// Starts a folder that will be `target`. An existing one is refused, or with `force` replaced at the end if it
    /// looks like a checkpoint: nothing else is ever deleted.
    pub(crate) fn create(target: &Path, force: bool) -> Result<Self> {
        check_target(target, force)?;
        let parent = crate::disk::parent(target);
        let temporary = tempfile::Builder::new()
            .prefix(".smoe-")
            .suffix(".partial")
            .tempdir_in(&parent)
            .map_err(QuantizeError::io(&parent, "create a folder in it"))?;
        Ok(Self { temporary, target: target.to_owned() })
    }

    /// Starts a shard: its header is written, its data follow.
    pub(crate) fn shard(&self, shard: &Shard) -> Result<ShardFile> {
        let path = self.temporary.path().join(&shard.name);
        let mut file = File::create_new(&path).map_err(QuantizeError::io(&path, "create"))?;
        file.write_all(&shard.header).map_err(QuantizeError::io(&path, "write"))?;
        Ok(ShardFile { file, path, left: shard.bytes - shard.header.len() as u64 })
    }

    /// Writes a small file.
    pub(crate) fn text(&self, name: &str, text: &str) -> Result<()> {
        self.bytes(name, text.as_bytes())
    }

    /// Where the files are until [`Folder::finish`].
    pub(crate) fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Writes a small file.
    pub(crate) fn bytes(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.temporary.path().join(name);
        let mut file = File::create_new(&path).map_err(QuantizeError::io(&path, "create"))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(QuantizeError::io(&path, "write"))
    }

    /// Gives the folder its name.
    pub(crate) fn finish(self) -> Result<()> {
        let target = self.target;
        if target.exists() {
            check_target(&target, true)?;
            std::fs::remove_dir_all(&target).map_err(QuantizeError::io(&target, "replace"))?;
        }
        // A temporary folder is its owner's alone; the finished one is as any other.
        let made = self.temporary.keep();
        open_to_readers(&made)?;
        std::fs::rename(&made, &target).map_err(QuantizeError::io(&target, "rename the finished folder to it"))?;
        let parent = crate::disk::parent(&target);
        File::open(&parent).and_then(|f| f.sync_all()).map_err(QuantizeError::io(&parent, "write"))
    }
}

#[cfg(unix)]
fn open_to_readers(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, mode).map_err(QuantizeError::io(folder, "set its mode"))
}

#[cfg(not(unix))]
fn open_to_readers(_: &Path) -> Result<()> {
    Ok(())
}

/// What a folder of ours may hold; anything else in it and `--force` deletes nothing.
const REPLACEABLE: [&str; 5] = ["safetensors", "json", "jinja", "txt", "md"];

/// Refuses a target that exists and may not be replaced.
pub(crate) fn check_target(target: &Path, force: bool) -> Result<()> {
    if !target.exists() {
        return Ok(());
    }
    if !force {
        return Err(QuantizeError::Exists(target.to_owned()));
    }
    let stranger = || -> std::io::Result<Option<PathBuf>> {
        for entry in std::fs::read_dir(target)? {
            let entry = entry?;
            let path = entry.path();
            let known = path.extension().is_some_and(|e| REPLACEABLE.iter().any(|r| e == *r));
            if !entry.file_type()?.is_file() || !known {
                return Ok(Some(path));
            }
        }
        Ok(None)
    };
    match stranger().map_err(QuantizeError::io(target, "list"))? {
        None => Ok(()),
        Some(path) => Err(QuantizeError::Refused(format!(
            "{} holds {}, which no checkpoint needs: --force does not delete it; choose another folder",
            target.display(),
            path.file_name().unwrap_or_default().display()
        ))),
    }
}

/// A shard whose data are being written.
pub(crate) struct ShardFile {
    file: File,
    path: PathBuf,
    left: u64,
}

impl ShardFile {
    /// Appends data of the entries, in their order.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(QuantizeError::io(&self.path, "write"))?;
        self.left = self.left.checked_sub(bytes.len() as u64).expect("no more data than the header announces");
        Ok(())
    }

    /// Waits until the data is on the drive.
    pub(crate) fn finish(self) -> Result<()> {
        assert_eq!(self.left, 0, "{}: data missing that the header announces", self.path.display());
        self.file.sync_all().map_err(QuantizeError::io(&self.path, "write"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, rows: usize) -> Entry {
        Entry { name: name.into(), dtype: "BF16", shape: vec![rows, 4], element: 2 }
    }

    #[test]
    fn shards_are_cut_by_size_and_numbered() {
        let entries = [entry("a", 4), entry("b", 4), entry("c", 40), entry("d", 1)];
        let shards = plan(&entries, 64);
        let cut: Vec<_> = shards.iter().map(|s| (s.name.as_str(), s.entries.clone())).collect();
        assert_eq!(
            cut,
            [
                ("model-00001-of-00003.safetensors", 0..2),
                ("model-00002-of-00003.safetensors", 2..3),
                ("model-00003-of-00003.safetensors", 3..4)
            ]
        );
        assert_eq!(shards[0].bytes, shards[0].header.len() as u64 + 64);
        assert_eq!(index(&entries, &shards)["weight_map"]["c"], "model-00002-of-00003.safetensors");
        assert_eq!(plan(&entries, u64::MAX)[0].name, "model.safetensors");
    }

    #[test]
    fn a_header_is_aligned_and_describes_its_data() {
        let header = header(&[entry("a", 1), entry("b", 2)]);
        assert!(header.len().is_multiple_of(8));
        let json: Value = serde_json::from_slice(&header[8..]).expect("JSON with spaces after it");
        assert_eq!(json["b"]["data_offsets"], json!([8, 24]));
        assert_eq!(u64::from_le_bytes(header[..8].try_into().expect("eight bytes")), header.len() as u64 - 8);
    }

    #[test]
    fn force_deletes_no_stranger() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        std::fs::write(folder.path().join("thesis.docx"), "years of work").expect("a file");
        assert!(matches!(check_target(folder.path(), false), Err(QuantizeError::Exists(_))));
        let said = check_target(folder.path(), true).expect_err("a stranger").to_string();
        assert!(said.contains("thesis.docx"), "{said}");
    }
}
