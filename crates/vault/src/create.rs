//! [`VaultWriter`]: a vault written beside its final name, resumable, and renamed when it is whole.

use crate::assembly::{Assembly, Contents, Unit};
use crate::drive::{DriveMut, read_full, write_full};
use crate::fault::{Fault, FaultKind, Place, VaultError};
use crate::file::{check_region, expect_checksum};
use crate::journal::{Entry, Journal, Opening};
use crate::layout::Layout;
use crate::manifest::Region;
use crate::space::{allocated_bytes, free_bytes, readable, reserve, sync_folder};
use crate::update::run_steps;
use crate::{BlobLayout, checksum};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// What to do with a file that has the final name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is an error.
    Refuse,
    /// It is replaced, at the end and at once.
    Replace,
}

/// What to do with the partial file of an earlier attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It is thrown away.
    Fresh,
    /// Its finished parts are kept if it was made with the same fingerprint and layout.
    Resume,
}

/// How to write.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// A file with the final name.
    pub existing: Existing,
    /// A partial file.
    pub start: Start,
    /// Everything that the bytes depend on (options, source hashes), in any text.
    pub fingerprint: String,
}

/// A vault that is being written: `NAME.partial` and `NAME.journal` beside the final name until it is whole.
///
/// Parts may be written in any order and from several threads. Dropped before [`VaultWriter::finish`], it leaves the
/// partial file for a resume if any part of it is finished, and nothing otherwise.
pub struct VaultWriter {
    drive: Box<dyn DriveMut>,
    paths: Paths,
    options: WriteOptions,
    layout: Layout,
    state: Mutex<State>,
    kept: bool,
}

struct State {
    assembly: Assembly,
    journal: Journal,
    notes: HashMap<Unit, Value>,
}

#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) target: PathBuf,
    pub(crate) partial: PathBuf,
    journal: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Paths {
    pub(crate) fn of(target: &Path) -> Result<Self, VaultError> {
        let Some(name) = target.file_name() else {
            return Err(VaultError::refused(target, "it has no file name; expected the name of a vault to write"));
        };
        let sibling = |suffix: &str| {
            let mut name = name.to_os_string();
            name.push(suffix);
            target.with_file_name(name)
        };
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let target = target.to_path_buf();
        Ok(Self { partial: sibling(".partial"), journal: sibling(".journal"), target, folder })
    }
}

/// A finished vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its name.
    pub path: PathBuf,
    /// Its length.
    pub len_bytes: u64,
}

impl VaultWriter {
    /// Makes the partial file and reserves its room, or continues one. Takes a second at most, but for reading what an
    /// earlier attempt has finished.
    ///
    /// # Errors
    /// The final name exists, the folder does not or cannot be written, the drive has too little room, the partial file
    /// is another conversion's or is being written now.
    pub fn create(path: &Path, layout: Layout, options: WriteOptions) -> Result<Self, VaultError> {
        let paths = Paths::of(path)?;
        check_target(&paths, options.existing)?;
        let file = open_partial(&paths)?;
        match Self::start(file, &paths, layout, options) {
            Ok(writer) => Ok(writer),
            Err((file, error)) => {
                // A fresh attempt that never began leaves nothing; one to resume stays.
                if !paths.journal.exists() {
                    drop(file);
                    let _ = std::fs::remove_file(&paths.partial);
                }
                Err(error)
            }
        }
    }

