//! DeepSeek-V2 (236B-A21B, Lite). Defaults and rules: transformers 5.17, `DeepseekV2Config` and `modeling_deepseek_v2`.

use super::family::{Arch, Family, GroupRule, Marks, MixerRule, PLAIN, SharedRule};
use super::names;
use crate::config::{Field, Lit, need, only, or};
use crate::spec::RopePairing;

pub(super) const FAMILY: Family = Family {
    name: "deepseek_v2",
    model_types: &["deepseek_v2"],
    marks: Marks { has: &[".self_attn.kv_a_proj_with_mqa."], lacks: &["e_score_correction_bias", ".indexer."] },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::LATENT,
        names::DEEPSEEK_MOE,
        names::GROUPS,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "DeepseekV2Config"),
            or(&["topk_method"], Field::GroupMethod, Lit::Str("greedy"), "DeepseekV2Config"),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("moe_layer_freq", &[Lit::Int(1)]),
        only("mlp_bias", &[Lit::Bool(false)]),
        // Always softmax, whatever it says.
        only("scoring_func", &[Lit::Str("softmax"), Lit::Str("sigmoid")]),
    ],
    // The reference does not normalise, whatever `norm_topk_prob` says.
    idle: &[names::LATENT_IDLE, &["norm_topk_prob"]],
    arch: Arch {
        mixer: MixerRule::Mla,
        pairing: RopePairing::Neighbours,
        groups: GroupRule::ByMethod,
        shared: SharedRule::Plain,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[names::NORMS, names::MLA, names::DENSE, names::ROUTER, names::SHARED],
    packed: &[],
    experts: &[names::EACH, names::STACKED],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
