//! What configs mean: a snapshot of each family's spec, published parameter counts, and for every key whether it
//! matters.

mod forge;

use forge::{golden_config, golden_configs};
use serde_json::{Value, json};
use smoe_model::counts::counts;
use smoe_model::spec::{Activation, LayerSpec, Mixer};
use smoe_model::{CheckpointError, ConfigPlan, ModelSpec, OpenOptions, families};
use std::path::{Path, PathBuf};

fn plan(config: &Value) -> Result<ConfigPlan, CheckpointError> {
    families::spec_from_config(&config.to_string(), &OpenOptions::default())
}

/// The spec without what does not change results.
fn spec(config: &Value) -> Result<ModelSpec, String> {
    let mut spec = plan(config).map_err(|e| e.to_string())?.spec;
    spec.context = 0;
    Ok(spec)
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// After a change that is meant: `SMOE_BLESS=1 cargo test --release -p smoe-model --test specs`, and read the diff.
#[test]
fn specs_are_the_snapshots() {
    for (name, config) in golden_configs() {
        let spec = plan(&config).unwrap_or_else(|e| panic!("{name}: {e}")).spec;
        let path = tests().join("specs").join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&spec).expect("JSON") + "\n";
        if std::env::var_os("SMOE_BLESS").is_some() {
            std::fs::write(&path, &text).expect("written");
        }
        let snapshot = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(text, snapshot, "{name}");
        let back: ModelSpec = serde_json::from_str(&snapshot).expect("a spec");
        assert_eq!(back, spec, "{name}");
    }
}

#[test]
fn counts_are_those_published() {
    let expected: Value = read(&tests().join("configs/counts.json"));
    for (name, want) in expected.as_object().expect("counts") {
        check_counts(name, &read(&tests().join("configs").join(format!("{name}.json"))), want);
    }
    let shared = std::env::var_os("SMOE_SHARED").map_or_else(|| tests().join("../../../../shared"), PathBuf::from);
    if !shared.is_dir() {
        println!("no reference material beside the repository: five configs were counted");
        return;
    }
    let expected: Value = read(&shared.join("configs/expected.json"));
    let (mut counted, mut refused) = (0, Vec::new());
    for (file, model) in expected["models"].as_object().expect("models") {
        let config = read(&shared.join("configs").join(file));
        match plan(&config) {
            Ok(_) => check_counts(file, &config, &model["computed"]),
            Err(e) => refused.push(format!("{file}: {e}")),
        }
        counted += 1;
    }
    // One has sparse attention; three are partial copies, each refused by the name of a key that is missing.
    println!("{counted} configs, refused: {refused:#?}");
    assert_eq!(refused.len(), 4);
    assert!(refused.iter().all(|e| e.contains("missing") || e.contains("sparse attention")));
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).expect("JSON")
}

fn check_counts(name: &str, config: &Value, want: &Value) {
    let plan = plan(config).unwrap_or_else(|e| panic!("{name}: {e}"));
    let got = counts(&plan.spec);
    let all = [
        ("total", got.total),
        ("active", got.active),
        ("mtp_layers_extra", plan.prediction),
        ("vision_extra", plan.vision),
    ];
    for (key, got) in all {
        assert_eq!(Some(got), want[key].as_u64(), "{name}: {key}");
    }
}

