//! The table, the tensor descriptors and the reader without I/O of an S-MoE version 2 file.

use super::header::{ARCH_BYTES, ArchBlock, HEADER_BYTES, Header};
use super::{BLOB_ALIGN, GROUP};
use crate::fault::{Fault, FaultKind, Place};
use crate::header::{u32_at, u64_at};
use crate::reader::Need;
use std::ops::Range;

/// Length of a table entry.
pub const ENTRY_BYTES: usize = 48;
/// Length of a tensor descriptor.
pub const TENSOR_BYTES: usize = 44;

const _: () = assert!(2 * 4 + 3 * 8 + 4 + 8 + 4 == ENTRY_BYTES);
const _: () = assert!(4 + 2 * 4 + 4 * 8 == TENSOR_BYTES);

/// Bytes of the tables for one expert.
const PER_EXPERT: u64 = (ENTRY_BYTES + 3 * TENSOR_BYTES) as u64;

/// One of an expert's three tensors: gate, up or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    /// Output channels.
    pub rows: u32,
    /// Input channels.
    pub cols: u32,
    /// Start of the codes within the blob.
    pub packed_offset: u64,
    /// Bytes of the codes.
    pub packed_size: u64,
    /// Start of the f16 scales within the blob.
    pub scales_offset: u64,
    /// Bytes of the scales.
    pub scales_size: u64,
}

impl Tensor {
    /// Groups of the flattened tensor.
    #[must_use]
    pub fn groups(&self) -> u64 {
        (u64::from(self.rows) * u64::from(self.cols)).div_ceil(u64::from(GROUP))
    }

    /// Bytes of the codes and of the scales.
    pub(crate) fn sizes(&self, bits: u32) -> Option<(u64, u64)> {
        let bits = (u64::from(self.rows) * u64::from(self.cols)).checked_mul(u64::from(bits))?;
        Some((bits.div_ceil(8), self.groups() * 2))
    }

    fn to_bytes(self, kind: u8) -> [u8; TENSOR_BYTES] {
        let mut out = [0; TENSOR_BYTES];
        (out[0], out[1]) = (kind, 2);
        out[4..8].copy_from_slice(&self.rows.to_le_bytes());
        out[8..12].copy_from_slice(&self.cols.to_le_bytes());
        let places = [self.packed_offset, self.packed_size, self.scales_offset, self.scales_size];
        for (to, value) in out[12..].chunks_exact_mut(8).zip(places) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        out
    }
}

/// An expert: its table entry and its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Decoder layer.
    pub layer: u32,
    /// Expert within the layer.
    pub expert: u32,
    /// Start of the blob.
    pub byte_offset: u64,
    /// Bytes in use.
    pub raw_size: u64,
    /// Bytes with padding.
    pub padded_size: u64,
    /// Groups of the three tensors together.
    pub num_groups: u64,
    /// Gate, up, down.
    pub tensors: [Tensor; 3],
}

impl Part {
    /// The expert's name in messages.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Expert { layer: self.layer, expert: self.expert }
    }

    fn entry(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[0..4].copy_from_slice(&self.layer.to_le_bytes());
        out[4..8].copy_from_slice(&self.expert.to_le_bytes());
        for (to, value) in out[8..32].chunks_exact_mut(8).zip([self.byte_offset, self.raw_size, self.padded_size]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        out[32..36].copy_from_slice(&GROUP.to_le_bytes());
        out[36..44].copy_from_slice(&self.num_groups.to_le_bytes());
        out
    }
}

/// Everything but the blobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Index {
    /// The header.
    pub header: Header,
    /// The architecture block.
    pub arch: Option<ArchBlock>,
    /// The experts in file order, which is by layer and expert.
    pub experts: Vec<Part>,
    /// Length of the file.
    pub file_length: u64,
}

impl Index {
    /// Whether no group crosses a row, so that codes and scales mean the same in a vault.
    #[must_use]
    pub fn rows_are_whole_groups(&self) -> bool {
        self.experts.iter().flat_map(|e| &e.tensors).all(|t| t.cols.is_multiple_of(GROUP))
    }

    /// The bytes of header, table, descriptors and architecture block, each with its offset.
    #[must_use]
    pub fn to_ranges(&self) -> Vec<(u64, Vec<u8>)> {
        let entries = self.experts.iter().flat_map(Part::entry);
        let tensors = self.experts.iter().flat_map(|e| (0..3).flat_map(|t| e.tensors[t].to_bytes(t as u8)));
        let mut ranges =
            vec![(0, self.header.to_bytes().to_vec()), (self.header.table_offset, entries.chain(tensors).collect())];
        ranges.extend(self.arch.map(|arch| (u64::from(self.header.arch_block_offset), arch.to_bytes().to_vec())));
        ranges
    }

