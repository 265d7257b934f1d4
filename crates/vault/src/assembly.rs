//! [`Assembly`]: the writer without I/O. It knows which parts are written and what must follow, in which order.

use crate::fault::{Fault, FaultKind, Place};
use crate::header::{FLAG_UPDATING, HEADER_BYTES, Header};
use crate::layout::{Layout, place};
use crate::manifest::{Manifest, Region};
use crate::reader::{IndexReader, Step, VaultIndex};
use crate::record::ExpertRecord;
use crate::{PART_ALIGN, checksum};
use serde_json::Value;

/// A part that the caller fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Index into [`Layout::sections`].
    Section(usize),
    /// Index into [`Layout::trunk`].
    Trunk(usize),
    /// Index into [`Layout::experts`].
    Expert(usize),
}

/// One thing to do to the file, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStep {
    /// Write these bytes there.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Cut or extend the file with zeros.
    SetLen(u64),
    /// Everything before must be on the medium before anything after is written.
    Sync,
}

/// What the manifest says beside places and checksums.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Contents {
    /// The resolved model.
    pub spec: Value,
    /// Which stored tensor plays which role.
    pub bindings: Value,
    /// How the vault was made.
    pub provenance: Value,
    /// What the gate said, if it was asked.
    pub verdict: Option<Value>,
}

/// A vault that is being written.
#[derive(Debug, Clone)]
pub struct Assembly {
    layout: Layout,
    written: [Vec<bool>; 3],
}

impl Assembly {
    /// Nothing is written yet.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        let none = |n| vec![false; n];
        let written = [none(layout.sections.len()), none(layout.trunk.len()), none(layout.records.len())];
        Self { layout, written }
    }

    /// The layout, with the checksums known so far.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where a part belongs; its checksum once it is written.
    ///
    /// # Panics
    /// If the unit is not of this layout, as in the other functions.
    #[must_use]
    pub fn region(&self, unit: Unit) -> Region {
        match unit {
            Unit::Section(i) => self.layout.sections[i].region(),
            Unit::Trunk(i) => self.layout.trunk[i].region(),
            Unit::Expert(i) => self.layout.records[i].region(),
        }
    }

    /// A part's name in messages.
    #[must_use]
    pub fn place(&self, unit: Unit) -> Place {
        match unit {
            Unit::Section(i) => Place::Section(self.layout.sections[i].name.clone()),
            Unit::Trunk(i) => Place::Trunk(self.layout.trunk[i].name.clone()),
            Unit::Expert(i) => self.layout.records[i].place(),
        }
    }

    /// Whether the layout has this unit (a journal may name any).
    #[must_use]
    pub fn has(&self, unit: Unit) -> bool {
        let (kind, i) = slot(unit);
        i < self.written[kind].len()
    }

    /// Whether a part is written.
    #[must_use]
    pub fn is_written(&self, unit: Unit) -> bool {
        let (kind, i) = slot(unit);
        self.written[kind][i]
    }

    /// Notes that a part is written, with the checksum of its region.
    pub fn accept(&mut self, unit: Unit, checksum: u64) {
        match unit {
            Unit::Section(i) => self.layout.sections[i].checksum = checksum,
            Unit::Trunk(i) => self.layout.trunk[i].checksum = checksum,
            Unit::Expert(i) => self.layout.records[i].checksum = checksum,
        }
        let (kind, i) = slot(unit);
        self.written[kind][i] = true;
    }

    /// The first part that is not written yet.
    #[must_use]
    pub fn missing(&self) -> Option<Unit> {
        let first = |kind: usize| self.written[kind].iter().position(|&w| !w);
        let small = first(0).map(Unit::Section).or_else(|| first(1).map(Unit::Trunk));
        small.or_else(|| first(2).map(Unit::Expert))
    }

    /// Table, manifest and, once those and all data are on the medium, the header: only it makes the file a vault.
    ///
    /// # Errors
    /// A part that was not written, or a manifest that a reader would refuse.
    pub fn close(&self, contents: Contents) -> Result<Vec<WriteStep>, Fault> {
        if let Some(unit) = self.missing() {
            return Err(FaultKind::refused("it was not written").at(self.place(unit)));
        }
        let layout = &self.layout;
        let table: Vec<u8> = layout.records.iter().flat_map(ExpertRecord::to_bytes).collect();
        let manifest = Manifest {
            spec: contents.spec,
            bindings: contents.bindings,
            codecs: layout.codecs(),
            experts: Region { checksum: checksum(&table), ..layout.table },
            sections: layout.sections.clone(),
            trunk: layout.trunk.clone(),
            provenance: contents.provenance,
            verdict: contents.verdict,
            retired: Vec::new(),
        };
        let bytes = manifest.to_bytes();
        let header = header_for(layout.data_end, &bytes)?;
        read_back(&header, &bytes, &table)?;
        Ok(vec![
            WriteStep::Write { offset: layout.table.offset, bytes: table },
            WriteStep::Write { offset: header.manifest_offset, bytes },
            WriteStep::SetLen(header.file_length),
            WriteStep::Sync,
            WriteStep::Write { offset: 0, bytes: header.to_bytes().to_vec() },
            WriteStep::Sync,
        ])
    }
}