    fn start(file: File, paths: &Paths, layout: Layout, options: WriteOptions) -> Result<Self, (File, VaultError)> {
        let opening = Opening { journal: 1, fingerprint: options.fingerprint.clone(), layout: layout_digest(&layout) };
        let begun = (|| {
            // Before an old attempt is thrown away.
            check_room(&file, paths, &layout)?;
            let resumed = match options.start {
                Start::Resume => resume(paths, &opening)?,
                Start::Fresh => None,
            };
            let (journal, entries) = match resumed {
                Some(found) => found,
                None => (restart(&file, paths, &opening)?, Vec::new()),
            };
            if let Err(e) = reserve(&file, layout.data_end()) {
                if entries.is_empty() {
                    let _ = std::fs::remove_file(&paths.journal);
                }
                return Err(VaultError::io(&paths.partial, "reserve room", &e));
            }
            Ok((journal, entries))
        })();
        let (journal, entries) = match begun {
            Ok(found) => found,
            Err(error) => return Err((file, error)),
        };
        let mut assembly = Assembly::new(layout.clone());
        let mut notes = HashMap::new();
        for Entry { unit, checksum, note } in entries {
            let whole = |region: Region| check_region(&file, Region { checksum, ..region }, &mut |_| ()).is_ok();
            if assembly.has(unit) && whole(assembly.region(unit)) {
                assembly.accept(unit, checksum);
                notes.insert(unit, note);
            }
        }
        let state = Mutex::new(State { assembly, journal, notes });
        Ok(Self { drive: Box::new(file), paths: paths.clone(), options, layout, state, kept: false })
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether a part is written already, by this or an earlier attempt.
    #[must_use]
    pub fn is_written(&self, unit: Unit) -> bool {
        self.state().assembly.is_written(unit)
    }

    /// The note that came with a written part.
    #[must_use]
    pub fn note(&self, unit: Unit) -> Option<Value> {
        self.state().notes.get(&unit).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between statements, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, fault: Fault) -> VaultError {
        fault.in_file(&self.paths.partial.display().to_string())
    }

    fn accept(&self, unit: Unit, checksum: u64, note: Value) -> Result<(), FaultKind> {
        let mut state = self.state();
        state.journal.record(unit, checksum, note.clone())?;
        state.assembly.accept(unit, checksum);
        state.notes.insert(unit, note);
        Ok(())
    }

    fn write_unit(&self, unit: Unit, bytes: &[u8], note: Value) -> Result<(), VaultError> {
        let (region, place) = {
            let state = self.state();
            (state.assembly.region(unit), state.assembly.place(unit))
        };
        let write = || {
            check_length(region.length, bytes.len() as u64)?;
            write_full(&*self.drive, region.offset, bytes)?;
            self.accept(unit, checksum(bytes), note)
        };
        write().map_err(|kind| self.error(kind.at(place)))
    }

    /// Writes a section whole.
    ///
    /// # Errors
    /// A length other than the layout's, or the drive's.
    ///
    /// # Panics
    /// If the layout has no such section.
    pub fn write_section(&self, index: usize, bytes: &[u8]) -> Result<(), VaultError> {
        self.write_unit(Unit::Section(index), bytes, Value::Null)
    }

    /// Writes an expert's blob, padding included ([`BlobLayout`]). `note` comes back after a resume.
    ///
    /// # Errors
    /// A length other than the layout's, padding that is not zero, scales that are no scales, or the drive's.
    ///
    /// # Panics
    /// If the layout has no such expert.
    pub fn write_expert(&self, index: usize, blob: &[u8], note: Value) -> Result<(), VaultError> {
        let record = self.layout.records[index];
        let form = record.layout().and_then(|parts: BlobLayout| {
            check_length(record.length, blob.len() as u64)?;
            crate::file::check_blob_form(&parts, blob)
        });
        form.map_err(|kind| self.error(kind.at(record.place())))?;
        self.write_unit(Unit::Expert(index), blob, note)
    }

    /// Reads back the blob of an expert that is written.
    ///
    /// # Errors
    /// The drive's, or another checksum than the blob was written with.
    ///
    /// # Panics
    /// If the layout has no such expert.
    pub fn read_expert(&self, index: usize) -> Result<Vec<u8>, VaultError> {
        let (unit, state) = (Unit::Expert(index), self.state());
        let (region, place) = (state.assembly.region(unit), state.assembly.place(unit));
        drop(state);
        // The layout bounds the length: it is this writer's own.
        let mut blob = vec![0; usize::try_from(region.length).unwrap_or(0)];
        let read = read_full(&*self.drive, region.offset, &mut blob)
            .and_then(|()| expect_checksum(region.checksum, checksum(&blob)));
        read.map(|()| blob).map_err(|kind| self.error(kind.at(place)))
    }

    /// Writes a trunk tensor in pieces, front to back.
    ///
    /// # Panics
    /// If the layout has no such tensor.
    #[must_use]
    pub fn trunk_sink(&self, index: usize) -> TrunkSink<'_> {
        TrunkSink { writer: self, index, region: self.layout.trunk[index].region(), at: 0, hash: Xxh3::new() }
    }

    /// Writes a trunk tensor whole.
    ///
    /// # Errors
    /// A length other than the layout's, or the drive's.
    ///
    /// # Panics
    /// If the layout has no such tensor.
    pub fn write_trunk(&self, index: usize, bytes: &[u8], note: Value) -> Result<(), VaultError> {
        self.write_unit(Unit::Trunk(index), bytes, note)
    }

    /// Writes table, manifest and header, syncs, and gives the file its name.
    ///
    /// # Errors
    /// A part that was not written, the drive's, or a file that took the final name meanwhile.
    pub fn finish(mut self, contents: Contents) -> Result<Finished, VaultError> {
        let steps = self.state().assembly.close(contents).map_err(|fault| self.error(fault))?;
        run_steps(&*self.drive, &steps).map_err(|kind| self.error(kind.at(Place::File)))?;
        check_target(&self.paths, self.options.existing)?;
        let Paths { target, partial, journal, folder } = &self.paths;
        std::fs::rename(partial, target).map_err(|e| VaultError::io(target, "rename the partial file to it", &e))?;
        self.kept = true;
        sync_folder(folder).map_err(|e| VaultError::io(folder, "sync the folder", &e))?;
        let _ = std::fs::remove_file(journal);
        let len_bytes = self.drive.len_bytes().map_err(|e| VaultError::io(target, "read the length", &e))?;
        Ok(Finished { path: target.clone(), len_bytes })
    }

    /// Removes the partial file and the journal: for a failure that no resume can pass.
    pub fn discard(mut self) {
        self.kept = true;
        self.remove();
    }

    fn remove(&self) {
        // The journal first: a partial file without one is worth nothing, a journal without its file could mislead.
        let _ = std::fs::remove_file(&self.paths.journal);
        let _ = std::fs::remove_file(&self.paths.partial);
    }
}

