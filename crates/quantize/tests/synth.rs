//! Synthetic checkpoints: small, as asked, the same twice, and refused before a byte is written.

use smoe_codec::Codec;
use smoe_quantize::convert::{Presence, QuantizeOptions, quantize};
use smoe_quantize::synth::{Overrides, SynthOptions, checkpoint, shape_names, vault};
use smoe_quantize::{Control, QuantizeError};
use smoe_vault::{VaultFile, verify};
use std::fs;
use std::path::Path;

fn options(shape: &str) -> SynthOptions {
    SynthOptions { shape: shape.into(), overrides: Overrides::default(), seed: 3, force: false }
}

fn header(path: &Path) -> serde_json::Value {
    let bytes = fs::read(path).expect("a shard");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    serde_json::from_slice(&bytes[8..8 + len]).expect("a header")
}

#[test]
fn a_checkpoint_has_the_shape_asked_for_and_repeats() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut options = options("tiny");
    options.overrides = Overrides { layers: Some(2), experts: Some(4), vocab: Some(300), ..Overrides::default() };
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let report = checkpoint(&a, &options, &Control::silent()).expect("written");
    checkpoint(&b, &options, &Control::silent()).expect("written twice");
    let file = "model.safetensors";
    assert_eq!(fs::read(a.join(file)).expect("a"), fs::read(b.join(file)).expect("b"));
    assert_eq!(report.bytes, fs::metadata(a.join(file)).expect("a file").len());
    let header = header(&a.join(file));
    assert_eq!(header["model.embed_tokens.weight"]["shape"], serde_json::json!([300, 128]));
    assert!(header.get("model.layers.1.mlp.experts.3.down_proj.weight").is_some());
    assert!(header.get("model.layers.2.input_layernorm.weight").is_none());
    assert!(header.get("model.layers.0.mlp.experts.4.down_proj.weight").is_none());
}

#[test]
fn an_existing_target_needs_force() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let target = folder.path().join("model");
    checkpoint(&target, &options("tiny"), &Control::silent()).expect("written");
    let again = checkpoint(&target, &options("tiny"), &Control::silent());
    assert!(matches!(again, Err(QuantizeError::Exists(_))), "{again:?}");
    let forced = SynthOptions { force: true, seed: 4, ..options("tiny-odd") };
    checkpoint(&target, &forced, &Control::silent()).expect("replaced");
    assert_eq!(header(&target.join("model.safetensors"))["model.norm.weight"]["shape"], serde_json::json!([96]));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing left beside it");
}

#[test]
fn too_large_a_shape_is_refused_before_writing() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut options = options("qwen3-235b-a22b");
    options.overrides = Overrides { layers: Some(1), vocab: Some(1 << 33), ..Overrides::default() };
    let refused = checkpoint(&folder.path().join("model"), &options, &Control::silent());
    assert!(matches!(refused, Err(QuantizeError::NoSpace { .. })), "{refused:?}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn an_unknown_shape_names_the_known_ones() {
    let refused = checkpoint(Path::new("x"), &options("qwen"), &Control::silent()).expect_err("unknown");
    for name in shape_names() {
        assert!(refused.to_string().contains(name), "{refused}");
    }
}

#[test]
fn a_vault_of_random_codes_is_whole_and_has_the_checkpoints_trunk() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for shape in ["tiny", "tiny-odd"] {
        for codec in [Codec::Q2, Codec::Q4] {
            let (made, converted) = (folder.path().join("made"), folder.path().join("converted"));
            let options = SynthOptions { force: true, ..options(shape) };
            let report = vault(&made, &options, codec, &Control::silent()).expect("written");
            assert!(verify(&made, &mut |_, _| ()).expect("readable").is_empty());
            assert_eq!(report.bytes, fs::metadata(&made).expect("a file").len());
            let source = folder.path().join("source");
            let written = checkpoint(&source, &options, &Control::silent()).expect("written");
            assert_eq!(report.parameters, written.parameters);
            let convert =
                QuantizeOptions { presence: Presence { force: true, resume: false }, ..QuantizeOptions::new(codec) };
            quantize(&source, &converted, &convert, &Control::silent()).expect("converted");
            let (made, converted) = (VaultFile::open(&made).expect("ok"), VaultFile::open(&converted).expect("ok"));
            assert_eq!(made.manifest().spec, converted.manifest().spec);
            assert_eq!(made.manifest().bindings, converted.manifest().bindings);
            let sums = |v: &VaultFile| {
                let mut sums: Vec<_> = v.manifest().trunk.iter().map(|t| (t.name.clone(), t.checksum)).collect();
                sums.sort();
                sums
            };
            assert_eq!(sums(&made), sums(&converted));
        }
    }
}
