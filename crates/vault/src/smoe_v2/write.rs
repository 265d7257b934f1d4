//! [`SmoeWriter`]: writes S-MoE version 2 files, byte for byte as the public script lays them out.

use super::header::{ARCH_BYTES, ArchBlock, HEADER_BYTES, Header};
use super::index::{ENTRY_BYTES, Index, Part, TENSOR_BYTES, Tensor};
use super::{BLOB_ALIGN, GROUP};
use crate::create::{Existing, Paths, check_target, open_partial};
use crate::drive::{DriveMut, write_full};
use crate::fault::{Fault, FaultKind, Place, VaultError};
use crate::space::sync_folder;
use std::fs::File;
use std::path::Path;

/// What must be known of an expert to give it a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertShape {
    /// Decoder layer.
    pub layer: u32,
    /// Expert within the layer.
    pub expert: u32,
    /// Rows of gate and up.
    pub width: u32,
}

/// The header of a new file: table behind the header, descriptors behind the table, the architecture block behind
/// them, blobs from the next 16 KiB on. `ffn_dim` is `width`.
///
/// # Errors
/// More experts than the 32-bit fields can place.
pub fn new_header(bits: u32, d_model: u32, vocab: u32, experts: &[ExpertShape]) -> Result<Header, Fault> {
    let too_many = || FaultKind::refused("it has too many experts for S-MoE version 2").at(Place::Header);
    let total = u32::try_from(experts.len()).map_err(|_| too_many())?;
    let tables = HEADER_BYTES as u64 + u64::from(total) * (ENTRY_BYTES + 3 * TENSOR_BYTES) as u64;
    let mut layers: Vec<u32> = experts.iter().map(|e| e.layer).collect();
    layers.dedup();
    Ok(Header {
        moe_layers: layers.len() as u32,
        max_experts: experts.iter().map(|e| e.expert).max().map_or(0, |most| most.saturating_add(1)),
        total_experts: total,
        table_offset: HEADER_BYTES as u64,
        data_offset: (tables + ARCH_BYTES as u64).next_multiple_of(BLOB_ALIGN),
        group_size: GROUP,
        bits,
        d_model,
        vocab,
        ffn_dim: experts.first().map_or(0, |e| e.width),
        arch_block_offset: u32::try_from(tables).map_err(|_| too_many())?,
    })
}

impl Index {
    /// Places the experts, which must be in order, as the public script does: parts without gaps within a blob, blobs
    /// one after another from the header's `data_offset` on, padded to 16 KiB. The header is kept as it is.
    ///
    /// # Errors
    /// A header that a reader would refuse with these experts.
    pub fn build(header: Header, arch: Option<ArchBlock>, experts: &[ExpertShape]) -> Result<Self, Fault> {
        if arch.is_some() != (header.arch_block_offset != 0) {
            let text = "the header and the architecture block disagree whether there is one";
            return Err(FaultKind::refused(text).at(Place::Header));
        }
        let mut parts = Vec::with_capacity(experts.len());
        let mut at = header.data_offset;
        for shape in experts {
            let place = Place::Expert { layer: shape.layer, expert: shape.expert };
            let part = place_expert(&header, shape, at);
            let part = part.ok_or_else(|| FaultKind::refused("its blob exceeds 64 bits").at(place))?;
            at = part.byte_offset + part.padded_size;
            parts.push(part);
        }
        let index = Self { header, arch, experts: parts, file_length: at };
        read_back(&index)?;
        Ok(index)
    }
}

/// The index that a writer makes of another's header and experts.
pub(super) fn rebuilt(index: &Index) -> Result<Index, Fault> {
    let shape = |part: &Part| ExpertShape { layer: part.layer, expert: part.expert, width: part.tensors[0].rows };
    Index::build(index.header, index.arch, &index.experts.iter().map(shape).collect::<Vec<_>>())
}

