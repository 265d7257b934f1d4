//! Forges vaults: what a converter would write, and what none should.
#![allow(dead_code)] // Each test file uses its part.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use smoe_codec::{Codec, encode_row, half};
use smoe_engine::sampler::SplitMix64;
use smoe_model::role::Proj;
use smoe_model::store::{Dtype as Stored, ExpertMatrix, ExpertReader, TensorStore};
use smoe_model::{Checkpoint, OpenOptions};
use smoe_vault::{Contents, Dtype, Existing, ExpertShape, Layout, Start, VaultWriter, WriteOptions};

/// Layer, expert, projection.
pub(crate) type At = (usize, usize, usize);

/// One matrix's codes and scales, to be changed.
pub(crate) struct Matrix<'a> {
    pub(crate) codec: Codec,
    pub(crate) codes: &'a mut [u8],
    pub(crate) scales: &'a mut [u8],
}

impl Matrix<'_> {
    /// Every scale times `factor`: worse than what the search found.
    pub(crate) fn rescale(&mut self, factor: f32) {
        for scale in self.scales.as_chunks_mut::<2>().0 {
            let value = half::f16_to_f32(u16::from_le_bytes(*scale)) * factor;
            *scale = half::f32_to_f16(value).to_le_bytes();
        }
    }

    /// One code moved to its neighbour: another matrix, as good as the same.
    pub(crate) fn nudge(&mut self) {
        self.codes[0] ^= 1;
    }
}

/// Changes to a matrix, by its place.
type Edit<'a> = Box<dyn Fn(At, &mut Matrix<'_>) + 'a>;

/// A vault to forge.
pub(crate) struct Forge<'a> {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) codecs: [Codec; 3],
    pub(crate) provenance: Value,
    pub(crate) sections: Vec<(String, Vec<u8>)>,
    /// A trunk tensor that nothing needs.
    pub(crate) stray: bool,
    /// A trunk tensor whose first value becomes NaN.
    pub(crate) poison: Option<&'static str>,
    pub(crate) edit: Edit<'a>,
}

/// The golden model of the repository.
pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/qwen3_moe")
}

/// Reference material beside the repository, where there is some.
pub(crate) fn shared() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("SMOE_SHARED").map_or_else(beside, PathBuf::from);
    folder.join("golden").is_dir().then_some(folder)
}

/// What a vault says that was rounded to nearest.
pub(crate) fn rtn() -> Value {
    json!({ "experts": { "method": "rtn" } })
}

/// What a calibrated vault says.
pub(crate) fn calibrated() -> Value {
    json!({ "experts": { "method": "calibrated" } })
}

impl<'a> Forge<'a> {
    /// Round-to-nearest experts of a checkpoint.
    pub(crate) fn of(folder: &Path, codec: Codec) -> Self {
        let checkpoint = Checkpoint::open(folder, &OpenOptions::default()).expect("a checkpoint").with_bf16_trunk();
        Self {
            checkpoint,
            codecs: [codec; 3],
            provenance: rtn(),
            sections: Vec::new(),
            stray: false,
            poison: None,
            edit: Box::new(|_, _| ()),
        }
    }

    pub(crate) fn saying(mut self, provenance: Value) -> Self {
        self.provenance = provenance;
        self
    }

    pub(crate) fn with_section(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.sections.push((name.into(), bytes));
        self
    }