impl Drop for VaultWriter {
    fn drop(&mut self) {
        let begun = !self.state().notes.is_empty();
        if !self.kept && !begun {
            self.remove();
        }
    }
}

/// A trunk tensor that is being written front to back.
pub struct TrunkSink<'a> {
    writer: &'a VaultWriter,
    index: usize,
    region: Region,
    at: u64,
    hash: Xxh3,
}

impl TrunkSink<'_> {
    fn fail<T>(&self, result: Result<T, FaultKind>) -> Result<T, VaultError> {
        let place = || Place::Trunk(self.writer.layout.trunk[self.index].name.clone());
        result.map_err(|kind| self.writer.error(kind.at(place())))
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// More bytes than the tensor has, or the drive's.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), VaultError> {
        let end = self.at + bytes.len() as u64;
        if end > self.region.length {
            return self.fail(check_length(self.region.length, end));
        }
        self.fail(write_full(&*self.writer.drive, self.region.offset + self.at, bytes))?;
        self.hash.update(bytes);
        self.at = end;
        Ok(())
    }

    /// Ends the tensor; `note` comes back after a resume.
    ///
    /// # Errors
    /// Fewer bytes than the tensor has, or the drive's.
    pub fn finish(self, note: Value) -> Result<(), VaultError> {
        self.fail(check_length(self.region.length, self.at))?;
        self.fail(self.writer.accept(Unit::Trunk(self.index), self.hash.digest(), note))
    }
}

fn check_length(expected: u64, found: u64) -> Result<(), FaultKind> {
    if expected == found {
        return Ok(());
    }
    Err(FaultKind::refused(format!("its layout has {expected} B, {found} B were to be written")))
}

pub(crate) fn check_target(paths: &Paths, existing: Existing) -> Result<(), VaultError> {
    let target = &paths.target;
    match std::fs::metadata(target) {
        Ok(meta) if !meta.is_file() => Err(VaultError::refused(target, "it exists and is no ordinary file")),
        Ok(_) if existing == Existing::Refuse => {
            Err(FaultKind::Exists.at(Place::File).in_file(&target.display().to_string()))
        }
        _ => Ok(()),
    }
}

/// Opens the partial file, new or not, and makes sure that no other process writes it.
pub(crate) fn open_partial(paths: &Paths) -> Result<File, VaultError> {
    let mut how = OpenOptions::new();
    let file = how.read(true).write(true).create(true).truncate(false).open(&paths.partial);
    let file = file.map_err(|e| VaultError::io(&paths.partial, "create the file", &e))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(VaultError::refused(&paths.partial, "another process is writing it")),
        // File systems without locks are used without them.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// The journal of an earlier attempt; `None` where there is nothing to continue.
fn resume(paths: &Paths, opening: &Opening) -> Result<Option<(Journal, Vec<Entry>)>, VaultError> {
    if !paths.journal.exists() {
        return Ok(None);
    }
    let found = Journal::open(&paths.journal).map_err(|e| VaultError::io(&paths.journal, "read the journal", &e))?;
    let Some((journal, found, entries)) = found else { return Ok(None) };
    if found != *opening {
        let text = "it was begun with other options or sources; expected the same ones: repeat them, or start afresh \
                    without `--resume`";
        return Err(VaultError::refused(&paths.partial, text));
    }
    Ok(Some((journal, entries)))
}

/// Begins at nothing. The old journal goes first, so that it never describes the new file.
fn restart(file: &File, paths: &Paths, opening: &Opening) -> Result<Journal, VaultError> {
    if paths.journal.exists() {
        let removed = std::fs::remove_file(&paths.journal);
        removed.map_err(|e| VaultError::io(&paths.journal, "remove the old journal", &e))?;
    }
    file.set_len(0).map_err(|e| VaultError::io(&paths.partial, "empty the file", &e))?;
    Journal::create(&paths.journal, opening).map_err(|e| VaultError::io(&paths.journal, "create the journal", &e))
}

fn check_room(file: &File, paths: &Paths, layout: &Layout) -> Result<(), VaultError> {
    // The manifest: a line a tensor, the experts' provenance, and the model's description.
    let manifest = (1 << 20) + 512 * layout.trunk.len() as u64 + 512 * layout.records.len() as u64;
    let needed = layout.data_end().saturating_add(manifest).saturating_sub(allocated_bytes(file));
    match free_bytes(&paths.folder) {
        Some(free) if free < needed => Err(VaultError::refused(
            &paths.target,
            format!(
                "expected {} free on its drive, found {}; free some room or choose another folder",
                readable(needed),
                readable(free)
            ),
        )),
        _ => Ok(()),
    }
}

/// A digest of everything that the layout decides.
fn layout_digest(layout: &Layout) -> String {
    let mut hash = Xxh3::new();
    for record in &layout.records {
        hash.update(&record.to_bytes());
    }
    let names = serde_json::to_vec(&(layout.table, &layout.sections, &layout.trunk));
    hash.update(&names.expect("names and integers serialise"));
    format!("{:016x}", hash.digest())
}
