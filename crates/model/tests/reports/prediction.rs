//! Layers for multi-token prediction: skipped by name, in either convention, whole, half or absent.

use super::forge::{Model, read_golden, safetensors};
use smoe_model::role::Bindings;
use std::fs;

fn bindings(model: &Model) -> Bindings {
    use smoe_model::store::TensorStore;
    model.open().expect("opens").bindings().clone()
}

/// Copies of the last layer under the next index, and what such layers have besides.
fn past_the_end(model: &Model, layers: usize) -> Model {
    let mut out = model.clone();
    let from = format!("model.layers.{}.", layers - 1);
    let to = format!("model.layers.{layers}.");
    for (name, tensor) in &model.tensors {
        if let Some(rest) = name.strip_prefix(&from) {
            out.tensors.insert(format!("{to}{rest}"), tensor.clone());
        }
    }
    for extra in ["enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight", "embed_tokens.weight"] {
        out.tensors.insert(format!("{to}{extra}"), ("BF16".into(), vec![1], vec![0; 2]));
    }
    out
}

#[test]
fn with_without_and_with_half_of_them_it_is_one_model() {
    for name in ["deepseek_v3", "glm4_moe", "glm4_moe_lite"] {
        let mut without = read_golden(name);
        without.config["num_nextn_predict_layers"] = 1.into();
        let layers = without.config["num_hidden_layers"].as_u64().expect("a count") as usize;
        let past = format!("model.layers.{layers}.");
        without.tensors.retain(|tensor, _| !tensor.starts_with(&past));
        let with = past_the_end(&without, layers);
        let mut half = with.clone();
        let mut i = 0;
        half.tensors.retain(|tensor, _| {
            i += usize::from(tensor.starts_with(&past));
            !tensor.starts_with(&past) || i % 2 == 0
        });
        let plain = bindings(&without);
        assert_eq!(bindings(&with), plain, "{name}");
        assert_eq!(bindings(&half), plain, "{name}");
        let skipped = with.open().expect("opens").report().skipped.clone();
        assert_eq!(skipped.len(), with.tensors.len() - without.tensors.len(), "{name}: {skipped:?}");
        // A layer that the config does not announce is no prediction layer.
        let mut unannounced = with.clone();
        unannounced.config["num_nextn_predict_layers"] = 0.into();
        let refusal = unannounced.refusal();
        assert!(refusal.contains(&format!("layer {layers} is past the {layers} layers of config.json")), "{refusal}");
    }
}

#[test]
fn the_other_convention_is_skipped_by_its_prefix() {
    for name in ["qwen3_next", "qwen3_5_moe"] {
        let mut without = read_golden(name);
        without.tensors.retain(|tensor, _| !tensor.starts_with("mtp."));
        let mut with = without.clone();
        for tensor in ["mtp.fc.weight", "mtp.layers.0.mlp.experts.0.gate_proj.weight", "mtp.norm.weight"] {
            with.tensors.insert(tensor.into(), ("BF16".into(), vec![1], vec![0; 2]));
        }
        assert_eq!(bindings(&with), bindings(&without), "{name}");
        assert_eq!(with.open().expect("opens").report().skipped.len(), 3, "{name}");
    }
}

/// Every shard that the index names is read, whatever it is called.
#[test]
fn a_shard_of_any_name_is_read() {
    let model = read_golden("deepseek_v3");
    let folder = tempfile::tempdir().expect("a folder");
    let (mut first, mut second) = (model.tensors.clone(), model.tensors.clone());
    first.retain(|name, _| !name.contains("layers.2."));
    second.retain(|name, _| name.contains("layers.2."));
    fs::write(folder.path().join("config.json"), model.config.to_string()).expect("config");
    fs::write(folder.path().join("model.safetensors"), safetensors(&first)).expect("weights");
    fs::write(folder.path().join("mtp.safetensors"), safetensors(&second)).expect("weights");
    let file = |name: &String| if first.contains_key(name) { "model.safetensors" } else { "mtp.safetensors" };
    let map: serde_json::Map<_, _> = model.tensors.keys().map(|name| (name.clone(), file(name).into())).collect();
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).expect("index");
    let found = super::forge::open(folder.path()).expect("opens");
    assert_eq!(found.report().used, model.open().expect("whole").report().used);
}
