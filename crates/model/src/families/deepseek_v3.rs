//! DeepSeek-V3, R1 and V3.1, and the models of that architecture: Kimi-K2, Moonlight. Defaults and rules: transformers
//! 5.17, `DeepseekV3Config` and `modeling_deepseek_v3`.

use super::family::{Arch, Family, Flag, GroupRule, Marks, MixerRule, NormalRule, PLAIN, SharedRule, V3_SUM};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::spec::{RopePairing, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "deepseek_v3",
    model_types: &["deepseek_v3", "kimi_k2"],
    marks: Marks {
        has: &[".self_attn.kv_a_proj_with_mqa.", ".mlp.gate.e_score_correction_bias"],
        lacks: &[".indexer."],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::LATENT,
        names::DEEPSEEK_MOE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "DeepseekV3Config"),
            need(&["norm_topk_prob"], Field::NormTopk),
            // Where they are missing the reference takes 8 groups and keeps 4.
            need(&["n_group"], Field::Groups),
            need(&["topk_group"], Field::GroupsKept),
            may(&["num_nextn_predict_layers", "num_mtp_layers"], Field::PredictionLayers),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("moe_layer_freq", &[Lit::Int(1)]),
        only("rope_interleave", &[Lit::Bool(true)]),
        // Always sigmoid and groups, whatever they say; the bias tensor confirms it.
        only("scoring_func", &[Lit::Str("sigmoid"), Lit::Str("softmax")]),
        only("topk_method", &[Lit::Str("noaux_tc"), Lit::Str("greedy"), Lit::Str("group_limited_greedy")]),
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
