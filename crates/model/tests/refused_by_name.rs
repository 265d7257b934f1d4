//! What is refused by its name, each with the whole message and its hint: families, block formats, kinds of tensors.

mod forge;

use forge::{golden, golden_config, read_golden};
use serde_json::{Value, json};
use smoe_model::{OpenOptions, families};

/// Key, fault and hint of a config's refusal.
fn refusal(config: &Value) -> (String, String) {
    let error = families::spec_from_config(&config.to_string(), &OpenOptions::default()).expect_err("a refusal");
    (error.to_string(), error.hint.unwrap_or_default())
}

const READ: &str = "families that are read: mixtral, qwen2_moe, qwen3_moe, qwen3_next, qwen3_5_moe, olmoe, deepseek_v2, \
                    deepseek_v3, glm4_moe, glm4_moe_lite, gpt_oss, minimax_m2, granitemoe, lfm2_moe, ernie4_5_moe, \
                    hunyuan_v1_moe, dots1, phimoe";

#[test]
fn families() {
    for (name, why) in [
        ("llama4", "its chunked attention and its scaling of expert inputs are not implemented"),
        ("deepseek_v32", "its sparse attention (the indexer) is not implemented"),
        ("glm_moe_dsa", "its sparse attention (the indexer) is not implemented"),
        ("deepseek_v4", "its compressed attention and its hyper-connections are not implemented"),
        ("kimi_k25", "a multimodal wrapper whose text part is not read; use a text-only release"),
        ("kimi_linear", "its linear attention is not implemented"),
        ("qwen3_vl_moe", "a multimodal model whose text part is not read; use a text-only release"),
        ("minimax_m1", "its lightning attention is not implemented"),
        ("granitemoehybrid", "its mixers or its shared experts are not implemented"),
        ("gemma4", "its parallel dense and expert branches are not implemented"),
        ("nobody_knows", "not a family that is known"),
    ] {
        let (error, hint) = refusal(&json!({ "model_type": name }));
        assert_eq!(error, format!("config.json: `model_type`: family {name} is not read: {why}"));
        assert_eq!(hint, READ);
    }
}

#[test]
fn block_formats() {
    for (method, name) in [
        ("gptq", "GPTQ"),
        ("awq", "AWQ"),
        ("bitsandbytes", "bitsandbytes"),
        ("hqq", "HQQ"),
        ("quanto", "Quanto"),
        ("auto-round", "AutoRound"),
        ("modelopt", "ModelOpt (NVFP4)"),
        ("exl3", "EXL3"),
        ("another", "another"),
    ] {
        let mut config = golden_config("qwen3_moe");
        config["quantization_config"] = json!({ "quant_method": method, "bits": 4 });
        assert_eq!(
            refusal(&config).0,
            format!(
                "config.json: `quantization_config.quant_method`: {name} checkpoints are not read (supported: fp8, mxfp4, \
                 compressed-tensors int4, and bf16, f16, f32); use the unquantised release"
            )
        );
    }
    let mut config = golden_config("deepseek_v3-fp8");
    config["quantization_config"]["weight_block_size"] = json!([64, 128]);
    assert_eq!(
        refusal(&config).0,
        "config.json: `quantization_config.weight_block_size`: [64,128] is not supported; expected [128,128]"
    );
    let mut config = golden_config("kimi_k2-int4");
    config["quantization_config"]["format"] = json!("marlin-24");
    assert_eq!(
        refusal(&config).0,
        "config.json: `quantization_config.format`: \"marlin-24\" is not supported; expected \"pack-quantized\""
    );
}

/// Tensors of formats that no config announced.
#[test]
fn tensors_of_other_formats() {
    let gate = "model.layers.1.mlp.experts.3.gate_proj";
    for part in ["qweight", "qzeros", "g_idx"] {
        let mut model = golden();
        model.tensors.insert(format!("{gate}.{part}"), ("I32".into(), vec![1], vec![0; 4]));
        assert_eq!(
            model.refusal(),
            format!(
                "model.safetensors: `{gate}.{part}`: a part of a GPTQ or AWQ weight, which is not read; use the \
                 unquantised release"
            )
        );
    }
    let mut model = read_golden("gpt_oss");
    let blocks = "model.layers.0.mlp.experts.gate_up_proj";
    model.tensors.remove(blocks);
    model.tensors.insert(format!("{blocks}_blocks"), ("U8".into(), vec![1], vec![0]));
    model.tensors.insert(format!("{blocks}_scales"), ("U8".into(), vec![1], vec![0]));
    assert_eq!(
        model.refusal(),
        format!(
            "model.safetensors: `{blocks}_blocks`: a weight in MXFP4, and config.json has no `quantization_config` that \
             says so"
        )
    );
    model.tensors.remove(&format!("{blocks}_scales"));
    assert_eq!(
        model.refusal(),
        format!(
            "model.safetensors: `{blocks}_blocks`: its `{blocks}_scales` is in no file; download the checkpoint again"
        )
    );
}

/// Tensors of the family that looks alike: the token mixers tell them apart.
#[test]
fn look_alikes() {
    let mut next = read_golden("qwen3_next");
    let packed = "model.layers.0.linear_attn.in_proj_qkvz.weight";
    let tensor = next.tensors.remove(packed).expect("there");
    next.tensors.insert("model.layers.0.linear_attn.in_proj_z.weight".into(), tensor);
    assert_eq!(
        next.refusal(),
        "config.json: `model_type`: says qwen3_next, but a layer holds `.linear_attn.in_proj_z.`, which that family does \
         not have; the tensors are those of no family that is read"
    );
}

/// One layer too many, and the prediction layers that were announced.
#[test]
fn layers_past_the_last() {
    let mut model = golden();
    model.tensors.insert("model.layers.2.input_layernorm.weight".into(), ("BF16".into(), vec![1], vec![0; 2]));
    assert_eq!(
        model.refusal(),
        "model.safetensors: `model.layers.2.input_layernorm.weight`: layer 2 is past the 2 layers of config.json, which \
         announces 0 prediction layers"
    );
}
