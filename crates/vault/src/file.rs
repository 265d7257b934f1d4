//! [`VaultFile`]: a vault on a drive. Everything that it hands out has met its checksum.

use crate::drive::{Drive, read_full};
use crate::fault::{Fault, FaultKind, Place, VaultError};
use crate::manifest::{Manifest, Region};
use crate::reader::{IndexReader, Step, VaultIndex};
use crate::record::ExpertRecord;
use crate::verify::check_unread;
use crate::{BlobLayout, checksum};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::Xxh3;

/// Bytes read at once where a part is only hashed.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// An open vault. Shared between threads: every read is positional.
pub struct VaultFile {
    drive: Box<dyn Drive>,
    name: String,
    index: VaultIndex,
    trunk_by_name: HashMap<String, usize>,
    trunk_checked: Vec<AtomicBool>,
    blob_checked: Vec<AtomicBool>,
}

impl std::fmt::Debug for VaultFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VaultFile({})", self.name)
    }
}

/// Opens an ordinary file for reading. Anything else (a pipe would block for ever) is refused.
pub(crate) fn open_plain(path: &Path) -> Result<File, VaultError> {
    let meta = std::fs::metadata(path).map_err(|e| VaultError::io(path, "open", &e))?;
    if !meta.is_file() {
        let kind = if meta.is_dir() { "a folder" } else { "no ordinary file" };
        return Err(VaultError::refused(path, format!("it is {kind}; expected a vault")));
    }
    File::open(path).map_err(|e| VaultError::io(path, "open", &e))
}

/// Reads the index from a drive.
pub(crate) fn read_index(drive: &dyn Drive) -> Result<VaultIndex, Fault> {
    let length = drive.len_bytes().map_err(|e| FaultKind::io("read the length", &e).at(Place::File))?;
    let mut reader = IndexReader::new(length);
    for place in [Place::Header, Place::Manifest, Place::ExpertTable, Place::File] {
        match reader.step()? {
            Step::Done(index) => return Ok(*index),
            Step::Need(need) => {
                let mut bytes = vec![0; need.len];
                read_full(drive, need.offset, &mut bytes).map_err(|kind| kind.at(place))?;
                reader.supply(&bytes)?;
            }
        }
    }
    unreachable!("the reader asks for three ranges")
}

impl VaultFile {
    /// Opens a vault and checks header, manifest and expert table.
    ///
    /// # Errors
    /// A file that cannot be read or is no whole vault.
    pub fn open(path: &Path) -> Result<Self, VaultError> {
        Self::from_drive(Box::new(open_plain(path)?), &path.display().to_string())
    }

    /// Opens a vault on any drive; `name` is for messages.
    ///
    /// # Errors
    /// As [`VaultFile::open`].
    pub fn from_drive(drive: Box<dyn Drive>, name: &str) -> Result<Self, VaultError> {
        let index = read_index(&*drive).map_err(|fault| fault.in_file(name))?;
        let unchecked = |n: usize| (0..n).map(|_| AtomicBool::new(false)).collect();
        Ok(Self {
            trunk_by_name: index.manifest.trunk.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect(),
            trunk_checked: unchecked(index.manifest.trunk.len()),
            blob_checked: unchecked(index.experts.len()),
            name: name.to_string(),
            drive,
            index,
        })
    }

    /// The file's name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Header, manifest and expert table.
    #[must_use]
    pub fn index(&self) -> &VaultIndex {
        &self.index
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.index.manifest
    }

    /// The expert table, by layer and expert.
    #[must_use]
    pub fn experts(&self) -> &[ExpertRecord] {
        &self.index.experts
    }

    /// An expert's record.
    #[must_use]
    pub fn expert(&self, layer: u32, expert: u32) -> Option<&ExpertRecord> {
        self.index.expert(layer, expert)
    }

    /// The drive, for readers that bring their own buffers.
    #[must_use]
    pub fn drive(&self) -> &dyn Drive {
        &*self.drive
    }

    pub(crate) fn error(&self, place: Place, kind: FaultKind) -> VaultError {
        kind.at(place).in_file(&self.name)
    }

    /// Checks what no read has checked: padding, sections, and trunk tensors that nobody asked for. After it, and with
    /// every blob checked as it is read, no damaged byte of the file goes unnoticed.
    ///
    /// # Errors
    /// The first part that is damaged or cannot be read.
    pub fn check_unread(&self) -> Result<(), VaultError> {
        let unread = |i: usize| !self.trunk_checked[i].load(Ordering::Acquire);
        check_unread(&*self.drive, &self.index, unread).map_err(|fault| fault.in_file(&self.name))
    }

    /// Reads an expert's blob, padding included.
    ///
    /// # Errors
    /// A record of another vault, a blob that cannot be read or is damaged.
    pub fn read_blob(&self, record: &ExpertRecord) -> Result<Vec<u8>, VaultError> {
        // The record's length was compared with the file's when the table was read.
        let length = usize::try_from(record.length)
            .map_err(|_| self.error(record.place(), FaultKind::refused("its blob exceeds the address space")))?;
        let mut blob = vec![0; length];
        self.read_blob_into(record, &mut blob)?;
        Ok(blob)
    }

