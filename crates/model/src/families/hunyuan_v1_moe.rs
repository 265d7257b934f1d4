//! Hunyuan-A13B. Defaults and rules: transformers 5.17, `HunYuanMoEV1Config` and `modeling_hunyuan_v1_moe`; the release
//! keeps lists with one value a layer.

use super::family::{Arch, Family, Flag, Marks, NormalRule, PLAIN, SUM, SharedRule};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::role::Part;
use crate::spec::QkNorm;

pub(super) const FAMILY: Family = Family {
    name: "hunyuan_v1_moe",
    model_types: &["hunyuan_v1_moe", "hunyuan"],
    marks: Marks { has: &[".self_attn.query_layernorm.", ".mlp.gate.wg."], lacks: &[".mamba."] },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "HunYuanMoEV1Config"),
            // As many as query heads where it is absent.
            may(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim", "attention_head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "HunYuanMoEV1Config"),
            need(&["num_experts", "num_local_experts"], Field::Experts),
            need(&["moe_topk", "num_experts_per_tok"], Field::TopK),
            need(&["intermediate_size"], Field::ExpertWidth),
            may(&["moe_intermediate_size"], Field::ExpertWidthToo),
            or(&["num_shared_expert"], Field::SharedCount, Lit::Int(1), "modeling_hunyuan_v1_moe"),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("mlp_bias", &[Lit::Bool(false)]),
        only("moe_layer_num_skipped", &[Lit::Int(0)]),
        only("norm_type", &[Lit::Str("rms")]),
        only("position_embedding_xdrope", &[Lit::Bool(false)]),
        only("use_cla", &[Lit::Bool(false)]),
        only("use_mixed_mlp_moe", &[Lit::Bool(true)]),
        only("use_mla", &[Lit::Bool(false)]),
        only("use_rotary_pos_emb", &[Lit::Bool(true)]),
    ],
    // The reference always normalises, never scales, never groups, and always has the norms.
    idle: &[
        &["group_limited_greedy", "norm_topk_prob", "routed_scaling_factor", "use_qk_norm"],
        &[
            "add_classification_head",
            "cla_share_factor",
            "class_num",
            "dense_list",
            "eod_token_id",
            "im_end_id",
            "im_newline_id",
            "im_start_id",
            "kv_lora_rank",
            "mask_init_id",
            "moe_drop_tokens",
            "moe_random_routing_dropped_token",
            "org_vocab_size",
            "pad_id",
            "pool_type",
            "pretraining_tp",
            "q_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "text_end_id",
            "text_start_id",
            "unpad_fn",
            "v_head_dim",
        ],
    ],
    arch: Arch {
        qk_norm: (QkNorm::HeadAfterRope, Flag::Yes),
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        alpha: true,
        normalise: NormalRule::Always(SUM),
        shared: SharedRule::Plain,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        &[
            ("self_attn.query_layernorm.weight", Part::QNorm),
            ("self_attn.key_layernorm.weight", Part::KNorm),
            ("mlp.gate.wg.weight", Part::Router),
            ("mlp.shared_mlp.gate_proj.weight", Part::SharedGateProj),
            ("mlp.shared_mlp.up_proj.weight", Part::SharedUpProj),
            ("mlp.shared_mlp.down_proj.weight", Part::SharedDownProj),
        ],
    ],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
