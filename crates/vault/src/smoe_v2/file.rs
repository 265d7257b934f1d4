//! [`SmoeFile`]: an S-MoE version 2 file on a drive.

use super::index::{Index, IndexReader, Part, Step};
use super::write::rebuilt;
use crate::drive::{Drive, read_full};
use crate::fault::{Fault, FaultKind, Place, VaultError};
use crate::file::{CHUNK_BYTES, open_plain};
use std::path::Path;

/// An open S-MoE file.
pub struct SmoeFile {
    drive: Box<dyn Drive>,
    name: String,
    index: Index,
}

/// One expert's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expert {
    blob: Vec<u8>,
    part: Part,
}

impl Expert {
    /// Entry and descriptors.
    #[must_use]
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Codes of a projection (0 gate, 1 up, 2 down), flattened.
    ///
    /// # Panics
    /// If `proj > 2`.
    #[must_use]
    pub fn codes(&self, proj: usize) -> &[u8] {
        let tensor = &self.part.tensors[proj];
        self.slice(tensor.packed_offset, tensor.packed_size)
    }

    /// f16 scales of a projection, one for each 64 weights of the flattened tensor.
    ///
    /// # Panics
    /// If `proj > 2`.
    #[must_use]
    pub fn scales(&self, proj: usize) -> &[u8] {
        let tensor = &self.part.tensors[proj];
        self.slice(tensor.scales_offset, tensor.scales_size)
    }

    fn slice(&self, offset: u64, size: u64) -> &[u8] {
        // The index was accepted, so each part lies within the blob, whose length fits memory.
        &self.blob[offset as usize..(offset + size) as usize]
    }
}

impl SmoeFile {
    /// Opens a file and checks everything but the blobs.
    ///
    /// # Errors
    /// A file that cannot be read or is no S-MoE version 2 file.
    pub fn open(path: &Path) -> Result<Self, VaultError> {
        Self::from_drive(Box::new(open_plain(path)?), &path.display().to_string())
    }

    /// Opens a file on any drive; `name` is for messages.
    ///
    /// # Errors
    /// As [`SmoeFile::open`].
    pub fn from_drive(drive: Box<dyn Drive>, name: &str) -> Result<Self, VaultError> {
        let index = read_index(&*drive).map_err(|fault| fault.in_file(name))?;
        Ok(Self { drive, name: name.to_string(), index })
    }

    /// Header, architecture block and tables.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Reads an expert; `number` counts in file order.
    ///
    /// # Errors
    /// A blob that cannot be read, or a scale that is negative or not finite.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn read_expert(&self, number: usize) -> Result<Expert, VaultError> {
        let part = self.index.experts[number];
        let fail = |kind: FaultKind| kind.at(part.place()).in_file(&self.name);
        let length = usize::try_from(part.raw_size).map_err(|_| fail(FaultKind::refused("it exceeds memory")))?;
        let mut expert = Expert { blob: vec![0; length], part };
        read_full(&*self.drive, part.byte_offset, &mut expert.blob).map_err(fail)?;
        for (proj, name) in ["gate", "up", "down"].into_iter().enumerate() {
            if let Some(at) = smoe_codec::bad_scale(expert.scales(proj)) {
                return Err(fail(FaultKind::refused(format!("{name} scale {at} is negative or not finite"))));
            }
        }
        Ok(expert)
    }

    /// Checks that the file is what [`super::SmoeWriter`] makes of its header, architecture block and experts: tables
    /// and padding as expected. Only then is an export byte-identical.
    ///
    /// # Errors
    /// Where it differs, or the drive's.
    pub fn check_reproducible(&self) -> Result<(), VaultError> {
        let check = || -> Result<(), Fault> {
            let again = rebuilt(&self.index)?;
            if again != self.index {
                return Err(FaultKind::refused("its blobs are placed otherwise than a writer does").at(Place::File));
            }
            let mut buffer = vec![0; CHUNK_BYTES];
            for gap in self.index.gaps() {
                let mut at = gap.start;
                while at < gap.end {
                    let take = usize::try_from(gap.end - at).unwrap_or(usize::MAX).min(buffer.len());
                    read_full(&*self.drive, at, &mut buffer[..take]).map_err(|kind| kind.at(Place::File))?;
                    if let Some(found) = buffer[..take].iter().position(|&b| b != 0) {
                        return Err(FaultKind::NotZero { offset: at + found as u64 }.at(Place::File));
                    }
                    at += take as u64;
                }
            }
            Ok(())
        };
        check().map_err(|fault| fault.in_file(&self.name))
    }
}

fn read_index(drive: &dyn Drive) -> Result<Index, Fault> {
    let length = drive.len_bytes().map_err(|e| FaultKind::io("read the length", &e).at(Place::File))?;
    let mut reader = IndexReader::new(length);
    loop {
        match reader.step()? {
            Step::Done(index) => return Ok(*index),
            Step::Need(need) => {
                let mut bytes = vec![0; need.len];
                read_full(drive, need.offset, &mut bytes).map_err(|kind| kind.at(Place::File))?;
                reader.supply(&bytes)?;
            }
        }
    }
}