    /// The stretches between header, tables, blobs' used bytes and the end: a writer leaves zeros there.
    pub(crate) fn gaps(&self) -> Vec<Range<u64>> {
        let small = self.to_ranges().into_iter().map(|(offset, bytes)| offset..offset + bytes.len() as u64);
        let parts = self.experts.iter().flat_map(|e| {
            let at = |offset: u64, size: u64| e.byte_offset + offset..e.byte_offset + offset + size;
            e.tensors.iter().flat_map(move |t| [at(t.packed_offset, t.packed_size), at(t.scales_offset, t.scales_size)])
        });
        let mut used: Vec<_> = small.chain(parts).collect();
        used.sort_by_key(|range| range.start);
        let mut end = 0;
        let mut gaps = Vec::new();
        for range in used.into_iter().chain(std::iter::once(self.file_length..self.file_length)) {
            if range.start > end {
                gaps.push(end..range.start);
            }
            end = end.max(range.end);
        }
        gaps
    }
}

/// What the reader wants.
#[derive(Debug)]
pub enum Step {
    /// Call [`IndexReader::supply`] with this range.
    Need(Need),
    /// All is known and consistent.
    Done(Box<Index>),
}

#[derive(Debug)]
enum State {
    Header,
    Table(Header),
    Arch(Box<Index>),
    Done(Box<Index>),
    Failed,
}

/// Reads the index of an S-MoE file: ask [`IndexReader::step`], read, [`IndexReader::supply`], again.
#[derive(Debug)]
pub struct IndexReader {
    file_length: u64,
    state: State,
}

impl IndexReader {
    /// For a file of this length.
    #[must_use]
    pub fn new(file_length: u64) -> Self {
        Self { file_length, state: State::Header }
    }

    /// What is needed next, or the result.
    ///
    /// # Errors
    /// A file that is too short for what it must hold.
    ///
    /// # Panics
    /// If called again after an error or after the result.
    pub fn step(&mut self) -> Result<Step, Fault> {
        let (place, offset, length) = match &self.state {
            State::Header => (Place::Header, 0, HEADER_BYTES as u64),
            State::Table(header) => {
                (Place::ExpertTable, header.table_offset, u64::from(header.total_experts) * PER_EXPERT)
            }
            State::Arch(index) => (arch_place(), u64::from(index.header.arch_block_offset), ARCH_BYTES as u64),
            State::Done(_) => match std::mem::replace(&mut self.state, State::Failed) {
                State::Done(index) => return Ok(Step::Done(index)),
                _ => unreachable!("matched just now"),
            },
            State::Failed => panic!("the reader has ended"),
        };
        let end = offset.saturating_add(length);
        if end > self.file_length {
            self.state = State::Failed;
            return Err(FaultKind::Truncated { expected: end, found: self.file_length }.at(place));
        }
        let len = usize::try_from(length).map_err(|_| FaultKind::refused("it exceeds memory").at(place))?;
        Ok(Step::Need(Need { offset, len }))
    }

    /// Takes the range that [`IndexReader::step`] asked for.
    ///
    /// # Errors
    /// What is wrong with it.
    ///
    /// # Panics
    /// If `bytes` is not as long as was asked for.
    pub fn supply(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Header => {
                let raw = bytes.try_into().expect("the header's range was asked for");
                let header = Header::parse(raw).map_err(|kind| kind.at(Place::Header))?;
                check_header(&header, self.file_length).map_err(|kind| kind.at(Place::Header))?;
                State::Table(header)
            }
            State::Table(header) => {
                let experts = read_table(&header, bytes, self.file_length)?;
                let index = Box::new(Index { header, arch: None, experts, file_length: self.file_length });
                if header.arch_block_offset == 0 { State::Done(index) } else { State::Arch(index) }
            }
            State::Arch(mut index) => {
                let raw = bytes.try_into().expect("the block's range was asked for");
                index.arch = Some(ArchBlock::parse(raw).map_err(|kind| kind.at(arch_place()))?);
                State::Done(index)
            }
            State::Done(_) | State::Failed => panic!("nothing was asked for"),
        };
        Ok(())
    }
}

fn arch_place() -> Place {
    Place::Section("arch block".into())
}

fn check_header(header: &Header, file_length: u64) -> Result<(), FaultKind> {
    let experts = u64::from(header.total_experts);
    // Each blob starts on 16 KiB of its own, which bounds the tables' memory by the file's length.
    let least = experts * PER_EXPERT + experts.saturating_sub(1) * BLOB_ALIGN;
    if experts == 0 || least > file_length {
        return Err(FaultKind::refused(format!("{experts} experts do not fit into a file of {file_length} B")));
    }
    let table_end = header.table_offset.saturating_add(experts * PER_EXPERT);
    let arch = u64::from(header.arch_block_offset);
    let arch_end = if arch == 0 { table_end } else { arch + ARCH_BYTES as u64 };
    let ordered = header.table_offset >= HEADER_BYTES as u64
        && (arch == 0 || arch >= table_end)
        && header.data_offset >= arch_end.max(table_end);
    if !ordered || !header.data_offset.is_multiple_of(BLOB_ALIGN) {
        return Err(FaultKind::refused(format!(
            "table at {}, architecture block at {arch} and blobs at {} overlap or are not in order",
            header.table_offset, header.data_offset
        )));
    }
    Ok(())
}

