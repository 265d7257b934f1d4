//! Families that people will try and that are not read, with the reason.

/// Why a `model_type` is not read, where that is known.
pub(super) fn why(model_type: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(types, _)| types.contains(&model_type)).map(|(_, why)| *why)
}

/// Types and reason.
type Refused = (&'static [&'static str], &'static str);

const REFUSED: &[Refused] = &[
    (&["llama4", "llama4_text"], "its chunked attention and its scaling of expert inputs are not implemented"),
    (&["deepseek_v32", "glm_moe_dsa"], "its sparse attention (the indexer) is not implemented"),
    (&["deepseek_v4"], "its compressed attention and its hyper-connections are not implemented"),
    (
        &["deepseek_vl_v2", "kimi_vl", "kimi_k25"],
        "a multimodal wrapper whose text part is not read; use a text-only release",
    ),
    (&["kimi_linear"], "its linear attention is not implemented"),
    (
        &[
            "ernie4_5_moe_vl",
            "ernie4_5_vl_moe",
            "glm4v_moe",
            "glm4v_moe_text",
            "qwen3_omni_moe",
            "qwen3_vl_moe",
            "qwen3_vl_moe_text",
        ],
        "a multimodal model whose text part is not read; use a text-only release",
    ),
    (
        &["minimax", "minimax_m1", "minimax_text_01", "MiniMaxText01", "MiniMaxM1"],
        "its lightning attention is not implemented",
    ),
    (
        &["granitemoehybrid", "granitemoeshared", "granitemoe_swa", "nemotron_h", "bamba", "jamba", "zamba2"],
        "its mixers or its shared experts are not implemented",
    ),
    (&["gemma4", "gemma4_text"], "its parallel dense and expert branches are not implemented"),
    (
        &[
            "afmoe",
            "arctic",
            "bailing_moe",
            "bailing_moe_v2",
            "dbrx",
            "deepseek",
            "exaone_moe",
            "flex_olmo",
            "grok",
            "grok-1",
            "hy_v3",
            "jetmoe",
            "longcat_flash",
            "mimo_v2_flash",
            "nllb-moe",
            "openmoe",
            "qwen3_5_moe_vl",
            "seed_oss_moe",
            "solar_open",
            "step3",
            "step3p5",
            "switch_transformers",
        ],
        "its mechanisms are not implemented",
    ),
    (
        &[
            "cohere",
            "cohere2",
            "ernie4_5",
            "falcon",
            "gemma",
            "gemma2",
            "gemma3",
            "gemma3_text",
            "glm",
            "glm4",
            "gpt2",
            "gpt_neox",
            "granite",
            "hunyuan_v1_dense",
            "lfm2",
            "llama",
            "ministral3",
            "mistral",
            "mistral3",
            "olmo2",
            "olmo3",
            "phi",
            "phi3",
            "qwen2",
            "qwen3",
            "qwen3_5",
            "qwen3_5_text",
            "smollm3",
            "starcoder2",
        ],
        "a dense model, which smoe is not for",
    ),
];
