//! GLM-4.5, 4.6 and 4.5-Air. Defaults and rules: transformers 5.17, `Glm4MoeConfig` and `modeling_glm4_moe`.

use super::family::{Arch, Family, Flag, GroupRule, Marks, NormalRule, PLAIN, SharedRule, V3_SUM};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::spec::{QkNorm, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "glm4_moe",
    model_types: &["glm4_moe"],
    marks: Marks {
        has: &[".self_attn.q_proj.weight", ".mlp.gate.e_score_correction_bias", ".mlp.shared_experts."],
        lacks: &[".self_attn.kv_a_proj_with_mqa."],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::DEEPSEEK_MOE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "Glm4MoeConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            // hidden / heads where it is absent, as in the reference; every release states it.
            may(&["head_dim"], Field::HeadDim),
            need(&["attention_bias"], Field::AttentionBias),
            need(&["use_qk_norm"], Field::QkNorm),
            or(&["partial_rotary_factor"], Field::PartialRotary, Lit::Num(0.5), "Glm4MoeConfig"),
            or(&["norm_topk_prob"], Field::NormTopk, Lit::Bool(true), "Glm4MoeConfig"),
            or(&["n_group"], Field::Groups, Lit::Int(1), "Glm4MoeConfig"),
            or(&["topk_group"], Field::GroupsKept, Lit::Int(1), "Glm4MoeConfig"),
            may(&["num_nextn_predict_layers", "num_mtp_layers"], Field::PredictionLayers),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("scoring_func", &[Lit::Str("sigmoid")]),
        only("topk_method", &[Lit::Str("noaux_tc")]),
    ],
    idle: &[],
    arch: Arch {
        qk_norm: (QkNorm::HeadBeforeRope, Flag::Key),
        qkv_bias: Flag::Key,
        partial: true,
        score: RouterScore::Sigmoid,
        selection_bias: Flag::Yes,
        groups: GroupRule::Best(2),
        normalise: NormalRule::ByKey(V3_SUM),
        shared: SharedRule::Plain,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        names::QK_NORM,
        names::DENSE,
        names::ROUTER,
        names::SELECTION_BIAS,
        names::SHARED,
    ],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::LAYERS_PAST, names::ROTARY_BUFFERS],
};
