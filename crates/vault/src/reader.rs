//! [`IndexReader`]: from the file's length and three ranges of it to a checked [`VaultIndex`]. No I/O.

use crate::blob::{BLOB_ALIGN, BLOB_PAD, PART_ALIGN};
use crate::checksum;
use crate::fault::{Fault, FaultKind, Place};
use crate::header::{FLAG_UPDATING, HEADER_BYTES, Header};
use crate::layout::{Names, tensor_bytes};
use crate::manifest::{CodecEntry, Manifest, Region};
use crate::record::{ExpertRecord, RECORD_BYTES};
use smoe_codec::Codec;

/// A range of the file that the reader must see next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// First byte.
    pub offset: u64,
    /// Bytes; never more than the file has.
    pub len: usize,
}

/// What the reader wants.
#[derive(Debug)]
pub enum Step {
    /// Call [`IndexReader::supply`] with this range.
    Need(Need),
    /// All is known and consistent.
    Done(Box<VaultIndex>),
}

/// Everything of a vault but sections, trunk and blobs; consistent with itself and with the file's length.
#[derive(Debug, Clone, PartialEq)]
pub struct VaultIndex {
    /// The header.
    pub header: Header,
    /// The manifest.
    pub manifest: Manifest,
    /// The expert table, by layer and expert.
    pub experts: Vec<ExpertRecord>,
}

#[derive(Debug)]
enum State {
    Header,
    Manifest(Header),
    Table(Header, Box<Manifest>),
    Done(Box<VaultIndex>),
    Failed,
}

/// Reads the index of a vault: ask [`IndexReader::step`], read, [`IndexReader::supply`], again.
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
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Done(index) => Ok(Step::Done(index)),
            State::Failed => panic!("the reader has ended"),
            state => {
                let (place, offset, length) = match &state {
                    State::Manifest(header) => (Place::Manifest, header.manifest_offset, header.manifest_length),
                    State::Table(_, manifest) => (Place::ExpertTable, manifest.experts.offset, manifest.experts.length),
                    _ => (Place::Header, 0, HEADER_BYTES as u64),
                };
                let end = offset.saturating_add(length);
                if end > self.file_length {
                    return Err(FaultKind::Truncated { expected: end, found: self.file_length }.at(place));
                }
                let len = usize::try_from(length)
                    .map_err(|_| FaultKind::refused(format!("{length} B exceed the address space")).at(place))?;
                self.state = state;
                Ok(Step::Need(Need { offset, len }))
            }
        }
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
                check_lengths(&header, self.file_length)?;
                State::Manifest(header)
            }
            State::Manifest(header) => {
                let manifest = read_manifest(&header, bytes)?;
                State::Table(header, Box::new(manifest))
            }
            State::Table(header, manifest) => {
                let index = VaultIndex { header, experts: read_table(&manifest, bytes)?, manifest: *manifest };
                index.check_places()?;
                State::Done(Box::new(index))
            }
            State::Done(_) | State::Failed => panic!("nothing was asked for"),
        };
        Ok(())
    }
}

/// Compares the header's lengths with each other and with the file.
fn check_lengths(header: &Header, file_length: u64) -> Result<(), Fault> {
    let Header { manifest_offset, manifest_length, file_length: expected, .. } = *header;
    if file_length < expected {
        return Err(FaultKind::Truncated { expected, found: file_length }.at(Place::File));
    }
    if manifest_offset.checked_add(manifest_length) != Some(expected) {
        let text = format!("the manifest's {manifest_length} B at {manifest_offset} do not end at {expected}");
        return Err(FaultKind::refused(text).at(Place::Header));
    }
    if file_length > expected && header.flags & FLAG_UPDATING == 0 {
        let text = format!("{} B follow the end at {expected}; copy the file again", file_length - expected);
        return Err(FaultKind::refused(text).at(Place::Tail));
    }
    Ok(())
}

fn read_manifest(header: &Header, bytes: &[u8]) -> Result<Manifest, Fault> {
    let at = |kind: FaultKind| kind.at(Place::Manifest);
    let (expected, found) = (header.manifest_checksum, checksum(bytes));
    if expected != found {
        return Err(at(FaultKind::Damaged { expected, found }));
    }
    let manifest = Manifest::parse(bytes, header.file_length).map_err(at)?;
    for entry in &manifest.codecs {
        let known = Codec::from_id(entry.id).map(CodecEntry::of);
        if known.as_ref() != Some(entry) {
            let text = format!("codec {} `{}` is unknown; a newer program wrote this vault", entry.id, entry.name);
            return Err(at(FaultKind::refused(text)));
        }
    }
    // Every expert has a record and at least one block of its own, so a table's memory is bounded by the file's length.
    let table = manifest.experts;
    let records = table.length / RECORD_BYTES as u64;
    let least = records.saturating_mul(BLOB_PAD + RECORD_BYTES as u64);
    if !table.length.is_multiple_of(RECORD_BYTES as u64) || least > header.file_length {
        let text = format!("{} B are no whole number of records that the file has room for", table.length);
        return Err(FaultKind::refused(text).at(Place::ExpertTable));
    }
    Ok(manifest)
}

