//! [`Layout`]: every offset of a vault, fixed before any data is known (FORMAT.md, "Order").

use crate::blob::{BLOB_ALIGN, BlobLayout, PART_ALIGN};
use crate::fault::{Fault, FaultKind, Place};
use crate::header::HEADER_BYTES;
use crate::manifest::{CodecEntry, Dtype, MAX_AXES, MAX_NAME_BYTES, Region, Section, TrunkTensor};
use crate::record::{ExpertRecord, RECORD_BYTES, expert_codec};
use smoe_codec::Codec;
use std::collections::HashSet;

/// What must be known of an expert to give it a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertShape {
    /// Decoder layer.
    pub layer: u32,
    /// Expert within the layer.
    pub expert: u32,
    /// Codecs of gate, up and down.
    pub codecs: [Codec; 3],
    /// Columns of gate and up.
    pub hidden: u32,
    /// Rows of gate and up.
    pub width: u32,
    /// Whether the expert has f32 biases.
    pub biases: bool,
}

/// Places of everything but the manifest, which comes last so that its length may vary. Checksums are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub(crate) table: Region,
    pub(crate) sections: Vec<Section>,
    pub(crate) trunk: Vec<TrunkTensor>,
    pub(crate) records: Vec<ExpertRecord>,
    pub(crate) data_end: u64,
}

impl Layout {
    /// Starts a layout.
    #[must_use]
    pub fn builder() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// Sections in file order.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Trunk tensors in file order.
    #[must_use]
    pub fn trunk(&self) -> &[TrunkTensor] {
        &self.trunk
    }

    /// Experts in file order: by layer, then by expert.
    #[must_use]
    pub fn experts(&self) -> &[ExpertRecord] {
        &self.records
    }

    /// Where an expert's record is.
    #[must_use]
    pub fn expert_index(&self, layer: u32, expert: u32) -> Option<usize> {
        self.records.binary_search_by_key(&(layer, expert), |r| (r.layer, r.expert)).ok()
    }

    /// The end of the last blob: the manifest starts at the next multiple of 64.
    #[must_use]
    pub fn data_end(&self) -> u64 {
        self.data_end
    }

    /// The codecs in use, in the order of their ids.
    pub(crate) fn codecs(&self) -> Vec<CodecEntry> {
        let used = |codec: &Codec| self.records.iter().any(|r| r.codecs.contains(codec));
        Codec::ALL.into_iter().filter(used).map(CodecEntry::of).collect()
    }
}

/// Collects what a vault will hold. Sections and trunk tensors keep the order in which they are added; experts are
/// sorted.
#[derive(Debug, Default)]
pub struct LayoutBuilder {
    sections: Vec<(String, u64)>,
    trunk: Vec<(String, Dtype, Vec<u64>)>,
    experts: Vec<ExpertShape>,
}

impl LayoutBuilder {
    /// Adds a small file of a known length.
    pub fn section(&mut self, name: &str, length: u64) -> &mut Self {
        self.sections.push((name.to_string(), length));
        self
    }

    /// Adds a trunk tensor.
    pub fn trunk(&mut self, name: &str, dtype: Dtype, shape: &[u64]) -> &mut Self {
        self.trunk.push((name.to_string(), dtype, shape.to_vec()));
        self
    }

    /// Adds an expert.
    pub fn expert(&mut self, shape: ExpertShape) -> &mut Self {
        self.experts.push(shape);
        self
    }

    /// Places everything.
    ///
    /// # Errors
    /// A name twice, an expert twice, an empty tensor, a codec that is not for experts, or a size beyond 64 bits.
    pub fn build(&mut self) -> Result<Layout, Fault> {
        self.experts.sort_by_key(|e| (e.layer, e.expert));
        let mut end = HEADER_BYTES as u64;
        let table_bytes = (self.experts.len() as u64).checked_mul(RECORD_BYTES as u64);
        let table = place(&mut end, PART_ALIGN, table_bytes).map_err(|kind| kind.at(Place::ExpertTable))?;
        let mut names = Names::default();
        let mut sections = Vec::new();
        for (name, length) in &self.sections {
            let at = |kind: FaultKind| kind.at(Place::Section(name.clone()));
            names.add_section(name).map_err(at)?;
            let Region { offset, length, checksum } = place(&mut end, PART_ALIGN, Some(*length)).map_err(at)?;
            sections.push(Section { name: name.clone(), offset, length, checksum });
        }
        let mut trunk = Vec::new();
        for (name, dtype, shape) in &self.trunk {
            let at = |kind: FaultKind| kind.at(Place::Trunk(name.clone()));
            names.add_tensor(name).map_err(at)?;
            let bytes = tensor_bytes(*dtype, shape).map_err(at)?;
            let Region { offset, length, checksum } = place(&mut end, PART_ALIGN, Some(bytes)).map_err(at)?;
            trunk.push(TrunkTensor {
                name: name.clone(),
                dtype: *dtype,
                shape: shape.clone(),
                offset,
                length,
                checksum,
            });
        }
        let mut records: Vec<ExpertRecord> = Vec::with_capacity(self.experts.len());
        for shape in &self.experts {
            let at = |kind: FaultKind| kind.at(Place::Expert { layer: shape.layer, expert: shape.expert });
            if records.last().is_some_and(|last| (last.layer, last.expert) == (shape.layer, shape.expert)) {
                return Err(at(FaultKind::refused("it is added twice")));
            }
            records.push(place_expert(&mut end, shape).map_err(at)?);
        }
        Ok(Layout { table, sections, trunk, records, data_end: end })
    }
}