fn read_table(header: &Header, bytes: &[u8], file_length: u64) -> Result<Vec<Part>, Fault> {
    let count = bytes.len() / PER_EXPERT as usize;
    let (entries, tensors) = bytes.split_at(count * ENTRY_BYTES);
    let raw = entries.chunks_exact(ENTRY_BYTES).zip(tensors.chunks_exact(3 * TENSOR_BYTES));
    let mut experts: Vec<Part> = Vec::with_capacity(count);
    let mut end = header.data_offset;
    for (entry, tensors) in raw {
        let place = Place::Expert { layer: u32_at(entry, 0), expert: u32_at(entry, 4) };
        let part = read_expert(header, entry, tensors).map_err(|kind| kind.at(place.clone()))?;
        if experts.last().is_some_and(|last| (last.layer, last.expert) >= (part.layer, part.expert)) {
            return Err(FaultKind::refused("it is out of order or occurs twice").at(place));
        }
        if part.byte_offset < end || !part.byte_offset.is_multiple_of(BLOB_ALIGN) {
            let text = format!("its blob at {} overlaps another or is not on 16 KiB", part.byte_offset);
            return Err(FaultKind::refused(text).at(place));
        }
        end = part.byte_offset.saturating_add(part.padded_size);
        if end > file_length {
            return Err(FaultKind::Truncated { expected: end, found: file_length }.at(place));
        }
        experts.push(part);
    }
    Ok(experts)
}

fn read_expert(header: &Header, entry: &[u8], tensors: &[u8]) -> Result<Part, FaultKind> {
    let [mut gate, mut up, mut down] = [None; 3];
    for (kind, (to, raw)) in
        [&mut gate, &mut up, &mut down].into_iter().zip(tensors.chunks_exact(TENSOR_BYTES)).enumerate()
    {
        *to = Some(read_tensor(header, raw, kind as u8)?);
    }
    let (Some(gate), Some(up), Some(down)) = (gate, up, down) else {
        return Err(FaultKind::refused("it has fewer than three tensors"));
    };
    let part = Part {
        layer: u32_at(entry, 0),
        expert: u32_at(entry, 4),
        byte_offset: u64_at(entry, 8),
        raw_size: u64_at(entry, 16),
        padded_size: u64_at(entry, 24),
        num_groups: u64_at(entry, 36),
        tensors: [gate, up, down],
    };
    let groups: u64 = part.tensors.iter().map(Tensor::groups).sum();
    if u32_at(entry, 32) != GROUP || part.num_groups != groups || entry[44..48] != [0; 4] {
        return Err(FaultKind::refused(format!(
            "its entry has {} groups of {}, expected {groups} of {GROUP}",
            part.num_groups,
            u32_at(entry, 32)
        )));
    }
    let (width, hidden) = (gate.rows, header.d_model);
    let shapes = part.tensors.map(|t| (t.rows, t.cols));
    if shapes != [(width, hidden), (width, hidden), (hidden, width)] || part.expert >= header.max_experts {
        return Err(FaultKind::refused(format!("its tensors {shapes:?} or its number contradict the header")));
    }
    // Parts in order, none over another, all within the blob.
    let mut end = 0;
    for (offset, size) in
        part.tensors.iter().flat_map(|t| [(t.packed_offset, t.packed_size), (t.scales_offset, t.scales_size)])
    {
        end = Some(offset).filter(|&o| o >= end).and_then(|o| o.checked_add(size)).unwrap_or(u64::MAX);
    }
    if end > part.raw_size || part.raw_size > part.padded_size {
        return Err(FaultKind::refused(format!("its parts overlap or exceed its {} B", part.raw_size)));
    }
    Ok(part)
}

fn read_tensor(header: &Header, raw: &[u8], kind: u8) -> Result<Tensor, FaultKind> {
    let name = ["gate", "up", "down"][usize::from(kind)];
    if raw[0] != kind || raw[1] != 2 || raw[2..4] != [0; 2] {
        return Err(FaultKind::refused(format!("its {name} descriptor is not of kind {kind} with two axes")));
    }
    let tensor = Tensor {
        rows: u32_at(raw, 4),
        cols: u32_at(raw, 8),
        packed_offset: u64_at(raw, 12),
        packed_size: u64_at(raw, 20),
        scales_offset: u64_at(raw, 28),
        scales_size: u64_at(raw, 36),
    };
    let expected = tensor.sizes(header.bits);
    if tensor.rows == 0 || tensor.cols == 0 || expected != Some((tensor.packed_size, tensor.scales_size)) {
        return Err(FaultKind::refused(format!(
            "its {name} of {} x {} has {} B of codes and {} B of scales",
            tensor.rows, tensor.cols, tensor.packed_size, tensor.scales_size
        )));
    }
    Ok(tensor)
}
