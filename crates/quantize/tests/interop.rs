//! Import and export, on the files of the public engine where `../shared` has them, and on small synthetic vaults.

use smoe_codec::{Codec, decode_row};
use smoe_model::store::{ExpertMatrix, ExpertReader, TensorStore};
use smoe_model::{Checkpoint, OpenOptions, role::Proj};
use smoe_quantize::Control;
use smoe_quantize::convert::{QuantizeOptions, TrunkStorage, quantize};
use smoe_quantize::export::{Element, HfOptions, to_hf};
use smoe_quantize::smoe_v2::{ImportOptions, import, to_smoe_v2};
use smoe_quantize::synth::{self, Overrides, SynthOptions};
use smoe_vault::{BlobLayout, VaultFile};
use std::fs;
use std::path::{Path, PathBuf};

/// The shared folder, where it is.
fn shared(part: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os("SMOE_SHARED").map_or_else(beside, PathBuf::from).join(part);
    println!("{}: {}", path.display(), if path.exists() { "used" } else { "absent, not tested" });
    path.exists().then_some(path)
}

/// Calls `check` with each expert matrix of a vault: its address, `[rows, cols]`, and its decoded rows and scales.
fn each_matrix(vault: &Path, mut check: impl FnMut(ExpertMatrix, Codec, usize, &[f32], &[f32])) {
    let vault = VaultFile::open(vault).expect("a vault");
    for record in vault.experts() {
        let blob = vault.read_blob(record).expect("a blob");
        let layout = BlobLayout::new(record.codecs, record.hidden, record.width, record.biases).expect("a layout");
        for (i, proj) in [Proj::Gate, Proj::Up, Proj::Down].into_iter().enumerate() {
            let ((rows, cols), codec) = (layout.shape(i), layout.codec(i));
            let mut values = vec![0.0; rows * cols];
            let (codes, scales) = (&blob[layout.codes(i)], &blob[layout.scales(i)]);
            let (code_row, scale_row) = (codec.code_bytes(cols), codec.scale_bytes(cols));
            for (r, row) in values.chunks_mut(cols).enumerate() {
                decode_row(codec, &codes[r * code_row..][..code_row], &scales[r * scale_row..][..scale_row], row);
            }
            let steps: Vec<f32> = scales
                .chunks_exact(2)
                .map(|s| smoe_codec::half::f16_to_f32(u16::from_le_bytes([s[0], s[1]])))
                .collect();
            let at = ExpertMatrix { layer: record.layer as usize, expert: record.expert as usize, proj };
            check(at, codec, cols, &values, &steps);
        }
    }
}

#[test]
fn files_of_the_public_engine_come_back_byte_for_byte() {
    let Some(folder) = shared("interop/s-moe") else { return };
    let scratch = tempfile::tempdir().expect("a scratch folder");
    for bits in ["q2", "q4"] {
        let file = folder.join(format!("moe-3m-qwen3.{bits}.smoe"));
        let vault = scratch.path().join(format!("{bits}.vault"));
        let report = import(&file, &vault, &ImportOptions::default(), &Control::silent()).expect("imported");
        assert!(report.reproducible, "{:?}", report.notes);
        assert_eq!((report.codec, report.experts), (bits, 64));
        let back = scratch.path().join(format!("{bits}.smoe"));
        to_smoe_v2(&vault, &back, false, &Control::silent()).expect("exported");
        assert!(fs::read(&file).expect("a file") == fs::read(&back).expect("a file"), "{bits} differs");
        let trunk = fs::read(folder.join("moe-3m-qwen3.scout.safetensors")).expect("a trunk");
        let back = fs::read(scratch.path().join(format!("{bits}.scout.safetensors"))).expect("a trunk");
        assert!(trunk == back, "{bits}: the trunk differs");
    }
}

#[test]
fn imported_weights_are_those_of_the_source() {
    let (Some(folder), Some(model)) = (shared("interop/s-moe"), shared("models/moe-3m-qwen3")) else { return };
    let source = Checkpoint::open(&model, &OpenOptions::default()).expect("a checkpoint");
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let options = ImportOptions { tokenizer: Some(model.clone()), ..ImportOptions::default() };
    for bits in ["q2", "q4"] {
        let vault = scratch.path().join(bits);
        import(&folder.join(format!("moe-3m-qwen3.{bits}.smoe")), &vault, &options, &Control::silent()).expect("ok");
        let mut snr = Vec::new();
        each_matrix(&vault, |at, codec, _, values, scales| {
            let mut want = vec![0.0; values.len()];
            source.read_expert_rows(at, 0, &mut want).expect("a matrix");
            let (mut signal, mut noise) = (0.0, 0.0);
            for (i, (&w, &v)) in want.iter().zip(values).enumerate() {
                let scale = scales[i / 64];
                // Half a step of 2 s / 15, and the rounding of an f32 product and sum.
                let bound = scale / 15.0 * (1.0 + 1e-5) + w.abs() * 4.0 * f32::EPSILON;
                assert!(
                    codec != Codec::Q4 || (w - v).abs() <= bound,
                    "{at:?} weight {i}: {w} became {v} (scale {scale})"
                );
                signal += f64::from(w).powi(2);
                noise += f64::from(w - v).powi(2);
            }
            snr.push(10.0 * (signal / noise).log10());
        });
        snr.sort_by(f64::total_cmp);
        if bits == "q2" {
            assert!(snr[0] >= 8.9 && snr[snr.len() / 2] >= 9.35, "{} {}", snr[0], snr[snr.len() / 2]);
        }
    }
}

#[test]
fn a_dequantised_folder_is_a_checkpoint_with_the_vaults_weights() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let source = scratch.path().join("tiny-odd");
    let synth = SynthOptions { shape: "tiny-odd".into(), overrides: Overrides::default(), seed: 5, force: false };
    synth::checkpoint(&source, &synth, &Control::silent()).expect("a synthetic checkpoint");
    let vault = scratch.path().join("v");
    let options = QuantizeOptions { trunk: TrunkStorage::Q8, ..QuantizeOptions::new(Codec::Q2) };
    quantize(&source, &vault, &options, &Control::silent()).expect("converted");
    for element in [Element::F32, Element::Bf16] {
        let target = scratch.path().join(format!("{element:?}"));
        to_hf(&vault, &target, HfOptions { element, force: false }, &Control::silent()).expect("exported");
        let back = Checkpoint::open(&target, &OpenOptions::default()).expect("a checkpoint");
        assert_eq!(back.spec(), Checkpoint::open(&source, &OpenOptions::default()).expect("it was").spec());
        each_matrix(&vault, |at, _, _, values, _| {
            let mut found = vec![0.0; values.len()];
            back.read_expert_rows(at, 0, &mut found).expect("a matrix");
            for (&v, &f) in values.iter().zip(&found) {
                let want = match element {
                    Element::F32 => v,
                    Element::Bf16 => smoe_codec::half::bf16_to_f32(smoe_codec::half::f32_to_bf16(v)),
                };
                assert_eq!(want.to_bits(), f.to_bits(), "{at:?}");
            }
        });
    }
    let refused = to_smoe_v2(&vault, &scratch.path().join("x.smoe"), false, &Control::silent());
    assert!(refused.expect_err("never imported").to_string().contains("not imported"));
}