fn place_expert(header: &Header, shape: &ExpertShape, byte_offset: u64) -> Option<Part> {
    let (width, hidden) = (shape.width, header.d_model);
    let mut end = 0_u64;
    let mut tensor = |rows: u32, cols: u32| -> Option<Tensor> {
        let mut tensor = Tensor { rows, cols, packed_offset: end, packed_size: 0, scales_offset: 0, scales_size: 0 };
        (tensor.packed_size, tensor.scales_size) = tensor.sizes(header.bits)?;
        tensor.scales_offset = end.checked_add(tensor.packed_size)?;
        end = tensor.scales_offset.checked_add(tensor.scales_size)?;
        Some(tensor)
    };
    let tensors = [tensor(width, hidden)?, tensor(width, hidden)?, tensor(hidden, width)?];
    let padded_size = end.checked_next_multiple_of(BLOB_ALIGN)?;
    byte_offset.checked_add(padded_size)?;
    let num_groups = tensors.iter().map(Tensor::groups).sum();
    let (layer, expert) = (shape.layer, shape.expert);
    Some(Part { layer, expert, byte_offset, raw_size: end, padded_size, num_groups, tensors })
}

/// A writer must not make what a reader refuses.
fn read_back(index: &Index) -> Result<(), Fault> {
    let mut reader = super::IndexReader::new(index.file_length);
    for (_, bytes) in index.to_ranges() {
        reader.step()?;
        reader.supply(&bytes)?;
    }
    Ok(())
}

/// An S-MoE file that is being written under a temporary name. Dropped before [`SmoeWriter::finish`], it leaves
/// nothing.
pub struct SmoeWriter {
    file: File,
    paths: Paths,
    existing: Existing,
    index: Index,
    written: Vec<bool>,
    finished: bool,
}

impl SmoeWriter {
    /// Makes the temporary file.
    ///
    /// # Errors
    /// The name is taken, or the drive's.
    pub fn create(path: &Path, index: Index, existing: Existing) -> Result<Self, VaultError> {
        let paths = Paths::of(path)?;
        check_target(&paths, existing)?;
        let file = open_partial(&paths)?;
        let written = vec![false; index.experts.len()];
        let writer = Self { file, paths, existing, index, written, finished: false };
        let sized = writer.file.set_len(0).and_then(|()| crate::space::reserve(&writer.file, writer.index.file_length));
        sized.map_err(|e| VaultError::io(path, "reserve room", &e))?;
        for (offset, bytes) in writer.index.to_ranges() {
            writer.put(Place::Header, offset, &bytes)?;
        }
        Ok(writer)
    }

    fn error(&self, place: Place, kind: FaultKind) -> VaultError {
        kind.at(place).in_file(&self.paths.target.display().to_string())
    }

    fn put(&self, place: Place, offset: u64, bytes: &[u8]) -> Result<(), VaultError> {
        let drive: &dyn DriveMut = &self.file;
        write_full(drive, offset, bytes).map_err(|kind| self.error(place, kind))
    }

    /// Writes an expert's codes and scales: gate, up, down. `number` counts in the index's order.
    ///
    /// # Errors
    /// Lengths other than the index's, or the drive's.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn write_expert(&mut self, number: usize, parts: [(&[u8], &[u8]); 3]) -> Result<(), VaultError> {
        let part = self.index.experts[number];
        for (tensor, (codes, scales)) in part.tensors.iter().zip(parts) {
            if (codes.len() as u64, scales.len() as u64) != (tensor.packed_size, tensor.scales_size) {
                let text = format!(
                    "{} B of codes and {} B of scales were to be written, expected {} B and {} B",
                    codes.len(),
                    scales.len(),
                    tensor.packed_size,
                    tensor.scales_size
                );
                return Err(self.error(part.place(), FaultKind::refused(text)));
            }
            self.put(part.place(), part.byte_offset + tensor.packed_offset, codes)?;
            self.put(part.place(), part.byte_offset + tensor.scales_offset, scales)?;
        }
        self.written[number] = true;
        Ok(())
    }

    /// Syncs and gives the file its name.
    ///
    /// # Errors
    /// An expert that was not written, or the drive's.
    pub fn finish(mut self) -> Result<(), VaultError> {
        if let Some(number) = self.written.iter().position(|w| !w) {
            return Err(self.error(self.index.experts[number].place(), FaultKind::refused("it was not written")));
        }
        let target = &self.paths.target;
        self.file.sync_all().map_err(|e| VaultError::io(target, "sync", &e))?;
        check_target(&self.paths, self.existing)?;
        let renamed = std::fs::rename(&self.paths.partial, target);
        renamed.map_err(|e| VaultError::io(target, "rename the partial file to it", &e))?;
        self.finished = true;
        sync_folder(&self.paths.folder).map_err(|e| VaultError::io(&self.paths.folder, "sync the folder", &e))
    }
}

impl Drop for SmoeWriter {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.paths.partial);
        }
    }
}