/// What a changed key does.
enum Effect {
    /// Nothing.
    Same,
    /// Another model.
    Other,
    /// A refusal with this in it.
    Refused(&'static str),
}
use Effect::{Other, Refused, Same};

/// Golden config, key (with its parents), new value (null removes it), effect.
fn cases() -> Vec<(&'static str, &'static str, Value, Effect)> {
    let mut all = Vec::new();
    all.extend(router_cases());
    all.extend(attention_cases());
    all.extend(general_cases());
    all
}

fn router_cases() -> Vec<(&'static str, &'static str, Value, Effect)> {
    vec![
        ("deepseek_v3", "scoring_func", json!("softmax"), Same),
        ("deepseek_v3", "scoring_func", json!("noaux_tc"), Refused("`scoring_func`")),
        ("deepseek_v3", "topk_method", json!("greedy"), Same),
        ("deepseek_v3", "topk_method", json!("best"), Refused("\"best\" is not supported in deepseek_v3")),
        ("deepseek_v3", "norm_topk_prob", json!(false), Other),
        ("deepseek_v3", "norm_topk_prob", Value::Null, Refused("missing")),
        ("deepseek_v3", "routed_scaling_factor", json!(1.0), Other),
        ("deepseek_v3", "n_group", json!(3), Refused("3 groups do not divide the 8 experts of `n_routed_experts`")),
        ("deepseek_v3", "n_group", json!(8), Refused("groups of 1, expected at least 2 experts")),
        ("deepseek_v3", "topk_group", json!(5), Refused("keeps 5 of the 4 groups of `n_group`")),
        ("deepseek_v3", "num_experts_per_tok", json!(5), Refused("the 2 groups of `topk_group` hold 4")),
        ("deepseek_v3", "num_experts_per_tok", json!(9), Refused("chooses 9 of the 8 experts of `n_routed_experts`")),
        ("deepseek_v3", "first_k_dense_replace", json!(0), Other),
        ("deepseek_v3", "moe_layer_freq", json!(2), Refused("2 is not supported")),
        ("deepseek_v2", "norm_topk_prob", json!(true), Same),
        ("deepseek_v2", "scoring_func", json!("sigmoid"), Same),
        ("deepseek_v2", "n_group", json!(2), Other),
        ("deepseek_v2", "topk_method", json!("noaux_tc"), Refused("expected greedy or group_limited_greedy")),
        ("deepseek_v2-lite", "n_group", json!(4), Same),
        ("deepseek_v2-lite", "topk_group", json!(3), Same),
        ("kimi_k2-int4", "n_group", Value::Null, Refused("missing")),
        ("deepseek_v3", "topk_group", Value::Null, Refused("missing")),
        ("deepseek_v3", "topk_group", json!(0), Refused("expected a whole number from 1")),
        ("deepseek_v2", "n_group", Value::Null, Refused("missing")),
        ("dots1", "n_group", json!(2), Refused("`topk_group`: missing")),
        ("glm4_moe", "n_group", Value::Null, Same),
        ("dots1", "scoring_func", json!("sigmoid"), Same),
        ("dots1", "scoring_func", json!("softmax"), Refused("expected \"sigmoid\" or \"noaux_tc\"")),
        ("dots1", "n_group", json!(1), Same),
        ("mixtral", "norm_topk_prob", json!(true), Refused("not known in mixtral")),
        ("qwen2_moe", "norm_topk_prob", json!(true), Other),
        ("qwen2_moe", "norm_topk_prob", Value::Null, Refused("missing")),
        ("qwen3_5_moe", "text_config.norm_topk_prob", json!(true), Same),
        ("qwen3_5_moe", "text_config.norm_topk_prob", json!(false), Refused("false is not supported")),
        ("qwen3_next", "norm_topk_prob", Value::Null, Same),
        ("lfm2_moe", "use_expert_bias", json!(false), Other),
        ("lfm2_moe", "routed_scaling_factor", json!(2.0), Other),
        ("minimax_m2", "scoring_func", json!("softmax"), Same),
        ("minimax_m2", "use_routing_bias", json!(false), Same),
        ("minimax_m2", "router_jitter_noise", json!(0.1), Same),
        ("minimax_m2", "shared_moe_mode", json!("softmax"), Same),
        ("minimax_m2", "shared_intermediate_size", json!(64), Refused("64 is not supported")),
        ("ernie4_5_moe", "moe_gate", json!("top2"), Same),
        ("ernie4_5_moe", "moe_norm_min", json!(0.5), Other),
        ("ernie4_5_moe", "moe_use_aux_free", json!(false), Refused("false is not supported")),
        ("ernie4_5_moe", "moe_layer_interval", json!(2), Other),
        ("hunyuan_v1_moe", "norm_topk_prob", json!(false), Same),
        ("hunyuan_v1_moe", "routed_scaling_factor", json!(3.0), Same),
        ("hunyuan_v1_moe", "group_limited_greedy", json!(true), Same),
        ("hunyuan_v1_moe", "moe_topk", json!([3, 2]), Other),
        ("hunyuan_v1_moe", "moe_topk", json!(3), Same),
        ("hunyuan_v1_moe", "moe_topk", json!([3]), Refused("a list of 1 numbers")),
        ("hunyuan_v1_moe", "moe_intermediate_size", json!([32, 64]), Refused("`intermediate_size` is 32")),
        ("hunyuan_v1_moe", "num_shared_expert", json!([1, 2]), Other),
        ("phimoe", "num_experts_per_tok", json!(4), Same),
        ("phimoe", "input_jitter_noise", json!(0.5), Same),
        ("phimoe", "router_jitter_noise", json!(0.5), Other),
        ("gpt_oss", "experts_per_token", json!(3), Same),
        ("glm4_moe", "scoring_func", json!("softmax"), Refused("\"softmax\" is not supported")),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn attention_cases() -> Vec<(&'static str, &'static str, Value, Effect)> {
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
    vec![
        ("qwen3_moe", "rope_theta", Value::Null, Refused("missing")),
        ("qwen3_moe", "rope_parameters", json!({"rope_theta": 1e6}), Same),
        ("qwen3_moe", "rope_parameters", json!({"rope_theta": 5e5}), Refused("is 500000, and `rope_theta` is 1000000")),
        ("qwen3_moe", "rope_scaling", yarn.clone(), Other),
        ("qwen3_moe", "rope_scaling", json!({"type": "linear", "factor": 2.0}), Other),
        ("qwen3_moe", "rope_scaling", json!({"type": "dynamic", "factor": 2.0}), Refused("`dynamic` is not supported")),
        ("qwen3_moe", "rope_scaling", json!({"type": "dynamic", "alpha": 2.0}), Refused("`dynamic` is not supported")),
        (
            "qwen3_moe",
            "rope_scaling",
            json!({"rope_type": "yarn", "factor": 2.0}),
            Refused("`rope_scaling.original_max_position_embeddings`: missing"),
        ),
        (
            "qwen3_moe",
            "rope_scaling",
            json!({"type": "default", "low_freq_factor": 1}),
            Refused("rope_scaling.low_freq_factor"),
        ),
        (
            "qwen3_moe",
            "rope_scaling",
            json!({"full_attention": {"rope_theta": 1e6}}),
            Refused("an own rotary embedding"),
        ),
        ("qwen3_moe", "partial_rotary_factor", json!(0.5), Refused("not known in qwen3_moe")),
        ("qwen3_moe", "head_dim", json!(15), Refused("expected an even number")),
        ("qwen3_moe", "head_dim", Value::Null, Other), // hidden / heads; the tensors confirm it.
        ("qwen3_moe", "num_key_value_heads", json!(3), Refused("3 does not divide the 4 heads")),
        ("qwen3_moe", "use_sliding_window", json!(true), Refused("true is not supported")),
        ("qwen3_moe", "sliding_window", json!(7), Same),
        ("qwen3_moe", "attention_bias", json!(true), Other),
        ("qwen3_moe", "shared_expert_intermediate_size", json!(0), Same),
        ("qwen3_moe", "shared_expert_intermediate_size", json!(32), Refused("32 is not supported")),
        ("qwen2_moe", "sliding_window", json!(8), Same),
        ("mixtral", "sliding_window", json!(8), Other),
        ("mixtral", "sliding_window", json!(0), Refused("expected a whole number from 1")),
        ("dots1", "sliding_window", json!(8), Same), // Both layers lie before `max_window_layers`.
        ("dots1", "max_window_layers", json!(0), Same),
        ("mixtral", "head_dim", json!(20), Same),
        ("olmoe", "clip_qkv", json!(2.0), Other),
        ("phimoe", "sliding_window", json!(8), Other),
        (
            "phimoe",
            "original_max_position_embeddings",
            json!(128),
            Refused("is 64, and `original_max_position_embeddings` is 128"),
        ),
        ("phimoe", "rope_scaling", Value::Null, Refused("`rope_scaling` is missing")),
        ("glm4_moe", "partial_rotary_factor", json!(1.0), Other),
        ("glm4_moe", "partial_rotary_factor", Value::Null, Same),
        ("glm4_moe", "use_qk_norm", json!(false), Other),
        ("glm4_moe_lite", "partial_rotary_factor", json!(0.5), Refused("expected 1")),
        ("minimax_m2", "rotary_dim", json!(16), Other),
        ("minimax_m2", "rotary_dim", Value::Null, Refused("missing")),
        ("minimax_m2", "partial_rotary_factor", json!(0.5), Same),
        ("minimax_m2", "partial_rotary_factor", json!(0.25), Refused("rotates 6 of 24 channels, `rotary_dim` says 12")),
        ("minimax_m2", "use_qk_norm", json!(false), Same),
        ("minimax_m2", "attn_type_list", json!([1, 0]), Refused("kind 0 is not supported")),
        ("hunyuan_v1_moe", "use_qk_norm", json!(false), Same),
        ("hunyuan_v1_moe", "rope_scaling.factor", json!(4.0), Same),
        ("hunyuan_v1_moe", "rope_scaling.mscale", json!(4.0), Same),
        ("hunyuan_v1_moe", "rope_scaling.alpha", json!(4.0), Other),
        ("hunyuan_v1_moe", "use_cla", json!(true), Refused("true is not supported")),
        ("gpt_oss", "swiglu_limit", json!(3.0), Same), // Without `swiglu_alpha` it is older than the key's effect.
        ("gpt_oss", "swiglu_alpha", json!(1.702), Same),
        ("gpt_oss", "swiglu_alpha", json!(1.0), Other),
        ("gpt_oss", "swiglu_alpha", json!("1.702"), Refused("expected a number")),
        ("gpt_oss", "hidden_act", json!("gelu"), Same),
        ("gpt_oss", "initial_context_length", json!(3), Same),
        ("gpt_oss", "rope_scaling", Value::Null, Refused("missing")),
        ("gpt_oss", "rope_scaling.truncate", json!(true), Other),
        ("gpt_oss", "sliding_window", json!(8), Other),
        ("gpt_oss", "sliding_window", Value::Null, Other),
        ("gpt_oss", "layer_types", Value::Null, Refused("missing")),
        ("dots1", "layer_types", json!(["full_attention", "sliding_attention"]), Refused("`sliding_window`")),
        ("gpt_oss", "layer_types", json!(["full_attention", "full_attention"]), Other),
        (
            "gpt_oss",
            "layer_types",
            json!(["full_attention", "chunked_attention"]),
            Refused("`chunked_attention` is not supported"),
        ),
        ("gpt_oss", "layer_types", json!(["full_attention"]), Refused("a list of 1 words")),
        ("qwen3_next", "full_attention_interval", json!(2), Other),
        (
            "qwen3_next",
            "layer_types",
            json!(["linear_attention", "full_attention", "full_attention"]),
            Refused("does not agree with `full_attention_interval`"),
        ),
        ("qwen3_5_moe", "text_config.partial_rotary_factor", json!(0.5), Same),
        ("qwen3_5_moe", "text_config.rope_parameters.partial_rotary_factor", json!(0.5), Other),
        ("qwen3_5_moe", "text_config.rope_parameters.mrope_section", json!([1, 1, 2]), Same),
        ("qwen3_5_moe", "text_config.rope_parameters.mrope_interleaved", json!(false), Same),
        ("deepseek_v3", "rope_scaling.mscale", json!(0.5), Other),
        ("deepseek_v3", "rope_scaling.mscale", Value::Null, Refused("set without `mscale_all_dim`, or the reverse")),
        ("deepseek_v3", "num_key_value_heads", json!(1), Same),
        ("deepseek_v3", "q_lora_rank", Value::Null, Other),
        ("lfm2_moe", "conv_L_cache", json!(4), Other),
    ]
}

fn general_cases() -> Vec<(&'static str, &'static str, Value, Effect)> {
    vec![
        ("granitemoe", "embedding_multiplier", Value::Null, Refused("`embedding_multiplier`: missing")),
        ("granitemoe", "attention_multiplier", Value::Null, Refused("`attention_multiplier`: missing")),
        ("granitemoe", "residual_multiplier", Value::Null, Refused("`residual_multiplier`: missing")),
        ("granitemoe", "logits_scaling", Value::Null, Refused("`logits_scaling`: missing")),
        ("granitemoe", "logits_scaling", json!(0), Refused("other than 0")),
        ("granitemoe", "logits_scaling", json!(3.0), Other),
        ("granitemoe", "position_embedding_type", json!("rope"), Same),
        ("granitemoe", "position_embedding_type", json!("nope"), Refused("\"nope\" is not supported in granitemoe")),
        ("qwen3_moe", "rms_norm_eps", json!(1e-5), Other),
        ("qwen3_moe", "rms_norm_eps", json!("1e-5"), Refused("expected a number, found \"1e-5\"")),
        ("qwen3_moe", "tie_word_embeddings", json!(true), Other),
        ("qwen3_moe", "num_experts", json!(0), Refused("expected a number above 0")),
        ("qwen3_moe", "mlp_only_layers", json!([0, 1]), Refused("a dense model")),
        ("qwen3_moe", "mlp_only_layers", json!([2]), Refused("names layer 2 of 2")),
        ("qwen3_moe", "num_local_experts", json!(5), Same),
        ("qwen3_moe", "num_local_experts", json!(6), Refused("another name of it")),
        ("qwen3_moe", "num_hidden_layers", json!(1_000_000), Refused("expected at most 4096")),
        ("qwen3_moe", "hidden_size", json!(1_u64 << 60), Refused("expected a whole number")),
        ("qwen3_moe", "use_cache", json!(false), Same),
        ("qwen3_moe", "torch_dtype", json!("float32"), Same),
        ("qwen3_moe", "vision_config", json!({}), Refused("not known in qwen3_moe")),
        ("qwen3_moe", "hidden_act", json!("gelu"), Refused("\"gelu\" is not supported")),
        ("lfm2_moe", "tie_word_embeddings", json!(false), Other),
        ("lfm2_moe", "tie_embedding", json!(true), Same),
        ("qwen3_5_moe", "tie_word_embeddings", json!(true), Refused("`text_config.tie_word_embeddings` is false")),
        ("qwen3_5_moe", "vision_config", Value::Null, Same),
        ("qwen3_5_moe", "audio_config", json!({}), Refused("`audio_config`: not known")),
        (
            "qwen3_moe",
            "quantization_config",
            json!({"quant_method": "gptq", "bits": 4}),
            Refused("GPTQ checkpoints are not read"),
        ),
        ("qwen3_moe", "quantization_config", json!({"quant_method": "awq"}), Refused("AWQ checkpoints are not read")),
        (
            "qwen3_moe",
            "quantization_config",
            json!({"quant_method": "fp8", "weight_block_size": [64, 64]}),
            Refused("expected [128,128]"),
        ),
        ("qwen3_moe", "quantization_config", json!({"quant_method": "fp8"}), Refused("null is not supported")),
        (
            "deepseek_v3-fp8",
            "quantization_config",
            json!({"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_convert": null, "new": null}),
            Same,
        ),
        (
            "kimi_k2-int4",
            "quantization_config.config_groups.group_0.weights.num_bits",
            json!(8),
            Refused("8 is not supported; expected 4"),
        ),
        (
            "kimi_k2-int4",
            "quantization_config.config_groups.group_0.weights.symmetric",
            json!(false),
            Refused("false is not supported"),
        ),
        ("kimi_k2-int4", "quantization_config.format", json!("marlin-24"), Refused("expected \"pack-quantized\"")),
    ]
}

fn set(config: &mut Value, key: &str, value: &Value) {
    let mut at = config;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        let object = at.as_object_mut().unwrap_or_else(|| panic!("{key}: no object above {part}"));
        if parts.peek().is_none() {
            match value {
                Value::Null => object.remove(part),
                value => object.insert(part.into(), value.clone()),
            };
            return;
        }
        at = object.get_mut(part).unwrap_or_else(|| panic!("{key}: no {part}"));
    }
}

#[test]
fn keys_matter_or_not_as_the_reference_says() {
    for (name, key, value, effect) in cases() {
        let mut config = golden_config(name);
        let before = spec(&config).unwrap_or_else(|e| panic!("{name}: {e}"));
        set(&mut config, key, &value);
        let case = format!("{name}: {key} = {value}");
        match (effect, spec(&config)) {
            (Same, Ok(after)) => assert_eq!(after, before, "{case}"),
            (Other, Ok(after)) => assert_ne!(after, before, "{case}"),
            (Refused(text), Err(e)) => assert!(e.contains(text), "{case}: {e}"),
            (Refused(_), Ok(_)) => panic!("{case}: accepted"),
            (Same | Other, Err(e)) => panic!("{case}: {e}"),
        }
    }
}

/// A key that is missing never changes a model in silence: the spec is the same (the key was idle, or its documented
/// default is what it said), or it is refused; the rest are the mechanisms that a key turns on.
#[test]
fn a_missing_key_is_never_a_silent_change() {
    const SWITCHES: &[&str] = &[
        // Mechanisms that are off without their key.
        "n_shared_experts",
        "n_group",
        "topk_group",
        "q_lora_rank",
        "sliding_window",
        "rope_scaling",
        // Documented defaults that differ from what these configs say.
        "attention_bias",
        "lm_head_bias",
        "tie_word_embeddings",
        "mlp_only_layers",
        "decoder_sparse_step",
        "num_key_value_heads",
        "head_dim",
        "eos_token_id",
        "bos_token_id",
        "topk_method",
        "rms_norm_eps",
    ];
    for (name, config) in golden_configs() {
        let before = spec(&config).expect("a golden config");
        let (inner, parent) = match config.get("text_config") {
            Some(inner) => (inner.clone(), "text_config."),
            None => (config.clone(), ""),
        };
        for key in inner.as_object().expect("an object").keys() {
            let mut less = config.clone();
            set(&mut less, &format!("{parent}{key}"), &Value::Null);
            match spec(&less) {
                Ok(after) if after == before => {}
                Ok(_) => assert!(SWITCHES.contains(&key.as_str()), "{name}: {key} is missing and nobody says so"),
                Err(e) => assert!(e.contains(key.as_str()), "{name}: without {key}: {e}"),
            }
        }
    }
}

/// Null replaces a default in the reference and mostly counts as false there: it is no other word for a missing key.
#[test]
fn null_is_refused_where_a_missing_key_means_something_else() {
    let refused = [
        ("deepseek_v3", "rope_interleave"),
        ("deepseek_v3", "rope_scaling.truncate"),
        ("glm4_moe", "norm_topk_prob"),
        ("glm4_moe", "partial_rotary_factor"),
        ("qwen3_next", "norm_topk_prob"),
        ("gpt_oss", "attention_bias"),
        ("granitemoe", "position_embedding_type"),
        ("minimax_m2", "partial_rotary_factor"),
        ("lfm2_moe", "tie_word_embeddings"),
        ("lfm2_moe", "use_expert_bias"),
        ("ernie4_5_moe", "tie_word_embeddings"),
        ("ernie4_5_moe", "moe_layer_interval"),
        ("qwen3_moe", "decoder_sparse_step"),
    ];
    let as_good = [
        ("qwen3_moe", "attention_bias"),
        ("qwen3_moe", "mlp_only_layers"),
        ("qwen3_moe", "use_sliding_window"),
        ("mixtral", "tie_word_embeddings"),
        ("dots1", "sliding_window"),
        ("olmoe", "clip_qkv"),
    ];
    let with_null = |name: &str, key: &str| {
        let mut config = golden_config(name);
        let (parent, last) = key.split_once('.').map_or(("", key), |(parent, last)| (parent, last));
        let object = if parent.is_empty() { &mut config } else { &mut config[parent] };
        object[last] = Value::Null;
        spec(&config)
    };
    for (name, key) in refused {
        let error = with_null(name, key).expect_err(key);
        assert!(error.contains(key), "{name}: {key}: {error}");
    }
    for (name, key) in as_good {
        assert_eq!(with_null(name, key), spec(&golden_config(name)), "{name}: {key}");
    }
}

/// The layers from `max_window_layers` on have the window where no list says which have one.
#[test]
fn windows_begin_at_a_layer() {
    let mut config = golden_config("dots1");
    config["sliding_window"] = json!(8);
    config["max_window_layers"] = json!(1);
    let windows = |config: &Value| -> Vec<Option<usize>> {
        let gqa = |layer: &LayerSpec| match &layer.mixer {
            Mixer::Gqa(gqa) => gqa.window,
            _ => unreachable!("grouped-query attention in every layer"),
        };
        spec(config).expect("a spec").layers.iter().map(gqa).collect()
    };
    assert_eq!(windows(&config), [None, Some(8)]);
    config["sliding_window"] = Value::Null;
    assert_eq!(windows(&config), [None, None]);
    config.as_object_mut().expect("an object").remove("sliding_window");
    assert_eq!(windows(&config), [None, Some(4096)]);
}

/// The clamp is a key's where the config is of the generation that writes both, and the family's in older ones.
#[test]
fn the_clamp_is_the_configs_where_the_config_states_the_activation() {
    let act = |limit: Value, alpha: Value| {
        let mut config = golden_config("gpt_oss");
        set(&mut config, "swiglu_limit", &limit);
        set(&mut config, "swiglu_alpha", &alpha);
        plan(&config).map(|plan| plan.spec.moe_layers().next().expect("a layer with experts").1.act)
    };
    let clamped = |limit, alpha| Activation::ClampedSwiGlu { limit, alpha };
    assert_eq!(act(json!(3.0), json!(1.5)).expect("a spec"), clamped(3.0, 1.5));
    assert_eq!(act(Value::Null, json!(1.5)).expect("a spec"), clamped(7.0, 1.5));
    assert_eq!(act(json!(3.0), Value::Null).expect("a spec"), clamped(7.0, 1.702));
    let error = act(json!(0), json!(1.5)).expect_err("a clamp to nothing").to_string();
    assert!(error.contains("`swiglu_limit`: expected a number above 0"), "{error}");
}

#[test]
fn unknown_keys_are_named_and_can_be_ignored() {
    for (name, mut config) in golden_configs() {
        let before = spec(&config).expect("a golden config");
        let key = if config.get("text_config").is_some() { "text_config.new_gate" } else { "new_gate" };
        set(&mut config, key, &json!(0.5));
        let error = plan(&config).expect_err("an unknown key");
        assert_eq!(error.item.as_deref(), Some(key), "{name}");
        assert!(error.hint.expect("a hint").contains("--ignore-config"), "{name}");
        let ignore = OpenOptions { ignore_config: vec![key.into()] };
        let mut past = families::spec_from_config(&config.to_string(), &ignore).expect("ignored").spec;
        past.context = 0;
        assert_eq!(past, before, "{name}");
    }
}

#[test]
fn a_wrapper_and_its_text_config_are_one_model() {
    let wrapper = golden_config("qwen3_5_moe");
    let mut outer = spec(&wrapper).expect("a wrapper");
    let mut bare = spec(&wrapper["text_config"]).expect("a text config");
    for spec in [&mut outer, &mut bare] {
        spec.tokens.eos_source.clear();
    }
    assert_eq!(outer, bare);
}

#[test]
fn families_that_people_will_try_are_refused_by_name() {
    for name in ["llama4", "deepseek_v32", "glm_moe_dsa", "qwen3_vl_moe", "kimi_k25", "gemma4", "qwen3", "dbrx"] {
        let error = plan(&json!({"model_type": name})).expect_err(name);
        assert!(error.fault.starts_with(&format!("family {name} is not read: ")), "{error}");
        assert!(!error.fault.contains("not a family that is known"), "{error}");
        assert!(error.hint.expect("a hint").contains("qwen3_moe"));
    }
    let error = plan(&json!({})).expect_err("no type");
    assert_eq!(error.to_string(), "config.json: `model_type`: expected a family's name, found null");
}

/// Sizes whose products would overflow end in a refusal.
#[test]
fn sizes_beyond_any_model_are_refused() {
    for (_, config) in golden_configs() {
        let (inner, parent) = match config.get("text_config") {
            Some(inner) => (inner.clone(), "text_config."),
            None => (config.clone(), ""),
        };
        for key in inner.as_object().expect("an object").keys() {
            for value in [
                json!(1_u64 << 28),
                json!((1_u64 << 28) - 2),
                json!(u64::MAX),
                json!(-1),
                json!(0),
                json!([]),
                json!("x"),
                json!({}),
                json!(1e300),
                json!(true),
            ] {
                let mut other = config.clone();
                set(&mut other, &format!("{parent}{key}"), &value);
                let _ = spec(&other).inspect(|spec| {
                    let _ = counts(spec);
                });
            }
        }
    }
}
