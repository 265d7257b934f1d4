//! A small vault with everything in it, for the tests.
#![allow(dead_code, unreachable_pub)] // Each test file uses its part.

use serde_json::json;
use smoe_codec::{Codec, encode_row};
use smoe_vault::{Contents, Dtype, Existing, ExpertShape, Layout, Start, VaultWriter, WriteOptions};
use std::path::Path;

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    fn weights(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32 - 0.5).collect()
    }
}

pub const EXPERTS: [ExpertShape; 3] = [
    ExpertShape { layer: 1, expert: 0, codecs: [Codec::Q2, Codec::Q4, Codec::Q2], hidden: 40, width: 24, biases: true },
    ExpertShape { layer: 1, expert: 1, codecs: [Codec::Q4; 3], hidden: 40, width: 24, biases: true },
    ExpertShape { layer: 3, expert: 7, codecs: [Codec::Q2; 3], hidden: 40, width: 65, biases: false },
];

pub const CONFIG: &[u8] = br#"{"model_type": "test"}"#;

pub fn layout() -> Layout {
    let mut builder = Layout::builder();
    builder.section("config.json", CONFIG.len() as u64).section("tokenizer.json", 5).section("empty", 0);
    builder.trunk("model.embed_tokens.weight", Dtype::Bf16, &[3, 40]).trunk("model.norm.weight", Dtype::F32, &[1]);
    builder.trunk("lm_head.weight", Dtype::Q8, &[3, 65]).trunk("conv", Dtype::F16, &[4, 1, 3]);
    for shape in EXPERTS {
        builder.expert(shape);
    }
    builder.build().expect("a small vault")
}

/// A trunk tensor's bytes.
pub fn trunk_bytes(index: usize) -> Vec<u8> {
    let layout = layout();
    let tensor = &layout.trunk()[index];
    let mut bytes = Rng(index as u64 + 100).bytes(tensor.length as usize);
    if tensor.dtype == Dtype::Q8 {
        bytes[3 * 65..256].fill(0);
    }
    bytes
}

/// An expert's blob.
pub fn blob(index: usize) -> Vec<u8> {
    let record = layout().experts()[index];
    let parts = record.layout().expect("a small expert");
    let mut rng = Rng(index as u64 + 1);
    let mut blob = vec![0; parts.len_bytes()];
    for proj in 0..3 {
        let (codec, (rows, cols)) = (parts.codec(proj), parts.shape(proj));
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            let (mut c, mut s) = (vec![0; codec.code_bytes(cols)], vec![0; codec.scale_bytes(cols)]);
            encode_row(codec, &rng.weights(cols), &mut c, &mut s).expect("finite weights");
            codes.extend(c);
            scales.extend(s);
        }
        blob[parts.codes(proj)].copy_from_slice(&codes);
        blob[parts.scales(proj)].copy_from_slice(&scales);
        if let Some(bias) = parts.bias(proj) {
            let values: Vec<u8> = rng.weights(rows).iter().flat_map(|v| v.to_le_bytes()).collect();
            blob[bias].copy_from_slice(&values);
        }
    }
    blob
}

pub fn contents() -> Contents {
    Contents {
        spec: json!({"family": "test", "hidden": 40, "eps": 1e-6}),
        bindings: json!({"trunk": []}),
        provenance: json!({"seed": 0, "experts": {"rtn": 9, "why": "no text, \"none\""}}),
        verdict: None,
    }
}

pub fn options(existing: Existing, start: Start) -> WriteOptions {
    WriteOptions { existing, start, fingerprint: "codec=mixed".into() }
}

/// Writes what is missing, at most `most` parts; whether all is written.
pub fn fill(writer: &VaultWriter, most: usize) -> bool {
    use smoe_vault::Unit;
    let sections: [&[u8]; 3] = [CONFIG, b"{\"a\"}", b""];
    let units = (0..3).map(Unit::Section).chain((0..4).map(Unit::Trunk)).chain((0..3).map(Unit::Expert));
    let missing: Vec<Unit> = units.filter(|u| !writer.is_written(*u)).collect();
    for unit in missing.iter().take(most) {
        match *unit {
            Unit::Section(i) => writer.write_section(i, sections[i]).expect("room"),
            Unit::Trunk(i) => {
                let mut sink = writer.trunk_sink(i);
                trunk_bytes(i).chunks(7).for_each(|piece| sink.write(piece).expect("room"));
                sink.finish(json!({"trunk": i})).expect("the whole tensor");
            }
            Unit::Expert(i) => writer.write_expert(i, &blob(i), json!({"expert": i})).expect("room"),
        }
    }
    missing.len() <= most
}

/// Writes the small vault.
pub fn write(path: &Path) {
    let writer = VaultWriter::create(path, layout(), options(Existing::Refuse, Start::Fresh)).expect("room");
    assert!(fill(&writer, usize::MAX));
    writer.finish(contents()).expect("a whole vault");
}

/// The small vault's bytes.
pub fn bytes() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.vault");
    write(&path);
    std::fs::read(path).expect("own vault")
}

/// A drive in memory.
#[derive(Clone, Default)]
pub struct Memory(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Memory {
    pub fn of(bytes: &[u8]) -> Self {
        Self(std::sync::Arc::new(std::sync::Mutex::new(bytes.to_vec())))
    }

    pub fn flip(&self, at: usize, mask: u8) {
        self.lock()[at] ^= mask;
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("no test thread panicked")
    }
}

impl smoe_vault::Drive for Memory {
    fn len_bytes(&self) -> std::io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.lock();
        let rest = bytes.get(offset as usize..).unwrap_or(&[]);
        let take = rest.len().min(out.len());
        out[..take].copy_from_slice(&rest[..take]);
        Ok(take)
    }
}

impl smoe_vault::DriveMut for Memory {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<usize> {
        let (mut all, offset) = (self.lock(), offset as usize);
        if all.len() < offset + bytes.len() {
            all.resize(offset + bytes.len(), 0);
        }
        all[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.lock().resize(length as usize, 0);
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
}
