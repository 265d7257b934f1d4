//! A vault computes what its decoded weights say, and is refused when it is damaged or contradicts itself.

mod synthetic;

use serde_json::Value;
use smoe_codec::{Codec, decode_row, encode_row};
use smoe_engine::compare::TOLERANCE;
use smoe_engine::cpu::Activations;
use smoe_engine::sources::CheckpointExperts;
use smoe_engine::{Engine, EngineOptions, Silent, VaultStore, Want};
use smoe_model::role::Proj;
use smoe_model::spec::*;
use smoe_model::store::{ExpertMatrix, ExpertReader, StoreError, TensorStore};
use smoe_vault::{Contents, Existing, ExpertShape, Layout, Start, VaultFile, VaultWriter, WriteOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use synthetic::{RandomExperts, Synthetic, gqa, model, moe};

const CODECS: [Codec; 3] = [Codec::Q4, Codec::Q2, Codec::Q4];

/// Width 20 and hidden 40: every row ends in a short group.
fn spec() -> ModelSpec {
    let mut clamped = MoeSpec { act: Activation::ClampedSwiGlu { limit: 7.0, alpha: 1.702 }, ..moe() };
    clamped.expert_bias = true;
    model(vec![(Mixer::Gqa(gqa()), Mlp::Moe(clamped)), (Mixer::Gqa(gqa()), Mlp::Moe(moe()))])
}

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("smoe-engine-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Codes and scales of a random matrix.
fn encoded(experts: &RandomExperts, at: ExpertMatrix, (rows, cols): (usize, usize)) -> (Vec<u8>, Vec<u8>) {
    let codec = CODECS[at.proj as usize];
    let mut weights = vec![0.0; rows * cols];
    experts.read_expert_rows(at, 0, &mut weights).expect("random weights");
    let mut codes = vec![0; rows * codec.code_bytes(cols)];
    let mut scales = vec![0; rows * codec.scale_bytes(cols)];
    let parts = codes.chunks_exact_mut(codec.code_bytes(cols)).zip(scales.chunks_exact_mut(codec.scale_bytes(cols)));
    for (row, (codes, scales)) in weights.chunks_exact(cols).zip(parts) {
        encode_row(codec, row, codes, scales).expect("finite weights");
    }
    (codes, scales)
}

/// Writes the synthetic model as a vault; `change` may touch its manifest.
fn write(path: &Path, model: &Synthetic, change: impl FnOnce(&mut Contents)) {
    let spec = model.spec();
    let mut builder = Layout::builder();
    for (name, stored, _) in model.tensors() {
        let shape: Vec<u64> = stored.shape.iter().map(|axis| *axis as u64).collect();
        builder.trunk(name, smoe_vault::Dtype::F32, &shape);
    }
    for (layer, moe) in spec.moe_layers() {
        for expert in 0..moe.experts as u32 {
            let (hidden, width) = (spec.hidden as u32, moe.width as u32);
            builder.expert(ExpertShape {
                layer: layer as u32,
                expert,
                codecs: CODECS,
                hidden,
                width,
                biases: moe.expert_bias,
            });
        }
    }
    let layout = builder.build().expect("a layout");
    let options = WriteOptions { existing: Existing::Replace, start: Start::Fresh, fingerprint: String::new() };
    let writer = VaultWriter::create(path, layout, options).expect("a writer");
    for (i, (_, _, bytes)) in model.tensors().enumerate() {
        writer.write_trunk(i, bytes, Value::Null).expect("a trunk tensor");
    }
    let experts = RandomExperts(spec.clone());
    for i in 0..writer.layout().experts().len() {
        let record = writer.layout().experts()[i];
        let layout = record.layout().expect("a blob's layout");
        let mut blob = vec![0; layout.len_bytes()];
        for proj in [Proj::Gate, Proj::Up, Proj::Down] {
            let at = ExpertMatrix { layer: record.layer as usize, expert: record.expert as usize, proj };
            let (codes, scales) = encoded(&experts, at, layout.shape(proj as usize));
            blob[layout.codes(proj as usize)].copy_from_slice(&codes);
            blob[layout.scales(proj as usize)].copy_from_slice(&scales);
            if let Some(bias) = experts.read_expert_bias(at).expect("a bias") {
                let bytes: Vec<u8> = bias.iter().flat_map(|b| b.to_le_bytes()).collect();
                blob[layout.bias(proj as usize).expect("a bias's place")].copy_from_slice(&bytes);
            }
        }
        writer.write_expert(i, &blob, Value::Null).expect("an expert");
    }
    let mut contents = Contents {
        spec: serde_json::to_value(spec).expect("plain data"),
        bindings: serde_json::to_value(model.bindings()).expect("plain data"),
        ..Contents::default()
    };
    change(&mut contents);
    writer.finish(contents).expect("a vault");
}

/// The random experts as the codecs keep them.
struct Decoded(RandomExperts);

impl ExpertReader for Decoded {
    fn read_expert_rows(&self, at: ExpertMatrix, _: usize, out: &mut [f32]) -> Result<(), StoreError> {
        let codec = CODECS[at.proj as usize];
        let Mlp::Moe(moe) = &self.0.0.layers[at.layer].mlp else { unreachable!("every layer has experts") };
        let cols = if at.proj == Proj::Down { moe.width } else { self.0.0.hidden };
        let (codes, scales) = encoded(&self.0, at, (out.len() / cols, cols));
        let parts = codes.chunks_exact(codec.code_bytes(cols)).zip(scales.chunks_exact(codec.scale_bytes(cols)));
        for (row, (codes, scales)) in out.chunks_exact_mut(cols).zip(parts) {
            decode_row(codec, codes, scales, row);
        }
        Ok(())
    }

    fn read_expert_bias(&self, at: ExpertMatrix) -> Result<Option<Vec<f32>>, StoreError> {
        self.0.read_expert_bias(at)
    }
}

const OPTIONS: EngineOptions = EngineOptions { threads: 2, context: None, chunk: 512, activations: Activations::F32 };

#[test]
fn a_vault_computes_its_decoded_weights() {
    let (folder, model) = (Folder::new("decoded"), Synthetic::new(spec()));
    let path = folder.0.join("model.smoe");
    write(&path, &model, |_| ());
    let source = CheckpointExperts::new(model.spec(), Arc::new(Decoded(RandomExperts(spec()))));
    let decoded = Engine::new(&model, Box::new(source), &OPTIONS).expect("an engine over decoded weights");
    let vault = Engine::open(&path, &OPTIONS).expect("an engine over the vault");
    let ids: Vec<u32> = (0..40).map(|i| i * 11 % 61).collect();
    let logits = |engine: &Engine| engine.forward(&mut engine.session(), &ids, &mut Silent, Want::All).expect("a pass");
    let (want, got) = (logits(&decoded), logits(&vault));
    let most = want.iter().fold(0.0, |m: f32, l| m.max(l.abs()));
    let diff = want.iter().zip(&got).fold(0.0, |m: f32, (a, b)| m.max((a - b).abs()));
    assert!(diff <= TOLERANCE * most, "{diff} of {most}");
    assert!(vault.experts().resident_bytes() >= 12 * 4096);
}

/// In eight bits: close to the exact logits, and the same bits whatever chunks, threads and texts beside.
#[test]
fn eight_bit_activations_are_close_and_do_not_depend_on_the_call() {
    let folder = Folder::new("int8");
    let path = folder.0.join("v");
    write(&path, &Synthetic::new(spec()), |_| ());
    let open = |threads, activations| {
        Engine::open(&path, &EngineOptions { threads, activations, ..EngineOptions::default() }).expect("opens")
    };
    let ids: Vec<u32> = (0..11).map(|i| 3 + 5 * i % 29).collect();
    let logits = |engine: &Engine, chunk| {
        let mut session = engine.session();
        session.chunk = chunk;
        engine.forward(&mut session, &ids, &mut Silent, Want::All).expect("logits")
    };
    let exact = logits(&open(1, Activations::F32), 11);
    let wanted = logits(&open(1, Activations::Int8), 11);
    let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|v| f64::from(v * v)).sum::<f64>().sqrt();
    let off = norm(&mut wanted.iter().zip(&exact).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
    assert!(off > 0.0 && off < 0.05, "{off}");
    for (threads, chunk) in [(1, 1), (2, 4), (3, 11)] {
        assert_eq!(logits(&open(threads, Activations::Int8), chunk), wanted, "{threads} threads, chunks of {chunk}");
    }
}

#[test]
fn a_damaged_vault_is_never_answered_from() {
    let (folder, model) = (Folder::new("damaged"), Synthetic::new(spec()));
    let path = folder.0.join("model.smoe");
    write(&path, &model, |_| ());
    let whole = std::fs::read(&path).expect("the vault");
    let file = VaultFile::open(&path).expect("a vault");
    let blob = file.experts()[7].offset as usize;
    let embedding = file.manifest().trunk.iter().find(|t| t.name == "Embedding").expect("an embedding").offset as usize;
    for (at, want) in [(blob + 5, "layer 1"), (embedding, "Embedding"), (70, "expert table")] {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, damaged).expect("a damaged vault");
        let error = Engine::open(&path, &OPTIONS).err().expect("refused").to_string();
        assert!(error.contains(want), "byte {at}: {error}");
    }
    // Wherever the byte lies, padding between the parts included.
    for at in (0..whole.len()).step_by(whole.len() / 300).chain([blob - 1]) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).expect("a damaged vault");
        let faults = smoe_vault::verify(&path, &mut |_, _| ()).expect("a file");
        assert!(Engine::open(&path, &OPTIONS).is_err(), "byte {at} was changed and went unnoticed: {faults:?}");
    }
}

