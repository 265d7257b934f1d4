//! GLM-4.7-Flash: latent attention with GLM's router. Defaults and rules: transformers 5.17, `Glm4MoeLiteConfig` and
//! `modeling_glm4_moe_lite`.

use super::family::{Arch, Family, Flag, GroupRule, Marks, MixerRule, NormalRule, PLAIN, SharedRule, V3_SUM};
use super::names;
use crate::config::{Field, Lit, may, need, only, or, unless};
use crate::spec::{RopePairing, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "glm4_moe_lite",
    model_types: &["glm4_moe_lite"],
    marks: Marks {
        has: &[".self_attn.kv_a_proj_with_mqa.", ".mlp.gate.e_score_correction_bias"],
        lacks: &[".indexer."],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::LATENT,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "Glm4MoeLiteConfig"),
            may(&["partial_rotary_factor"], Field::PartialRotary),
            need(&["intermediate_size"], Field::DenseWidth),
            unless(&["first_k_dense_replace"], Field::FirstDense, Field::MlpTypes),
            may(&["mlp_layer_types"], Field::MlpTypes),
            need(&["n_routed_experts", "num_local_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["moe_intermediate_size"], Field::ExpertWidth),
            need(&["n_shared_experts"], Field::SharedCount),
            need(&["routed_scaling_factor"], Field::RouterScale),
            or(&["norm_topk_prob"], Field::NormTopk, Lit::Bool(true), "Glm4MoeLiteConfig"),
            or(&["n_group"], Field::Groups, Lit::Int(1), "Glm4MoeLiteConfig"),
            or(&["topk_group"], Field::GroupsKept, Lit::Int(1), "Glm4MoeLiteConfig"),
            may(&["num_nextn_predict_layers", "num_mtp_layers"], Field::PredictionLayers),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("moe_layer_freq", &[Lit::Int(1)]),
        only("rope_interleave", &[Lit::Bool(true)]),
        only("scoring_func", &[Lit::Str("sigmoid")]),
        only("topk_method", &[Lit::Str("noaux_tc")]),
    ],
    idle: &[names::LATENT_IDLE],
    arch: Arch {
        mixer: MixerRule::Mla,
        pairing: RopePairing::Neighbours,
        score: RouterScore::Sigmoid,
        selection_bias: Flag::Yes,
        groups: GroupRule::Best(2),
        normalise: NormalRule::ByKey(V3_SUM),
        shared: SharedRule::Plain,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[names::NORMS, names::MLA, names::DENSE, names::ROUTER, names::SELECTION_BIAS, names::SHARED],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::LAYERS_PAST, names::ROTARY_BUFFERS],
};
