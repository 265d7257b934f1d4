//! Qwen2 MoE (Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B). Defaults and rules: transformers 5.17, `Qwen2MoeConfig` and
//! `modeling_qwen2_moe`.

use super::family::{Arch, Family, Flag, Marks, NormalRule, PLAIN, SUM, SharedRule};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};

pub(super) const FAMILY: Family = Family {
    name: "qwen2_moe",
    model_types: &["qwen2_moe"],
    marks: Marks {
        has: &[".mlp.shared_expert.", ".mlp.shared_expert_gate."],
        lacks: &[".self_attn.q_norm.", ".linear_attn."],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::QWEN_MOE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "Qwen2MoeConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim"], Field::HeadDim),
            or(&["qkv_bias"], Field::AttentionBias, Lit::Bool(true), "Qwen2MoeConfig"),
            need(&["norm_topk_prob"], Field::NormTopk),
            need(&["shared_expert_intermediate_size"], Field::SharedWidth),
        ],
    ],
    fixed: &[only("hidden_act", &[Lit::Str("silu")]), only("use_sliding_window", &[Lit::Bool(false)])],
    idle: &[&["max_window_layers", "sliding_window"]],
    arch: Arch { qkv_bias: Flag::Key, normalise: NormalRule::ByKey(SUM), shared: SharedRule::Gated, ..PLAIN },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[names::NORMS, names::GQA, names::DENSE, names::ROUTER, names::SHARED_GATED],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