#[test]
fn a_manifest_that_contradicts_its_contents_is_refused() {
    let (folder, model) = (Folder::new("manifest"), Synthetic::new(spec()));
    let path = folder.0.join("model.smoe");
    let refusal = |change: &dyn Fn(&mut Contents)| {
        write(&path, &model, change);
        Engine::open(&path, &OPTIONS).err().map_or_else(|| "accepted".into(), |e| e.to_string())
    };
    for (change, want) in [
        (
            &(|c: &mut Contents| c.spec["hidden"] = 41.into()) as &dyn Fn(&mut Contents),
            "expected (hidden, width, biases) (41",
        ),
        (&|c| c.spec["layers"][0]["mlp"]["moe"]["experts"] = 7.into(), "layer 0 has no expert 6"),
        (&|c| c.spec["unknown"] = 1.into(), "spec: unknown field `unknown`"),
        (&|c| c.bindings["trunk"] = Value::Array(Vec::new()), "no tensor plays Embedding"),
        (&|c| c.bindings["trunk"][0][1]["tensor"] = "absent".into(), "absent"),
        (&|c| c.bindings["trunk"][0][1]["rows"] = serde_json::json!({"runs": [[0, 61], [0, 61]]}), "found [122, 40]"),
    ] {
        let found = refusal(change);
        assert!(found.contains(want), "expected {want}, found {found}");
    }
    write(&path, &model, |_| ());
    assert!(VaultStore::open(&path).is_ok());
}
