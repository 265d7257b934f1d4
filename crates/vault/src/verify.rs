//! [`verify`]: every byte of a vault.

use crate::drive::{Drive, read_full};
use crate::fault::{Fault, FaultKind, Place, VaultError};
use crate::file::{CHUNK_BYTES, check_blob, check_region, open_plain, read_index};
use crate::header::HEADER_BYTES;
use crate::reader::{Part, VaultIndex};
use std::path::Path;

/// Checks every byte of a vault and returns what is wrong; an empty list means a whole vault. `progress` gets the bytes
/// checked so far and the bytes of the file.
///
/// # Errors
/// Only a file that cannot be opened at all; a file that is no vault is a fault.
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Vec<Fault>, VaultError> {
    Ok(verify_drive(&open_plain(path)?, progress))
}

/// [`verify`] on any drive.
pub fn verify_drive(drive: &dyn Drive, progress: &mut dyn FnMut(u64, u64)) -> Vec<Fault> {
    let index = match read_index(drive) {
        Ok(index) => index,
        Err(fault) => return vec![fault],
    };
    let mut faults = Vec::new();
    let (mut done, total) = (HEADER_BYTES as u64, index.header.file_length);
    let mut end = HEADER_BYTES as u64;
    let mut advance = |bytes: u64| {
        done += bytes;
        progress(done, total);
    };
    for (part, region, _) in index.parts() {
        if let Err(kind) = check_zeros(drive, end, region.offset) {
            faults.push(kind.at(Place::PaddingBefore(Box::new(index.place(part)))));
        }
        advance(region.offset - end);
        let checked = match part {
            Part::Expert(i) => check_expert(drive, &index, i, &mut advance),
            _ => check_region(drive, region, &mut advance),
        };
        faults.extend(checked.err().map(|kind| kind.at(index.place(part))));
        end = region.offset + region.length;
    }
    faults.extend(check_tail(drive, &index));
    faults
}

/// Checks the padding between all parts, the sections, and the trunk tensors that `trunk_unread` names by index.
pub(crate) fn check_unread(
    drive: &dyn Drive,
    index: &VaultIndex,
    trunk_unread: impl Fn(usize) -> bool,
) -> Result<(), Fault> {
    let mut end = HEADER_BYTES as u64;
    for (part, region, _) in index.parts() {
        check_zeros(drive, end, region.offset)
            .map_err(|kind| kind.at(Place::PaddingBefore(Box::new(index.place(part)))))?;
        let unread = match part {
            Part::Section(_) | Part::Retired(_) => true,
            Part::Trunk(i) => trunk_unread(i),
            Part::Table | Part::Expert(_) | Part::Manifest => false,
        };
        if unread {
            check_region(drive, region, &mut |_| ()).map_err(|kind| kind.at(index.place(part)))?;
        }
        end = region.offset + region.length;
    }
    Ok(())
}

fn check_expert(
    drive: &dyn Drive,
    index: &VaultIndex,
    expert: usize,
    advance: &mut dyn FnMut(u64),
) -> Result<(), FaultKind> {
    let record = &index.experts[expert];
    let length = usize::try_from(record.length).map_err(|_| FaultKind::refused("its blob exceeds memory"))?;
    let mut blob = vec![0; length];
    read_full(drive, record.offset, &mut blob)?;
    advance(record.length);
    check_blob(record, &blob)
}

fn check_zeros(drive: &dyn Drive, from: u64, to: u64) -> Result<(), FaultKind> {
    // Alignment keeps gaps below 16 KiB.
    let mut gap = [0; CHUNK_BYTES / 64];
    let gap = &mut gap[..usize::try_from(to - from).map_err(|_| FaultKind::refused("a hole"))?];
    read_full(drive, from, gap)?;
    match gap.iter().position(|&b| b != 0) {
        Some(at) => Err(FaultKind::NotZero { offset: from + at as u64 }),
        None => Ok(()),
    }
}

/// What an interrupted update left behind. Such a vault runs; recording the verdict again cleans it.
fn check_tail(drive: &dyn Drive, index: &VaultIndex) -> Option<Fault> {
    let end = index.header.file_length;
    if index.header.flags == 0 {
        return None;
    }
    let found = drive.len_bytes().unwrap_or(end);
    let text = format!(
        "an update was interrupted, {} B follow the end at {end}; record the verdict again",
        found.saturating_sub(end)
    );
    Some(FaultKind::refused(text).at(Place::Tail))
}
