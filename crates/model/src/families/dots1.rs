//! dots.llm1 (142B-A14B). Defaults and rules: transformers 5.17, `Dots1Config` and `modeling_dots1`.

use super::family::{Arch, Family, Flag, GroupRule, Marks, NormalRule, PLAIN, SharedRule, V3_SUM, WindowRule};
use super::names;
use crate::config::{Field, Lit, may, need, only, or, or_off};
use crate::spec::{QkNorm, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "dots1",
    model_types: &["dots1"],
    marks: Marks {
        has: &[".self_attn.q_norm.weight", ".mlp.gate.e_score_correction_bias", ".mlp.experts."],
        lacks: &[".self_attn.kv_a_proj_with_mqa."],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        names::DEEPSEEK_MOE,
        names::GROUPS,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "Dots1Config"),
            need(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "Dots1Config"),
            // Without `layer_types` the layers from `max_window_layers` on have the window, whatever
            // `use_sliding_window` says.
            or_off(&["sliding_window"], Field::Window, Lit::Int(4096), "Dots1Config"),
            or(&["max_window_layers"], Field::WindowFrom, Lit::Int(62), "Dots1Config"),
            may(&["layer_types"], Field::LayerTypes),
            need(&["norm_topk_prob"], Field::NormTopk),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("moe_layer_freq", &[Lit::Int(1)]),
        only("use_sliding_window", &[Lit::Bool(false)]),
        // Older and newer releases spell one thing in two ways.
        only("scoring_func", &[Lit::Str("sigmoid"), Lit::Str("noaux_tc")]),
        only("topk_method", &[Lit::Str("noaux_tc")]),
    ],
    idle: &[&["pretraining_tp"]],
    arch: Arch {
        qk_norm: (QkNorm::HeadBeforeRope, Flag::Yes),
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        window: WindowRule::ByLayerType,
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
    skips: &[names::ROTARY_BUFFERS],
};