    pub(crate) fn edited(mut self, edit: impl Fn(At, &mut Matrix<'_>) + 'a) -> Self {
        self.edit = Box::new(edit);
        self
    }

    fn layout(&self) -> Layout {
        let spec = self.checkpoint.spec();
        let mut builder = Layout::builder();
        for (name, bytes) in &self.sections {
            builder.section(name, bytes.len() as u64);
        }
        for name in self.checkpoint.trunk_tensors() {
            let stored = self.checkpoint.stored(name).expect("a stored tensor");
            let shape: Vec<u64> = stored.shape.iter().map(|axis| *axis as u64).collect();
            let dtype = match stored.dtype {
                Stored::Bf16 => Dtype::Bf16,
                Stored::F16 => Dtype::F16,
                Stored::F32 => Dtype::F32,
                Stored::Q8 => Dtype::Q8,
            };
            builder.trunk(name, dtype, &shape);
        }
        if self.stray {
            builder.trunk("stray.weight", Dtype::F32, &[3]);
        }
        for (layer, moe) in spec.moe_layers() {
            for expert in 0..moe.experts {
                builder.expert(ExpertShape {
                    layer: layer as u32,
                    expert: expert as u32,
                    codecs: self.codecs,
                    hidden: spec.hidden as u32,
                    width: moe.width as u32,
                    biases: moe.expert_bias,
                });
            }
        }
        builder.build().expect("a layout")
    }

    /// Writes the vault into `folder` and returns its path.
    pub(crate) fn write(self, folder: &Path, name: &str) -> PathBuf {
        let (layout, path) = (self.layout(), folder.join(name));
        let how = WriteOptions { existing: Existing::Replace, start: Start::Fresh, fingerprint: String::new() };
        let writer = VaultWriter::create(&path, layout.clone(), how).expect("room");
        for (index, (_, bytes)) in self.sections.iter().enumerate() {
            writer.write_section(index, bytes).expect("written");
        }
        for (index, tensor) in layout.trunk().iter().enumerate() {
            let mut bytes = vec![0; tensor.length as usize];
            if tensor.name != "stray.weight" {
                self.checkpoint.read_stored(&tensor.name, 0, &mut bytes).expect("read");
            }
            if self.poison == Some(&tensor.name) {
                assert_eq!(tensor.dtype, Dtype::Bf16);
                bytes[..2].copy_from_slice(&[0xC0, 0x7F]);
            }
            writer.write_trunk(index, &bytes, Value::Null).expect("written");
        }
        for index in 0..layout.experts().len() {
            writer.write_expert(index, &self.blob(&layout, index), Value::Null).expect("written");
        }
        let json = |value| serde_json::to_value(value).expect("JSON");
        let spec = json(serde_json::to_value(self.checkpoint.spec()).expect("JSON"));
        let bindings = json(serde_json::to_value(self.checkpoint.bindings()).expect("JSON"));
        writer.finish(Contents { spec, bindings, provenance: self.provenance, verdict: None }).expect("whole");
        path
    }

    fn blob(&self, layout: &Layout, index: usize) -> Vec<u8> {
        let record = layout.experts()[index];
        let parts = record.layout().expect("a small expert");
        let mut blob = vec![0; parts.len_bytes()];
        for (i, proj) in [Proj::Gate, Proj::Up, Proj::Down].into_iter().enumerate() {
            let at = ExpertMatrix { layer: record.layer as usize, expert: record.expert as usize, proj };
            let ((rows, cols), codec) = (parts.shape(i), parts.codec(i));
            let mut weights = vec![0.0; rows * cols];
            self.checkpoint.read_expert_rows(at, 0, &mut weights).expect("read");
            let (mut codes, mut scales) =
                (vec![0; rows * codec.code_bytes(cols)], vec![0; rows * codec.scale_bytes(cols)]);
            let rows = weights.chunks(cols).zip(codes.chunks_mut(codec.code_bytes(cols)));
            for ((row, codes), scales) in rows.zip(scales.chunks_mut(codec.scale_bytes(cols))) {
                encode_row(codec, row, codes, scales).expect("finite weights");
            }
            (self.edit)((at.layer, at.expert, i), &mut Matrix { codec, codes: &mut codes, scales: &mut scales });
            blob[parts.codes(i)].copy_from_slice(&codes);
            blob[parts.scales(i)].copy_from_slice(&scales);
            if let Some(range) = parts.bias(i) {
                let bias = self.checkpoint.read_expert_bias(at).expect("read").expect("a bias");
                blob[range].copy_from_slice(&bias.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<u8>>());
            }
        }
        blob
    }
}

/// Random rows of a vocabulary, `rows_each` in each of `documents` documents.
pub(crate) fn random_rows(vocab: usize, documents: usize, rows_each: usize, len: usize) -> (Vec<Vec<u32>>, Vec<i32>) {
    let mut rng = SplitMix64::new(11);
    let mut row = || (0..len).map(|_| (rng.next_u64() % vocab as u64) as u32).collect::<Vec<u32>>();
    let rows = (0..documents * rows_each).map(|_| row()).collect();
    (rows, (0..documents * rows_each).map(|row| (row / rows_each) as i32).collect())
}