fn slot(unit: Unit) -> (usize, usize) {
    match unit {
        Unit::Section(i) => (0, i),
        Unit::Trunk(i) => (1, i),
        Unit::Expert(i) => (2, i),
    }
}

/// The header of a vault whose parts end at `end` and whose manifest is `bytes`.
fn header_for(end: u64, bytes: &[u8]) -> Result<Header, Fault> {
    let mut file_length = end;
    let region = place(&mut file_length, PART_ALIGN, Some(bytes.len() as u64)).map_err(|k| k.at(Place::Manifest))?;
    Ok(Header {
        flags: 0,
        manifest_offset: region.offset,
        manifest_length: region.length,
        file_length,
        manifest_checksum: checksum(bytes),
    })
}

/// A writer must not make what a reader refuses: reads the index back before it is written.
fn read_back(header: &Header, manifest: &[u8], table: &[u8]) -> Result<(), Fault> {
    let mut reader = IndexReader::new(header.file_length);
    for bytes in [&header.to_bytes()[..], manifest, table] {
        reader.step()?;
        reader.supply(bytes)?;
    }
    reader.step().map(|step| debug_assert!(matches!(step, Step::Done(_))))
}

/// Steps that put `verdict` into a whole vault. Killed at any moment, the vault is whole with the old or the new
/// verdict: the flag allows a tail before there is one, the new manifest goes behind the old, which is kept as
/// *retired* with its checksum, and the 64 bytes of the header, within one sector, switch over.
///
/// # Errors
/// A manifest that a reader would refuse.
pub(crate) fn steps_for_verdict(index: &VaultIndex, table: &[u8], verdict: Value) -> Result<Vec<WriteStep>, Fault> {
    let old = index.header;
    let mut manifest = index.manifest.clone();
    manifest.verdict = Some(verdict);
    manifest.retired.push(Region {
        offset: old.manifest_offset,
        length: old.manifest_length,
        checksum: old.manifest_checksum,
    });
    let bytes = manifest.to_bytes();
    let header = header_for(old.file_length, &bytes)?;
    read_back(&header, &bytes, table)?;
    let updating = Header { flags: old.flags | FLAG_UPDATING, ..old };
    let write_header = |header: Header| WriteStep::Write { offset: 0, bytes: header.to_bytes().to_vec() };
    Ok(vec![
        write_header(updating),
        WriteStep::Sync,
        // What an earlier, interrupted update left.
        WriteStep::SetLen(old.file_length),
        WriteStep::Write { offset: header.manifest_offset, bytes },
        WriteStep::Sync,
        write_header(header),
        WriteStep::Sync,
    ])
}

const _: () = assert!(HEADER_BYTES <= 512, "the header must lie within one sector");
