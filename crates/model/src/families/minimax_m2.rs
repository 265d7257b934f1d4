//! MiniMax-M2 and M2.5. Defaults and rules: transformers 5.17, `MiniMaxM2Config` and `modeling_minimax_m2`; the rotated
//! width is `rotary_dim` of the released config.

use super::family::{Arch, Family, Flag, Marks, NormalRule, PLAIN, SUM};
use super::names;
use crate::config::{Field, Lit, may, may_not_null, need, only, or, unless};
use crate::role::Part;
use crate::spec::{QkNorm, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "minimax_m2",
    model_types: &["minimax_m2"],
    marks: Marks {
        has: &[".self_attn.q_norm.weight", "e_score_correction_bias"],
        lacks: &[".mlp.shared_experts.", ".self_attn.kv_a_proj_with_mqa.", ".linear_attn."],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "MiniMaxM2Config"),
            need(&["num_key_value_heads"], Field::KvHeads),
            need(&["head_dim"], Field::HeadDim),
            unless(&["rotary_dim"], Field::RotaryDim, Field::RopeParameters),
            // Null keeps the library from the width in `rotary_dim`: it then rotates whole heads.
            may_not_null(&["partial_rotary_factor"], Field::PartialRotary),
            may(&["attn_type_list"], Field::AttentionKinds),
            need(&["num_local_experts", "num_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["intermediate_size"], Field::ExpertWidth),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("qk_norm_type", &[Lit::Str("per_layer")]),
        only("shared_intermediate_size", &[Lit::Int(0)]),
        only("layernorm_full_attention_beta", &[Lit::Num(1.0)]),
        only("layernorm_linear_attention_beta", &[Lit::Num(1.0)]),
        only("layernorm_mlp_beta", &[Lit::Num(1.0)]),
        // Always sigmoid, whatever it says; the bias tensor confirms it.
        only("scoring_func", &[Lit::Str("sigmoid"), Lit::Str("softmax")]),
    ],
    idle: &[&[
        "mlp_intermediate_size",
        "mtp_transformer_layers",
        "num_mtp_modules",
        "router_jitter_noise",
        "shared_moe_mode",
        "sliding_window",
        "use_mtp",
        "use_qk_norm",
        "use_routing_bias",
    ]],
    arch: Arch {
        qk_norm: (QkNorm::FullWidth, Flag::Yes),
        partial: true,
        score: RouterScore::Sigmoid,
        selection_bias: Flag::Yes,
        normalise: NormalRule::Always(SUM),
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        names::QK_NORM,
        names::BLOCK_ROUTER,
        &[
            ("block_sparse_moe.e_score_correction_bias", Part::RouterSelectionBias),
            ("mlp.e_score_correction_bias", Part::RouterSelectionBias),
        ],
    ],
    packed: &[],
    experts: names::BLOCK_EXPERTS,
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
