//! What tests of several files share.

use smoe_model::spec::ModelSpec;
use smoe_model::{OpenOptions, families};

/// Four layers of 32 experts of 128 rows, four a token: a rank bound of 1024.
pub(crate) fn spec() -> ModelSpec {
    let config = r#"{
        "model_type": "qwen3_moe", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 512,
        "moe_intermediate_size": 128, "num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": true,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 1e4, "rope_scaling": null,
        "max_position_embeddings": 2048, "tie_word_embeddings": false, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "attention_bias": false, "eos_token_id": 4093
    }"#;
    families::spec_from_config(config, &OpenOptions::default()).expect("a config").spec
}
