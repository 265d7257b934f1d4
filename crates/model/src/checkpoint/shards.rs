//! The tensors of all shards in one list, and positional reads of them.

use super::files::{self, Selection};
use super::header::{self, HeaderFault, PREFIX, RawTensor};
use crate::error::{CheckpointError, list};
use crate::positional::read_exact_at as read_at;
use crate::store::StoreError;
use std::fs::File;
use std::io;
use std::path::Path;

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

/// A tensor and the shard that holds it.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) entry: RawTensor,
    pub(crate) shard: usize,
}

/// Every tensor of the checkpoint, by name.
#[derive(Debug)]
pub(crate) struct Shards {
    shards: Vec<Shard>,
    /// Names of the files, of which a description alone has no open ones.
    names: Vec<String>,
    tensors: Vec<Located>,
}

impl Shards {
    /// Opens the chosen files and reads their headers, nothing else.
    pub(crate) fn open(folder: &Path, selection: &Selection) -> Result<Self, CheckpointError> {
        let (mut shards, mut headers) = (Vec::new(), Vec::new());
        for name in &selection.shards {
            let (shard, entries) = open_shard(folder, name)?;
            headers.push((name.clone(), entries));
            shards.push(shard);
        }
        let mut this = Self::of_headers(headers, selection.index.as_deref())?;
        this.shards = shards;
        Ok(this)
    }

    /// The tensors of these files, each once, and those of the index if there is one.
    pub(super) fn of_headers(
        headers: Vec<(String, Vec<RawTensor>)>,
        index: Option<&[u8]>,
    ) -> Result<Self, CheckpointError> {
        let (mut names, mut tensors) = (Vec::new(), Vec::new());
        for (shard, (name, entries)) in headers.into_iter().enumerate() {
            tensors.extend(entries.into_iter().map(|entry| Located { entry, shard }));
            names.push(name);
        }
        tensors.sort_unstable_by(|a, b| (&a.entry.name, a.shard).cmp(&(&b.entry.name, b.shard)));
        let this = Self { shards: Vec::new(), names, tensors };
        if let Some(pair) = this.tensors.windows(2).find(|pair| pair[0].entry.name == pair[1].entry.name) {
            let text = format!("also in {}; one of the files does not belong here", this.file_of(&pair[0]));
            return Err(CheckpointError::item(this.file_of(&pair[1]), &*pair[1].entry.name, text));
        }
        if let Some(index) = index {
            this.compare(index)?;
        }
        Ok(this)
    }