fn place_expert(end: &mut u64, shape: &ExpertShape) -> Result<ExpertRecord, FaultKind> {
    let ExpertShape { layer, expert, codecs, hidden, width, biases } = *shape;
    for codec in codecs {
        expert_codec(codec.id())?;
    }
    let bytes = BlobLayout::new(codecs, hidden, width, biases)?.len_bytes() as u64;
    let Region { offset, length, checksum } = place(end, BLOB_ALIGN, Some(bytes))?;
    Ok(ExpertRecord { layer, expert, offset, length, checksum, codecs, hidden, width, biases })
}

/// Puts `bytes` at the next multiple of `align` and moves `end` behind them.
pub(crate) fn place(end: &mut u64, align: u64, bytes: Option<u64>) -> Result<Region, FaultKind> {
    let too_large = || FaultKind::refused("the vault would exceed 2^63 bytes");
    let offset = end.checked_next_multiple_of(align).ok_or_else(too_large)?;
    let length = bytes.ok_or_else(too_large)?;
    *end = offset.checked_add(length).filter(|&e| e <= i64::MAX as u64).ok_or_else(too_large)?;
    Ok(Region { offset, length, checksum: 0 })
}

/// Length of a tensor, or why it cannot be stored.
pub(crate) fn tensor_bytes(dtype: Dtype, shape: &[u64]) -> Result<u64, FaultKind> {
    if shape.len() > MAX_AXES {
        return Err(FaultKind::refused(format!("it has {} axes, at most {MAX_AXES} are stored", shape.len())));
    }
    dtype.bytes(shape).ok_or_else(|| FaultKind::refused(format!("its shape {shape:?} is empty or exceeds 64 bits")))
}

/// Names seen so far, by kind.
#[derive(Default)]
pub(crate) struct Names<'a> {
    sections: HashSet<&'a str>,
    tensors: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    pub(crate) fn add_section(&mut self, name: &'a str) -> Result<(), FaultKind> {
        add(&mut self.sections, name)
    }

    pub(crate) fn add_tensor(&mut self, name: &'a str) -> Result<(), FaultKind> {
        add(&mut self.tensors, name)
    }
}

fn add<'a>(names: &mut HashSet<&'a str>, name: &'a str) -> Result<(), FaultKind> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(FaultKind::refused(format!("its name is empty, over {MAX_NAME_BYTES} B or not printable")));
    }
    if !names.insert(name) {
        return Err(FaultKind::refused("the name occurs twice"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expert(layer: u32, expert: u32) -> ExpertShape {
        ExpertShape { layer, expert, codecs: [Codec::Q4; 3], hidden: 128, width: 64, biases: false }
    }

    #[test]
    fn offsets_follow_from_sizes() {
        let layout = Layout::builder()
            .section("config.json", 5)
            .trunk("a", Dtype::Bf16, &[3, 5])
            .trunk("b", Dtype::F32, &[1])
            .expert(expert(1, 0))
            .expert(expert(0, 1))
            .build()
            .expect("a small vault");
        assert_eq!((layout.table.offset, layout.table.length), (64, 96));
        assert_eq!(layout.sections()[0].offset, 192);
        assert_eq!(layout.trunk().iter().map(|t| t.offset).collect::<Vec<_>>(), [256, 320]);
        assert_eq!(layout.experts().iter().map(|e| (e.layer, e.offset)).collect::<Vec<_>>(), [(0, 16384), (1, 32768)]);
        // 3 x (4096 codes + 256 scales), padded to 4 KiB.
        assert_eq!(layout.data_end(), 32768 + 16384);
        assert_eq!(layout.expert_index(1, 0), Some(1));
    }

    #[test]
    fn impossible_vaults_are_refused_by_name() {
        let check = |fill: &dyn Fn(&mut LayoutBuilder), text: &str| {
            let mut builder = Layout::builder();
            fill(&mut builder);
            let message = builder.build().unwrap_err().to_string();
            assert_eq!(message, text);
        };
        check(&|b| drop(b.section("s", 1).section("s", 2).build()), "section `s`: the name occurs twice");
        check(
            &|b| drop(b.trunk("t", Dtype::F32, &[0]).build()),
            "trunk tensor `t`: its shape [0] is empty or exceeds 64 bits",
        );
        check(&|b| drop(b.expert(expert(2, 3)).expert(expert(2, 3)).build()), "layer 2 expert 3: it is added twice");
        check(
            &|b| drop(b.expert(ExpertShape { codecs: [Codec::Q8; 3], ..expert(0, 0) }).build()),
            "layer 0 expert 0: codec q8 is for the trunk only",
        );
        check(
            &|b| drop(b.section("s", u64::MAX / 4).trunk("t", Dtype::F32, &[1 << 61]).build()),
            "trunk tensor `t`: the vault would exceed 2^63 bytes",
        );
    }
}
