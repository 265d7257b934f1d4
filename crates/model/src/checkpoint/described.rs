//! Opening without a drive: what a checkpoint's small files and headers mean, from bytes in memory.
//!
//! [`understand`] runs what [`Checkpoint::open`](super::Checkpoint::open) runs before it reads a weight.

use super::files::{self, Place, Selection};
use super::header::RawTensor;
use super::shards::{self, Shards};
use super::{Report, Settings, Taken};
use crate::error::CheckpointError;
use crate::plan::{ConfigPlan, OpenOptions};
use crate::role::Bindings;
use std::io;

/// A folder in memory.
#[derive(Debug, Clone, Default)]
pub struct Folder {
    /// `config.json`.
    pub config: Vec<u8>,
    /// `generation_config.json`.
    pub generation: Option<Vec<u8>>,
    /// `model.safetensors.index.json`.
    pub index: Option<Vec<u8>>,
    /// The files of weights, in the order of their names.
    pub files: Vec<Headed>,
}

/// A file of weights, of which only the beginning is looked at.
#[derive(Debug, Clone, Default)]
pub struct Headed {
    /// Name within the folder.
    pub name: String,
    /// Its first bytes: at least the header. What follows them reads as zeros.
    pub start: Vec<u8>,
    /// Bytes of the whole file.
    pub len: u64,
}

/// What was made of it.
#[derive(Debug, Clone)]
pub struct Understood {
    /// The model with what its config says beside it.
    pub plan: ConfigPlan,
    /// Which tensor plays which role.
    pub bindings: Bindings,
    /// Used, skipped, ignored.
    pub report: Report,
    /// Every tensor, by name.
    pub tensors: Vec<RawTensor>,
}

/// Plans and binds a folder in memory.
///
/// # Errors
/// As [`Checkpoint::open`](super::Checkpoint::open), save for what only reading the weights can tell.
pub fn understand(folder: &Folder, options: &OpenOptions) -> Result<Understood, CheckpointError> {
    let settings = Settings::parse(&folder.config, folder.generation.as_deref())?;
    let has = |name: &str| folder.files.iter().any(|file| file.name == name);
    let place = Place { name: "folder".into(), has: &has };
    let present = folder.files.iter().map(|file| file.name.clone()).collect();
    let selection = files::choose(&place, present, folder.index.clone())?;
    let open = |selection: &Selection| {
        let mut headers = Vec::new();
        for name in &selection.shards {
            let Some(file) = folder.files.iter().find(|file| file.name == *name) else {
                return Err(CheckpointError::file(name, "missing"));
            };
            headers.push((name.clone(), shards::entries(name, file.len, &|offset, out| file.read(offset, out))?));
        }
        Shards::of_headers(headers, selection.index.as_deref())
    };
    let Taken { shards, plan, bound, report } = settings.take(selection, options, open)?;
    let tensors = shards.tensors().iter().map(|tensor| tensor.entry.clone()).collect();
    Ok(Understood { plan, bindings: bound.bindings, report, tensors })
}

impl Headed {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let known = usize::try_from(offset).ok().and_then(|at| self.start.get(at..)).unwrap_or(&[]);
        let known = &known[..known.len().min(out.len())];
        out[..known.len()].copy_from_slice(known);
        out[known.len()..].fill(0);
        Ok(())
    }
}
