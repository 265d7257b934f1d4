//! Qwen3-Next (80B-A3B): gated delta nets with gated attention in every fourth layer, projections packed by key head.
//! Defaults and rules: transformers 5.17, `Qwen3NextConfig` and `modeling_qwen3_next`.

use super::family::{Arch, Family, Flag, Marks, MixerRule, NormalRule, PLAIN, Packed, SUM, SharedRule};
use super::names;
use crate::config::{Field, Lit, need, only, or};
use crate::spec::{NormKind, QkNorm};

pub(super) const FAMILY: Family = Family {
    name: "qwen3_next",
    model_types: &["qwen3_next"],
    marks: Marks { has: &[".linear_attn.in_proj_qkvz."], lacks: &[".linear_attn.in_proj_z."] },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::QWEN_MOE,
        names::DELTA_NET,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "Qwen3NextConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            need(&["head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "Qwen3NextConfig"),
            or(&["partial_rotary_factor"], Field::PartialRotary, Lit::Num(0.25), "Qwen3NextConfig"),
            or(&["norm_topk_prob"], Field::NormTopk, Lit::Bool(true), "Qwen3NextConfig"),
            need(&["shared_expert_intermediate_size"], Field::SharedWidth),
        ],
    ],
    fixed: &[only("hidden_act", &[Lit::Str("silu")]), only("use_sliding_window", &[Lit::Bool(false)])],
    idle: &[&["max_window_layers", "sliding_window"]],
    arch: Arch {
        norm: NormKind::RmsUnitOffset,
        mixer: MixerRule::DeltaNet,
        qk_norm: (QkNorm::HeadBeforeRope, Flag::Yes),
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        output_gate: true,
        partial: true,
        normalise: NormalRule::ByKey(SUM),
        shared: SharedRule::Gated,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        names::QK_NORM,
        names::DELTA,
        names::DENSE,
        names::ROUTER,
        names::SHARED_GATED,
    ],
    packed: &[
        ("linear_attn.in_proj_qkvz.weight", Packed::QkvzPerHead),
        ("linear_attn.in_proj_ba.weight", Packed::BaPerHead),
    ],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::MTP, names::ROTARY_BUFFERS],
};