    /// Reads an expert's blob into a buffer of exactly its length. The first read of each blob is checked.
    ///
    /// # Errors
    /// As [`VaultFile::read_blob`].
    ///
    /// # Panics
    /// If `out` is not as long as the record says.
    pub fn read_blob_into(&self, record: &ExpertRecord, out: &mut [u8]) -> Result<(), VaultError> {
        let key = (record.layer, record.expert);
        let index = self.index.experts.binary_search_by_key(&key, |r| (r.layer, r.expert));
        let index = index.ok().filter(|&i| self.index.experts[i] == *record);
        let index =
            index.ok_or_else(|| self.error(record.place(), FaultKind::refused("not an expert of this vault")))?;
        assert_eq!(out.len() as u64, record.length, "a buffer of the blob's length");
        read_full(&*self.drive, record.offset, out).map_err(|kind| self.error(record.place(), kind))?;
        if !self.blob_checked[index].load(Ordering::Relaxed) {
            check_blob(record, out).map_err(|kind| self.error(record.place(), kind))?;
            self.blob_checked[index].store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Fills `out` with bytes of a trunk tensor from `offset` on. The whole tensor is checked before the first bytes of
    /// it are handed out.
    ///
    /// # Errors
    /// No such tensor, a range outside it, a tensor that cannot be read or is damaged.
    pub fn read_trunk(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), VaultError> {
        let place = || Place::Trunk(name.to_string());
        let index = self.trunk_by_name.get(name).copied();
        let index = index.ok_or_else(|| self.error(place(), FaultKind::refused("the vault has no such tensor")))?;
        let region = self.index.manifest.trunk[index].region();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > region.length) {
            let text = format!("bytes {offset}..+{} lie outside its {} B", out.len(), region.length);
            return Err(self.error(place(), FaultKind::refused(text)));
        }
        let checked = &self.trunk_checked[index];
        let whole = offset == 0 && out.len() as u64 == region.length;
        if !whole && !checked.load(Ordering::Relaxed) {
            check_region(&*self.drive, region, &mut |_| ()).map_err(|kind| self.error(place(), kind))?;
            checked.store(true, Ordering::Relaxed);
        }
        read_full(&*self.drive, region.offset + offset, out).map_err(|kind| self.error(place(), kind))?;
        if whole && !checked.load(Ordering::Relaxed) {
            expect_checksum(region.checksum, checksum(out)).map_err(|kind| self.error(place(), kind))?;
            checked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A small file of the vault; `None` where it has none of this name.
    ///
    /// # Errors
    /// A section that cannot be read or is damaged.
    pub fn section(&self, name: &str) -> Result<Option<Vec<u8>>, VaultError> {
        let Some(section) = self.index.manifest.sections.iter().find(|s| s.name == name) else { return Ok(None) };
        let fail = |kind| self.error(Place::Section(name.to_string()), kind);
        let length = usize::try_from(section.length).map_err(|_| fail(FaultKind::refused("it exceeds memory")))?;
        let mut bytes = vec![0; length];
        read_full(&*self.drive, section.offset, &mut bytes).map_err(fail)?;
        expect_checksum(section.checksum, checksum(&bytes)).map_err(fail)?;
        Ok(Some(bytes))
    }
}

pub(crate) fn expect_checksum(expected: u64, found: u64) -> Result<(), FaultKind> {
    if expected == found { Ok(()) } else { Err(FaultKind::Damaged { expected, found }) }
}

/// Hashes a region in pieces and compares; `progress` gets the bytes of each piece.
pub(crate) fn check_region(drive: &dyn Drive, region: Region, progress: &mut dyn FnMut(u64)) -> Result<(), FaultKind> {
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; CHUNK_BYTES.min(usize::try_from(region.length).unwrap_or(CHUNK_BYTES))];
    let mut at = 0;
    while at < region.length {
        let take = usize::try_from(region.length - at).unwrap_or(usize::MAX).min(buffer.len());
        read_full(drive, region.offset + at, &mut buffer[..take])?;
        hash.update(&buffer[..take]);
        at += take as u64;
        progress(take as u64);
    }
    expect_checksum(region.checksum, hash.digest())
}

/// A blob's checksum, then what no writer writes: padding that is not zero, scales that are no scales.
pub(crate) fn check_blob(record: &ExpertRecord, blob: &[u8]) -> Result<(), FaultKind> {
    expect_checksum(record.checksum, checksum(blob))?;
    check_blob_form(&record.layout()?, blob)
}

/// What a blob must be whatever its checksum: zero padding, scales that are finite and not negative.
pub(crate) fn check_blob_form(layout: &BlobLayout, blob: &[u8]) -> Result<(), FaultKind> {
    if let Some(at) = layout.dirty_padding(blob) {
        return Err(FaultKind::refused(format!("padding byte {at} of its blob is not zero")));
    }
    for (proj, name) in ["gate", "up", "down"].into_iter().enumerate() {
        if let Some(at) = smoe_codec::bad_scale(&blob[layout.scales(proj)]) {
            return Err(FaultKind::refused(format!("{name} scale {at} is negative or not finite")));
        }
    }
    Ok(())
}