fn read_table(manifest: &Manifest, bytes: &[u8]) -> Result<Vec<ExpertRecord>, Fault> {
    let (expected, found) = (manifest.experts.checksum, checksum(bytes));
    if expected != found {
        return Err(FaultKind::Damaged { expected, found }.at(Place::ExpertTable));
    }
    let (raw_records, _) = bytes.as_chunks::<RECORD_BYTES>();
    let mut records: Vec<ExpertRecord> = Vec::with_capacity(raw_records.len());
    for raw in raw_records {
        let record = ExpertRecord::parse(raw)?;
        if records.last().is_some_and(|last| (last.layer, last.expert) >= (record.layer, record.expert)) {
            return Err(FaultKind::refused("its record is out of order or occurs twice").at(record.place()));
        }
        if let Some(codec) = record.codecs.iter().find(|c| !manifest.codecs.iter().any(|e| e.id == c.id())) {
            let text = format!("its codec {} is missing in the manifest's codecs", codec.name());
            return Err(FaultKind::refused(text).at(record.place()));
        }
        records.push(record);
    }
    Ok(records)
}

/// A stretch of the file that has a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Table,
    Section(usize),
    Trunk(usize),
    Expert(usize),
    Retired(usize),
    Manifest,
}

impl VaultIndex {
    /// Every part in file order: what it is, where it lies, what its start is a multiple of.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Part, Region, u64)> + '_ {
        let Manifest { experts, sections, trunk, retired, .. } = &self.manifest;
        let manifest = Region {
            offset: self.header.manifest_offset,
            length: self.header.manifest_length,
            checksum: self.header.manifest_checksum,
        };
        let small = std::iter::once((Part::Table, *experts, PART_ALIGN));
        let sections = sections.iter().enumerate().map(|(i, s)| (Part::Section(i), s.region(), PART_ALIGN));
        let trunk = trunk.iter().enumerate().map(|(i, t)| (Part::Trunk(i), t.region(), PART_ALIGN));
        let blobs = self.experts.iter().enumerate().map(|(i, r)| (Part::Expert(i), r.region(), BLOB_ALIGN));
        let retired = retired.iter().enumerate().map(|(i, r)| (Part::Retired(i), *r, PART_ALIGN));
        let last = std::iter::once((Part::Manifest, manifest, PART_ALIGN));
        small.chain(sections).chain(trunk).chain(blobs).chain(retired).chain(last)
    }

    /// The name of a part in messages.
    pub(crate) fn place(&self, part: Part) -> Place {
        match part {
            Part::Table => Place::ExpertTable,
            Part::Section(i) => Place::Section(self.manifest.sections[i].name.clone()),
            Part::Trunk(i) => Place::Trunk(self.manifest.trunk[i].name.clone()),
            Part::Expert(i) => self.experts[i].place(),
            Part::Retired(i) => Place::RetiredManifest(i),
            Part::Manifest => Place::Manifest,
        }
    }

    /// An expert's record.
    #[must_use]
    pub fn expert(&self, layer: u32, expert: u32) -> Option<&ExpertRecord> {
        let found = self.experts.binary_search_by_key(&(layer, expert), |r| (r.layer, r.expert)).ok()?;
        self.experts.get(found)
    }

    /// Names and sizes, then that each part starts where the one before it ends, but for its alignment.
    fn check_places(&self) -> Result<(), Fault> {
        let mut names = Names::default();
        for section in &self.manifest.sections {
            names.add_section(&section.name).map_err(|kind| kind.at(Place::Section(section.name.clone())))?;
        }
        for tensor in &self.manifest.trunk {
            let at = |kind: FaultKind| kind.at(Place::Trunk(tensor.name.clone()));
            names.add_tensor(&tensor.name).map_err(at)?;
            let expected = tensor_bytes(tensor.dtype, &tensor.shape).map_err(at)?;
            if tensor.length != expected {
                let (dtype, shape) = (tensor.dtype.name(), &tensor.shape);
                let text = format!("it has {} B, expected {expected} B for {dtype} {shape:?}", tensor.length);
                return Err(at(FaultKind::refused(text)));
            }
        }
        let mut end = HEADER_BYTES as u64;
        for (part, region, align) in self.parts() {
            let expected = end.next_multiple_of(align);
            if region.offset != expected {
                let what = if region.offset < expected { "overlaps what lies before it" } else { "leaves a hole" };
                let text = format!("it {what}: expected at offset {expected}, found at {}", region.offset);
                return Err(FaultKind::refused(text).at(self.place(part)));
            }
            // `end` stays below the file's length, so the alignment above cannot overflow.
            end = match region.offset.checked_add(region.length) {
                Some(end) if end <= self.header.file_length => end,
                end => {
                    let (expected, found) = (end.unwrap_or(u64::MAX), self.header.file_length);
                    return Err(FaultKind::Truncated { expected, found }.at(self.place(part)));
                }
            };
        }
        Ok(())
    }
}
