//! Well-formed checkpoints to start from: every golden config with the tensors of its layout and block format.

use super::{Verdict, folder, judge};
use crate::forge::golden_configs;
use serde_json::Value;
use smoe_model::{OpenOptions, families};

/// A tensor of a header; its offsets follow from the order.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
}

/// A well-formed checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct Seed {
    pub(crate) name: String,
    pub(crate) config: Value,
    pub(crate) tensors: Vec<Tensor>,
}

/// All seeds: one for each golden config, and other published forms of the same models.
pub(crate) fn seeds() -> Vec<Seed> {
    let mut all: Vec<Seed> = golden_configs().into_iter().map(|(name, config)| seed(name, config)).collect();
    let more: Vec<Seed> = all.iter().flat_map(|seed| stacked(seed).into_iter().chain(with_extras(seed))).collect();
    all.extend(more);
    all
}

fn seed(name: String, config: Value) -> Seed {
    let mut plain = config.clone();
    plain.as_object_mut().expect("an object").remove("quantization_config");
    let plan = families::spec_from_config(&plain.to_string(), &OpenOptions::default()).expect("a golden config");
    let method = config["quantization_config"]["quant_method"].as_str().unwrap_or("none").to_owned();
    let mut tensors = Vec::new();
    for (tensor, shape) in families::tensors(&plan).expect("names") {
        stored(&method, &tensor, &shape.iter().map(|n| *n as u64).collect::<Vec<_>>(), &mut tensors);
    }
    Seed { name, config, tensors }
}

/// A tensor in the block format that the config announces.
fn stored(method: &str, name: &str, shape: &[u64], out: &mut Vec<Tensor>) {
    let mut add = |suffix: &str, dtype: &str, shape: Vec<u64>| {
        out.push(Tensor { name: format!("{name}{suffix}"), dtype: dtype.into(), shape });
    };
    let projection = name.ends_with("_proj.weight") || name.ends_with("_with_mqa.weight");
    match (method, shape) {
        ("fp8", &[rows, cols]) if projection => {
            add("", "F8_E4M3", vec![rows, cols]);
            add("_scale_inv", "F32", vec![rows.div_ceil(128), cols.div_ceil(128)]);
        }
        ("mxfp4", &[experts, cols, rows]) => {
            add("_blocks", "U8", vec![experts, rows, cols / 32, 16]);
            add("_scales", "U8", vec![experts, rows, cols / 32]);
        }
        ("compressed-tensors", &[rows, cols]) if name.contains(".mlp.experts.") => {
            add("_packed", "I32", vec![rows, cols / 8]);
            add("_scale", "BF16", vec![rows, cols / 32]);
            add("_shape", "I32", vec![2]);
        }
        _ => add("", if name.ends_with("_bias") { "F32" } else { "BF16" }, shape.to_vec()),
    }
}

/// The experts of a model with one tensor each, stacked as newer versions of the library write them.
fn stacked(seed: &Seed) -> Option<Seed> {
    let first = ".mlp.experts.0.gate_proj.weight";
    let count = seed.tensors.iter().filter(|t| t.name.ends_with(".gate_proj.weight")).count();
    if count == 0 || seed.tensors.iter().any(|t| t.name.ends_with("_packed") || t.name.ends_with("_scale_inv")) {
        return None;
    }
    let layers: Vec<String> =
        seed.tensors.iter().filter_map(|t| t.name.strip_suffix(first)).map(str::to_owned).collect();
    let mut tensors: Vec<Tensor> = seed.tensors.iter().filter(|t| !t.name.contains(".mlp.experts.")).cloned().collect();
    for layer in &layers {
        let stem = format!("{layer}.mlp.experts.");
        let gates: Vec<&Tensor> =
            seed.tensors.iter().filter(|t| t.name.starts_with(&stem) && t.name.ends_with("gate_proj.weight")).collect();
        let (experts, width, hidden) = (gates.len() as u64, gates[0].shape[0], gates[0].shape[1]);
        for (name, shape) in [("gate_up_proj", [experts, 2 * width, hidden]), ("down_proj", [experts, hidden, width])] {
            tensors.push(Tensor { name: format!("{stem}{name}"), dtype: "BF16".into(), shape: shape.to_vec() });
        }
    }
    (!layers.is_empty()).then(|| Seed { name: format!("{}+stacked", seed.name), config: seed.config.clone(), tensors })
}

/// Prediction layers and the like beside the model, in each of the published forms that is skipped.
fn with_extras(seed: &Seed) -> Vec<Seed> {
    let config = seed.config.get("text_config").unwrap_or(&seed.config);
    let past = format!("model.layers.{}.eh_proj.weight", config["num_hidden_layers"]);
    let forms = [&*past, "mtp.fc.weight", "model.mtp_block.0.norm.weight", "model.visual.patch_embed.proj.weight"];
    let extra = |form: &&str| {
        let mut with = seed.clone();
        with.name = format!("{}+{}", seed.name, form.split('.').find(|part| *part != "model").unwrap_or(""));
        with.tensors.push(Tensor { name: (*form).to_owned(), dtype: "BF16".into(), shape: vec![2, 3] });
        matches!(judge(&folder(&with, &[])), Ok(Verdict::Accepted)).then_some(with)
    };
    forms.iter().filter_map(extra).collect()
}
