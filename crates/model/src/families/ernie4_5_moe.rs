//! ERNIE 4.5 (21B-A3B, 300B-A47B). Defaults and rules: transformers 5.17, `Ernie4_5_MoeConfig` and
//! `modeling_ernie4_5_moe`.

use super::family::{Arch, Family, Flag, Marks, NormalRule, PLAIN, SharedRule, Skip, SkipRule};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::role::Part;
use crate::spec::RopePairing;

pub(super) const FAMILY: Family = Family {
    name: "ernie4_5_moe",
    model_types: &["ernie4_5_moe"],
    marks: Marks { has: &["moe_statics.e_score_correction_bias"], lacks: &[] },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(true), "Ernie4_5_MoeConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim"], Field::HeadDim),
            need(&["intermediate_size"], Field::DenseWidth),
            need(&["moe_num_experts", "num_experts"], Field::Experts),
            need(&["moe_k", "num_experts_per_tok"], Field::TopK),
            need(&["moe_intermediate_size"], Field::ExpertWidth),
            need(&["moe_num_shared_experts"], Field::SharedCount),
            need(&["moe_layer_start_index"], Field::MoeFrom),
            or(&["moe_layer_end_index"], Field::MoeTo, Lit::Int(-1), "Ernie4_5_MoeConfig"),
            or(&["moe_layer_interval"], Field::MoeEvery, Lit::Int(1), "Ernie4_5_MoeConfig"),
            or(&["moe_norm_min"], Field::NormFloor, Lit::Num(1e-12), "Ernie4_5_MoeConfig"),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("use_bias", &[Lit::Bool(false)]),
        only("moe_use_aux_free", &[Lit::Bool(true)]),
    ],
    // Prediction layers lie beside the layers, under `model.mtp_*`.
    idle: &[&["moe_capacity", "moe_gate", "num_nextn_predict_layers"]],
    arch: Arch {
        pairing: RopePairing::Neighbours,
        selection_bias: Flag::Yes,
        normalise: NormalRule::Floor,
        shared: SharedRule::Plain,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        names::DENSE,
        names::ROUTER,
        names::SHARED,
        &[
            ("mlp.moe_statics.e_score_correction_bias", Part::RouterSelectionBias),
            ("mlp.gate.moe_statics.e_score_correction_bias", Part::RouterSelectionBias),
        ],
    ],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[Skip { rule: "multi-token prediction", what: SkipRule::Prefix(&["model.mtp_"]) }, names::ROTARY_BUFFERS],
};
