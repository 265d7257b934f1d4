//! Block formats: scales, names of scales, widths, what a config may be trusted with.

use super::forge::{Model, golden_config, of_config};
use serde_json::json;

/// A model whose first layer's gates of experts are fp8 in blocks.
fn fp8() -> (Model, String) {
    let mut model = of_config(golden_config("deepseek_v3-fp8"));
    model.config = golden_config("deepseek_v3-fp8");
    let name = "model.layers.1.mlp.experts.0.gate_proj.weight".to_owned();
    let shape = model.tensor(&name).1.clone();
    let scales = shape.iter().map(|d| d.div_ceil(128)).collect::<Vec<_>>();
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    *model.tensor(&name) = ("F8_E4M3".into(), shape.clone(), vec![0x38; count(&shape)]);
    let bytes = 1.0_f32.to_le_bytes().repeat(count(&scales));
    model.tensors.insert(format!("{name}_scale_inv"), ("F32".into(), scales, bytes));
    (model, name)
}

#[test]
fn a_weight_without_its_scale_and_a_scale_without_its_weight_are_refused() {
    let (model, name) = fp8();
    model.open().expect("whole");
    let mut less = model.clone();
    less.tensors.remove(&format!("{name}_scale_inv"));
    assert_eq!(
        less.refusal(),
        format!("model.safetensors: `{name}`: its `{name}_scale_inv` is in no file; download the checkpoint again")
    );
    // A weight in 16 bits beside a scale: nothing claims the scale.
    let mut more = model.clone();
    let shape = more.tensor(&name).1.clone();
    let count = shape.iter().product::<usize>();
    *more.tensor(&name) = ("BF16".into(), shape, vec![0; 2 * count]);
    assert_eq!(
        more.refusal(),
        format!(
            "model.safetensors: `{name}_scale_inv`: the scales of an fp8 weight, which is in no file or is not fp8; \
             download the checkpoint again"
        )
    );
    // The config does not announce what the tensors are.
    let mut silent = model;
    silent.config.as_object_mut().expect("an object").remove("quantization_config");
    assert_eq!(
        silent.refusal(),
        format!(
            "model.safetensors: `{name}`: a weight in fp8, and config.json has no `quantization_config` that says so"
        )
    );
}

/// The type of a tensor is its header's: a router in 16 bits needs no place in a list of exceptions.
#[test]
fn lists_of_exceptions_decide_nothing() {
    let mut model = of_config(golden_config("kimi_k2-int4"));
    model.config = golden_config("kimi_k2-int4");
    let plain = model.open().expect("every weight in 16 bits").plan().spec.clone();
    model.config["quantization_config"]["ignore"] = json!([]);
    assert_eq!(model.open().expect("none excepted").plan().spec, plain);
}

/// A packed matrix whose scales fit another group size than the config's is refused: the shape confirms, it never decides.
#[test]
fn bits_and_group_size_come_from_the_config_and_the_shape_must_agree() {
    let mut model = of_config(golden_config("kimi_k2-int4"));
    model.config = golden_config("kimi_k2-int4");
    let name = "model.layers.1.mlp.experts.0.gate_proj.weight";
    let (_, shape, _) = model.tensors.remove(name).expect("there");
    let (rows, cols) = (shape[0], shape[1]);
    let mut put = |suffix: &str, dtype: &str, shape: Vec<usize>, width: usize| {
        let bytes = vec![0; width * shape.iter().product::<usize>()];
        model.tensors.insert(format!("{name}{suffix}"), (dtype.into(), shape, bytes));
    };
    put("_packed", "I32", vec![rows, cols / 8], 4);
    put("_scale", "BF16", vec![rows, cols / 16], 2);
    put("_shape", "I64", vec![2], 8);
    let refusal = model.refusal();
    let want = format!(
        "`{name}_scale`: shape [{rows}, {}], config.json makes it [{rows}, {}]; config and weights do not belong together",
        cols / 16,
        cols / 32
    );
    assert!(refusal.contains(&want), "{refusal}");
}
