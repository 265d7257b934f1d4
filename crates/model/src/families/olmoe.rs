//! OLMoE (1B-7B). Defaults and rules: transformers 5.17, `OlmoeConfig` and `modeling_olmoe`.

use super::family::{Arch, Family, Flag, Marks, NormalRule, PLAIN, SUM};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::spec::QkNorm;

pub(super) const FAMILY: Family = Family {
    name: "olmoe",
    model_types: &["olmoe"],
    marks: Marks {
        has: &[".self_attn.q_norm.weight", ".mlp.experts."],
        lacks: &[".linear_attn.", "e_score_correction_bias", ".mlp.shared_expert"],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            or(&["rms_norm_eps"], Field::NormEps, Lit::Num(1e-5), "OlmoeConfig"),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "OlmoeConfig"),
            // As many as query heads where it is absent.
            may(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "OlmoeConfig"),
            may(&["clip_qkv"], Field::ClipQkv),
            need(&["num_experts", "num_local_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["intermediate_size"], Field::ExpertWidth),
            need(&["norm_topk_prob"], Field::NormTopk),
        ],
    ],
    fixed: &[only("hidden_act", &[Lit::Str("silu")])],
    idle: &[],
    arch: Arch {
        // Over all heads together, before the split.
        qk_norm: (QkNorm::FullWidth, Flag::Yes),
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        normalise: NormalRule::ByKey(SUM),
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[names::NORMS, names::GQA, names::QK_NORM, names::ROUTER],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
