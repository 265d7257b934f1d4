//! Qwen3 MoE (Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder). Defaults and rules: transformers 5.17, `Qwen3MoeConfig` and
//! `modeling_qwen3_moe`.

use super::family::{Arch, Family, Flag, Marks, NormalRule, PLAIN, SUM};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::spec::QkNorm;

pub(super) const FAMILY: Family = Family {
    name: "qwen3_moe",
    model_types: &["qwen3_moe"],
    marks: Marks {
        has: &[".self_attn.q_norm.weight", ".mlp.experts."],
        lacks: &[".linear_attn.", "e_score_correction_bias", ".self_attn.sinks"],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::QWEN_MOE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "Qwen3MoeConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            // hidden / heads where it is absent, as in the reference; every release states it.
            may(&["head_dim"], Field::HeadDim),
            or(&["attention_bias", "qkv_bias"], Field::AttentionBias, Lit::Bool(false), "Qwen3MoeConfig"),
            need(&["norm_topk_prob"], Field::NormTopk),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("use_sliding_window", &[Lit::Bool(false)]),
        // Qwen3-Coder spells out what the family does anyway.
        only("use_qk_norm", &[Lit::Bool(true)]),
        only("shared_expert_intermediate_size", &[Lit::Int(0)]),
    ],
    idle: &[&["max_window_layers", "sliding_window"]],
    arch: Arch {
        qk_norm: (QkNorm::HeadBeforeRope, Flag::Yes),
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        normalise: NormalRule::ByKey(SUM),
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[names::NORMS, names::GQA, names::QK_NORM, names::DENSE, names::ROUTER],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
