//! Conversions: what a vault holds is what the codec makes of the checkpoint, whatever the threads; refusals leave
//! nothing.

use smoe_codec::{Codec, encode_row};
use smoe_model::store::{ExpertMatrix, ExpertReader, TensorStore};
use smoe_model::{Checkpoint, OpenOptions, role::Proj};
use smoe_quantize::convert::{Presence, QuantizeOptions, TrunkStorage, quantize};
use smoe_quantize::synth::{self, Overrides, SynthOptions};
use smoe_quantize::{Control, QuantizeError};
use smoe_vault::{BlobLayout, VaultFile, verify};
use std::fs;
use std::path::{Path, PathBuf};

fn checkpoint(folder: &Path, shape: &str) -> PathBuf {
    let target = folder.join(shape);
    let options = SynthOptions { shape: shape.into(), overrides: Overrides::default(), seed: 1, force: false };
    synth::checkpoint(&target, &options, &Control::silent()).expect("a synthetic checkpoint");
    target
}

/// Every expert of the vault is, byte for byte, what the scalar codec makes of the checkpoint's rows.
fn check_experts(checkpoint: &Path, vault: &Path, codec: Codec) {
    let source = Checkpoint::open(checkpoint, &OpenOptions::default()).expect("a checkpoint");
    let vault = VaultFile::open(vault).expect("a vault");
    assert_eq!(vault.experts().len(), source.spec().moe_layers().map(|(_, moe)| moe.experts).sum::<usize>());
    for record in vault.experts() {
        let blob = vault.read_blob(record).expect("a blob");
        let layout = BlobLayout::new(record.codecs, record.hidden, record.width, record.biases).expect("a layout");
        for (i, proj) in [Proj::Gate, Proj::Up, Proj::Down].into_iter().enumerate() {
            let (rows, cols) = layout.shape(i);
            let at = ExpertMatrix { layer: record.layer as usize, expert: record.expert as usize, proj };
            let mut row = vec![0.0; cols];
            let (codes, scales) = (&blob[layout.codes(i)], &blob[layout.scales(i)]);
            for r in 0..rows {
                source.read_expert_rows(at, r, &mut row).expect("a row");
                let (mut want_codes, mut want_scales) =
                    (vec![0; codec.code_bytes(cols)], vec![0; codec.scale_bytes(cols)]);
                encode_row(codec, &row, &mut want_codes, &mut want_scales).expect("finite");
                assert_eq!(codes.chunks(codec.code_bytes(cols)).nth(r), Some(&want_codes[..]), "{at:?} row {r}");
                assert_eq!(scales.chunks(codec.scale_bytes(cols)).nth(r), Some(&want_scales[..]), "{at:?} row {r}");
            }
        }
    }
}

#[test]
fn a_vault_holds_what_the_codec_makes() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for shape in ["tiny", "tiny-odd"] {
        let source = checkpoint(folder.path(), shape);
        for codec in [Codec::Q2, Codec::Q4] {
            let vault = folder.path().join(format!("{shape}-{}.vault", codec.name()));
            let report =
                quantize(&source, &vault, &QuantizeOptions::new(codec), &Control::silent()).expect("converted");
            check_experts(&source, &vault, codec);
            assert!(verify(&vault, &mut |_, _| ()).expect("readable").is_empty());
            assert_eq!(report.bytes, fs::metadata(&vault).expect("a file").len());
            assert_eq!((report.experts, report.rtn_tensors, report.calibrated_tensors), (24, 72, 0));
            let exact = codec.bits_per_weight();
            assert!(shape != "tiny" || (report.bits_per_weight - exact).abs() < 1e-9, "{}", report.bits_per_weight);
            assert!(report.notes.iter().any(|n| n.contains("rounded to nearest")), "{:?}", report.notes);
            assert_eq!(report.notes.iter().any(|n| n.contains("calibration gains")), codec == Codec::Q2);
        }
    }
}

#[test]
fn threads_and_folders_leave_no_trace() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny");
    let (a, b) = (folder.path().join("a.vault"), folder.path().join("b.vault"));
    let options = QuantizeOptions { threads: Some(1), trunk: TrunkStorage::Q8, ..QuantizeOptions::new(Codec::Q2) };
    quantize(&source, &a, &options, &Control::silent()).expect("one thread");
    let elsewhere = folder.path().join("moved").join("tiny");
    fs::create_dir(folder.path().join("moved")).expect("a folder");
    fs::rename(&source, &elsewhere).expect("moved");
    let options = QuantizeOptions { threads: Some(3), ..options };
    quantize(&elsewhere, &b, &options, &Control::silent()).expect("three threads");
    let (a, b) = (fs::read(a).expect("a"), fs::read(b).expect("b"));
    assert!(a == b, "the files differ");
    let path = folder.path().to_str().expect("UTF-8").as_bytes().to_vec();
    assert!(!a.windows(path.len()).any(|w| w == path), "a path of this machine is in the vault");
}

