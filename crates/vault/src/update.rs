//! Carrying out what the parts without I/O ask for, and [`record_verdict`].

use crate::assembly::{WriteStep, steps_for_verdict};
use crate::drive::{DriveMut, write_full};
use crate::fault::{Fault, FaultKind, Place, VaultError};
use crate::file::read_index;
use crate::record::ExpertRecord;
use serde_json::Value;
use std::fs::{OpenOptions, TryLockError};
use std::path::Path;

/// Does what an [`Assembly`](crate::Assembly) asks for.
///
/// # Errors
/// Those of the drive.
pub fn run_steps(drive: &dyn DriveMut, steps: &[WriteStep]) -> Result<(), FaultKind> {
    for step in steps {
        match step {
            WriteStep::Write { offset, bytes } => write_full(drive, *offset, bytes)?,
            WriteStep::SetLen(length) => drive.set_len(*length).map_err(|e| FaultKind::io("set the length", &e))?,
            WriteStep::Sync => drive.sync().map_err(|e| FaultKind::io("sync", &e))?,
        }
    }
    Ok(())
}

/// Records what the gate said, without rewriting blobs. Killed at any moment, the vault has the old or the new verdict.
///
/// # Errors
/// A file that is no whole vault, cannot be written, or is being updated by another process.
pub fn record_verdict(path: &Path, verdict: Value) -> Result<(), VaultError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|e| VaultError::io(path, "open for writing", &e))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(VaultError::refused(path, "another process is updating it"));
    }
    record_verdict_on(&file, verdict).map_err(|fault| fault.in_file(&path.display().to_string()))
}

/// [`record_verdict`] on any drive.
///
/// # Errors
/// As [`record_verdict`].
pub fn record_verdict_on(drive: &dyn DriveMut, verdict: Value) -> Result<(), Fault> {
    let index = read_index(drive)?;
    let table: Vec<u8> = index.experts.iter().flat_map(ExpertRecord::to_bytes).collect();
    let steps = steps_for_verdict(&index, &table, verdict)?;
    run_steps(drive, &steps).map_err(|kind| kind.at(Place::File))
}