    /// Tensors that are described and not read: for binding alone.
    pub(crate) fn described(mut all: Vec<(String, RawTensor)>) -> Self {
        all.sort_unstable_by(|a, b| a.1.name.cmp(&b.1.name));
        let mut names: Vec<String> = all.iter().map(|(file, _)| file.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let shard = |file: &String| names.binary_search(file).unwrap_or(0);
        let tensors = all.into_iter().map(|(file, entry)| Located { shard: shard(&file), entry }).collect();
        Self { shards: Vec::new(), names, tensors }
    }

    /// Every tensor that the index names must be where it says, and every tensor must be named.
    fn compare(&self, index: &[u8]) -> Result<(), CheckpointError> {
        let mut seen = vec![false; self.tensors.len()];
        let mut fault = None;
        files::each_in_index(index, |tensor, file| {
            let text = match self.position(tensor) {
                None => format!("puts tensor `{tensor}` into {file}, which does not hold it"),
                Some(at) if self.file_of(&self.tensors[at]) != file => {
                    format!("puts tensor `{tensor}` into {file}, found in {}", self.file_of(&self.tensors[at]))
                }
                Some(at) if std::mem::replace(&mut seen[at], true) => format!("names tensor `{tensor}` twice"),
                Some(_) => return,
            };
            fault.get_or_insert(text + "; the index does not match the files");
        })?;
        if let Some(text) = fault {
            return Err(CheckpointError::file(files::index_name(), text));
        }
        let unnamed = seen.iter().position(|seen| !seen).map(|at| &self.tensors[at]);
        unnamed.map_or(Ok(()), |tensor| {
            let text = format!("not in {}; the index does not match the files", files::index_name());
            Err(CheckpointError::item(self.file_of(tensor), &*tensor.entry.name, text))
        })
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(crate) fn tensors(&self) -> &[Located] {
        &self.tensors
    }

    /// Position of a tensor in [`Shards::tensors`].
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.tensors.binary_search_by(|t| (*t.entry.name).cmp(name)).ok()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Located> {
        self.position(name).map(|at| &self.tensors[at])
    }

    /// Tensors whose names start with `prefix`.
    pub(crate) fn starting_with(&self, prefix: &str) -> impl Iterator<Item = &Located> {
        let start = self.tensors.partition_point(|t| *t.entry.name < *prefix);
        self.tensors[start..].iter().take_while(move |t| t.entry.name.starts_with(prefix))
    }

    /// Up to `limit` names below `prefix`, in words.
    pub(crate) fn found_below(&self, prefix: &str, limit: usize) -> String {
        let names: Vec<&str> = self.starting_with(prefix).map(|t| &t.entry.name[prefix.len()..]).collect();
        if names.is_empty() { format!("nothing begins with `{prefix}`") } else { list(&names, limit) }
    }

    /// All files, in words.
    pub(crate) fn all(&self) -> String {
        match &self.names[..] {
            [one] => one.clone(),
            many => format!("{} shards", many.len()),
        }
    }

    pub(crate) fn file_of(&self, tensor: &Located) -> &str {
        &self.names[tensor.shard]
    }

    /// Fills `out` with the tensor's bytes from `offset` on.
    pub(crate) fn read(&self, tensor: &Located, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let RawTensor { name, offset: start, len, .. } = &tensor.entry;
        let fault = |fault: String| StoreError { file: self.file_of(tensor).into(), item: name.to_string(), fault };
        let wanted = out.len() as u64;
        if offset.checked_add(wanted).is_none_or(|stop| stop > *len) {
            return Err(fault(format!("{wanted} B from {offset} B on lie outside its {len} B")));
        }
        let shard = self.shards.get(tensor.shard).ok_or_else(|| fault("described only, not open".into()))?;
        read_at(&shard.file, start + offset, out)
            .map_err(|e| fault(format!("cannot read {wanted} B from {offset} B on: {e}")))
    }
}

fn open_shard(folder: &Path, name: &str) -> Result<(Shard, Vec<RawTensor>), CheckpointError> {
    let io = |e: io::Error| CheckpointError::file(name, format!("cannot be read: {e}"));
    let file = File::open(folder.join(name)).map_err(io)?;
    let len = file.metadata().map_err(io)?.len();
    let entries = entries(name, len, &|offset, out| read_at(&file, offset, out))?;
    Ok((Shard { name: name.into(), len, file }, entries))
}

/// The tensors that a file of `len` bytes describes; `read` fills a buffer from an offset of the file on.
pub(super) fn entries(
    name: &str,
    len: u64,
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<()>,
) -> Result<Vec<RawTensor>, CheckpointError> {
    let io = |e: io::Error| CheckpointError::file(name, format!("cannot be read: {e}"));
    let mut start = vec![0; usize::try_from(len.min(1024)).unwrap_or(0)];
    read(0, &mut start).map_err(io)?;
    if let Some(text) = (len <= 1024).then(|| files::pointer(&start)).flatten() {
        return Err(CheckpointError::file(name, text));
    }
    let fault = |fault: HeaderFault| match fault.tensor {
        Some(tensor) => CheckpointError::item(name, tensor, fault.what),
        None => CheckpointError::file(name, fault.what),
    };
    let Some(prefix) = start.first_chunk() else {
        return Err(CheckpointError::file(
            name,
            format!("{len} B, too short for a safetensors file; download it again"),
        ));
    };
    let json_len = header::json_len(*prefix, len).map_err(fault)?;
    let mut json = vec![0; usize::try_from(json_len).map_err(|_| CheckpointError::file(name, "too large"))?];
    read(PREFIX, &mut json).map_err(io)?;
    header::parse(&json, len).map_err(fault)
}