#[test]
fn q8_takes_projections_only() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny-odd");
    let vault = folder.path().join("v");
    let options = QuantizeOptions { trunk: TrunkStorage::Q8, ..QuantizeOptions::new(Codec::Q4) };
    quantize(&source, &vault, &options, &Control::silent()).expect("converted");
    let vault = VaultFile::open(&vault).expect("a vault");
    for tensor in &vault.manifest().trunk {
        let kept = tensor.name.contains("norm") || tensor.name.contains("mlp.gate");
        assert_eq!(tensor.dtype.name(), if kept { "BF16" } else { "Q8" }, "{}", tensor.name);
    }
    // The embedding's first row, as the codec encodes it.
    let source = Checkpoint::open(&source, &OpenOptions::default()).expect("a checkpoint");
    let (mut bytes, mut row) = (vec![0; 96 * 2], vec![0.0; 96]);
    source.read_stored("model.embed_tokens.weight", 0, &mut bytes).expect("a row");
    smoe_model::formats::decode_plain(smoe_model::store::Dtype::Bf16, &bytes, &mut row);
    let (mut codes, mut scales, mut stored) = (vec![0; 96], vec![0; 4], vec![0; 96]);
    encode_row(Codec::Q8, &row, &mut codes, &mut scales).expect("finite");
    vault.read_trunk("model.embed_tokens.weight", 0, &mut stored).expect("codes");
    assert_eq!(stored, codes);
}

/// Writes `value` (bf16) over one weight of a tensor; its offset comes from the header.
fn poison(checkpoint: &Path, tensor: &str, weight: usize, value: u16) {
    let path = checkpoint.join("model.safetensors");
    let mut bytes = fs::read(&path).expect("a shard");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).expect("a header");
    let at = 8 + len + header[tensor]["data_offsets"][0].as_u64().expect("an offset") as usize + 2 * weight;
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    fs::write(path, bytes).expect("written");
}

#[test]
fn a_weight_that_is_not_finite_is_named_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let cases = [
        ("model.layers.2.mlp.experts.5.down_proj.weight", 64 * 3 + 1, 0x7FC0, "row 3"),
        ("model.layers.0.self_attn.q_proj.weight", 128 * 7, 0xFF80, "row 7"),
    ];
    for (tensor, weight, value, row) in cases {
        for trunk in [TrunkStorage::AsPublished, TrunkStorage::Q8] {
            let source = checkpoint(folder.path(), "tiny");
            poison(&source, tensor, weight, value);
            let vault = folder.path().join("v");
            let options = QuantizeOptions { trunk, ..QuantizeOptions::new(Codec::Q4) };
            let refused = quantize(&source, &vault, &options, &Control::silent()).expect_err("a NaN");
            let said = refused.to_string();
            for word in ["model.safetensors", tensor, row] {
                assert!(said.contains(word), "{said}");
            }
            fs::remove_dir_all(&source).expect("removed");
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "something was left");
        }
    }
}

#[test]
fn an_existing_vault_is_kept_without_force() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny");
    let vault = folder.path().join("v");
    fs::write(&vault, "precious").expect("a file");
    let mut options = QuantizeOptions::new(Codec::Q4);
    let refused = quantize(&source, &vault, &options, &Control::silent());
    assert!(matches!(refused, Err(QuantizeError::Exists(_))), "{refused:?}");
    assert_eq!(fs::read(&vault).expect("a file"), b"precious");
    options.presence = Presence { force: true, resume: false };
    quantize(&source, &vault, &options, &Control::silent()).expect("replaced");
    check_experts(&source, &vault, Codec::Q4);
}

#[test]
fn a_dry_run_writes_nothing() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny");
    let options = QuantizeOptions { dry_run: true, ..QuantizeOptions::new(Codec::Q4) };
    let report = quantize(&source, &folder.path().join("v"), &options, &Control::silent()).expect("planned");
    assert!(report.dry_run && report.bytes > 0);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_cancelled_conversion_is_resumed_to_the_same_bytes() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny");
    let whole = folder.path().join("whole");
    quantize(&source, &whole, &QuantizeOptions::new(Codec::Q4), &Control::silent()).expect("converted");
    let whole = fs::read(whole).expect("a vault");
    for after in [1, 20, 50] {
        let vault = folder.path().join(format!("v{after}"));
        let (cancel, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        let progress = |_: smoe_quantize::Progress| {
            cancel.fetch_or(calls.fetch_add(1, Ordering::Relaxed) == after, Ordering::Relaxed);
        };
        let mut options = QuantizeOptions::new(Codec::Q4);
        let stopped =
            quantize(&source, &vault, &options, &Control { progress: &progress, cancel: &cancel, ..Control::silent() });
        if stopped.is_ok() {
            continue; // The last part was already on its way.
        }
        assert!(matches!(stopped, Err(QuantizeError::Cancelled)), "{stopped:?}");
        assert!(!vault.exists());
        options.presence.resume = true;
        let report = quantize(&source, &vault, &options, &Control::silent()).expect("resumed");
        assert!(report.resumed, "after {after}");
        assert!(fs::read(&vault).expect("a vault") == whole, "after {after}: other bytes");
    }
}
