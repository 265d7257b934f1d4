//! What once kept a calibrated quantiser from ever running on a mixture-of-experts model: a guard that looked for a
//! router in layer 0, where the layer was dense; and an architecture name that two families with different token mixers
//! share. Here every such model is calibrated in each of its layers with experts, or the conversion is an error.

mod random_models;

use random_models::forge::{golden_config, golden_configs};
use random_models::write_random;
use serde_json::{Value, json};
use smoe_codec::Codec;
use smoe_model::spec::{Mixer, Mlp};
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, OpenOptions};
use smoe_quantize::Control;
use smoe_quantize::capture::{CalibrationText, TextKind};
use smoe_quantize::convert::{Calibration, QuantizeOptions, quantize};
use smoe_quantize::random::SplitMix64;
use smoe_vault::VaultFile;
use std::collections::BTreeSet;

/// Calibrates a random model of a config; its layers with experts.
fn check(name: &str, config: &Value) -> Vec<usize> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (source, vault) = (folder.path().join("source"), folder.path().join("v"));
    write_random(config, &source);
    let checkpoint = Checkpoint::open(&source, &OpenOptions::default()).expect("a checkpoint");
    let spec = checkpoint.spec();
    let mut random = SplitMix64::new(7, 0, 0);
    let mut row = || (0..48).map(|_| (random.next_u64() % spec.vocab as u64) as u32).collect::<Vec<u32>>();
    let text = CalibrationText { name: "text".into(), kind: TextKind::Windows, rows: (0..12).map(|_| row()).collect() };
    let options = QuantizeOptions { calibration: Some(Calibration::new(text)), ..QuantizeOptions::new(Codec::Q2) };
    let report = quantize(&source, &vault, &options, &Control::silent()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let layers: Vec<usize> = spec.moe_layers().map(|(layer, _)| layer).collect();
    let matrices: usize = spec.moe_layers().map(|(_, moe)| 3 * moe.experts).sum();
    assert_eq!((report.calibrated_tensors as usize, report.rtn_tensors), (matrices, 0), "{name}");
    let file = VaultFile::open(&vault).expect("a vault");
    let tensors = file.manifest().provenance["experts"]["tensors"].as_array().expect("a list").clone();
    let calibrated: BTreeSet<u64> = tensors.iter().filter_map(|t| t["layer"].as_u64()).collect();
    assert_eq!(calibrated, layers.iter().map(|&layer| layer as u64).collect(), "{name}");
    layers
}

/// A dense layer at the front, in the middle, at the end hides no expert behind it.
#[test]
fn dense_layers_hide_no_expert_wherever_they_are() {
    for (dense, layers) in [(vec![0], vec![1, 2, 3]), (vec![1, 2], vec![0, 3]), (vec![3], vec![0, 1, 2])] {
        let mut config = golden_config("qwen3_moe");
        config["num_hidden_layers"] = 4.into();
        config["mlp_only_layers"] = json!(dense);
        assert_eq!(check(&format!("dense {dense:?}"), &config), layers);
    }
}

/// Published families whose first layer is dense, each with its own key for it.
#[test]
fn families_with_a_dense_first_layer_calibrate_the_others() {
    let mut ran = 0;
    for (name, config) in golden_configs() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        write_random(&config, folder.path());
        let checkpoint = Checkpoint::open(folder.path(), &OpenOptions::default()).expect("a checkpoint");
        if matches!(checkpoint.spec().layers[0].mlp, Mlp::Dense { .. }) {
            let layers = check(&name, &config);
            println!("{name}: layers {layers:?}");
            assert!(!layers.is_empty() && layers[0] > 0, "{name}");
            ran += 1;
        }
    }
    assert!(ran >= 5, "{ran} families");
}

/// Names alike, token mixers not: both are calibrated, each by its own spec.
#[test]
fn look_alikes_are_both_calibrated() {
    let mixers = |name: &str| {
        let folder = tempfile::tempdir().expect("a scratch folder");
        write_random(&golden_config(name), folder.path());
        let checkpoint = Checkpoint::open(folder.path(), &OpenOptions::default()).expect("a checkpoint");
        let kinds: Vec<bool> = checkpoint.spec().layers.iter().map(|l| matches!(l.mixer, Mixer::Gqa(_))).collect();
        (checkpoint.spec().family.clone(), kinds)
    };
    let [next, five] = ["qwen3_next", "qwen3_5_moe"].map(|name| {
        check(name, &golden_config(name));
        mixers(name)
    });
    assert_ne!(next.0, five.0);
    for (family, kinds) in [next, five] {
        assert!(kinds.contains(&true) && kinds.contains(&false), "{family}: both kinds of mixer, {kinds:?}");
    }
}
