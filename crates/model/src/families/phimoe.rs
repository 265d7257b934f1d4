//! Phi-3.5-MoE. Defaults and rules: transformers 5.17, `PhimoeConfig` and `modeling_phimoe`.

use super::family::{Arch, Family, Flag, Marks, PLAIN, WindowRule};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::role::{Part, Role};
use crate::spec::{NormKind, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "phimoe",
    model_types: &["phimoe"],
    marks: Marks { has: &[".input_layernorm.bias"], lacks: &["e_score_correction_bias"] },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "PhimoeConfig"),
            or(&["lm_head_bias"], Field::HeadBias, Lit::Bool(false), "PhimoeConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "PhimoeConfig"),
            may(&["sliding_window"], Field::Window),
            may(&["original_max_position_embeddings"], Field::OriginalContext),
            need(&["num_local_experts"], Field::Experts),
            // The router takes two rounds, whatever `num_experts_per_tok` says.
            or(&["sparse mixer rounds"], Field::TopK, Lit::Int(2), "modeling_phimoe"),
            need(&["intermediate_size"], Field::ExpertWidth),
            need(&["router_jitter_noise"], Field::RouterJitter),
        ],
    ],
    fixed: &[only("hidden_act", &[Lit::Str("silu")])],
    idle: &[&["hidden_dropout", "input_jitter_noise", "num_experts_per_tok"]],
    arch: Arch {
        norm: NormKind::LayerNorm,
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        window: WindowRule::All,
        score: RouterScore::SparseMixer { jitter: 0.0 },
        head_bias: Flag::Key,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: &[
        ("embed_tokens.weight", Role::Embedding),
        ("norm.weight", Role::FinalNorm),
        ("norm.bias", Role::FinalNormBias),
        ("lm_head.weight", Role::Head),
        ("lm_head.bias", Role::HeadBias),
    ],
    tensors: &[
        names::NORMS,
        &[
            ("input_layernorm.bias", Part::MixerNormBias),
            ("post_attention_layernorm.bias", Part::MlpNormBias),
            ("mlp.router.weight", Part::Router),
        ],
        names::GQA,
        names::BLOCK_ROUTER,
    ],
    packed: &[],
    experts: names::BLOCK_EXPERTS,
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
