//! gpt-oss (20B, 120B), in bf16 and in MXFP4. Defaults and rules: transformers 5.17, `GptOssConfig` and
//! `modeling_gpt_oss`.

use super::family::{Arch, ExpertNames, Family, Flag, Fused, Marks, PLAIN, WindowRule};
use super::names;
use crate::config::{Field, Lit, may, need, or, or_off, unless};
use crate::role::Part;
use crate::spec::{Activation, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "gpt_oss",
    model_types: &["gpt_oss"],
    marks: Marks { has: &[".self_attn.sinks", ".mlp.router."], lacks: &[] },
    wrapper: None,
    keys: &[
        names::SIZES,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "GptOssConfig"),
            may(&["rope_theta"], Field::RopeTheta),
            // The reference puts its own YaRN where there is none; a release always states it.
            unless(&["rope_scaling"], Field::RopeScaling, Field::RopeParameters),
            may(&["rope_parameters"], Field::RopeParameters),
            need(&["num_key_value_heads"], Field::KvHeads),
            need(&["head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(true), "GptOssConfig"),
            or_off(&["sliding_window"], Field::Window, Lit::Int(128), "GptOssConfig"),
            need(&["layer_types"], Field::LayerTypes),
            need(&["num_local_experts", "num_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["intermediate_size"], Field::ExpertWidth),
            // Versions up to 5.17 clamp at 7 whatever `swiglu_limit` says. Later ones (5.24) write and heed both keys.
            may(&["swiglu_alpha"], Field::GateAlpha),
            may(&["swiglu_limit"], Field::GateLimit),
        ],
    ],
    fixed: &[],
    // The activation is its own, whatever `hidden_act` says.
    idle: &[&["experts_per_token", "hidden_act", "initial_context_length"]],
    arch: Arch {
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        sinks: true,
        window: WindowRule::ByLayerType,
        act: Activation::ClampedSwiGlu { limit: 7.0, alpha: 1.702 },
        score: RouterScore::SoftmaxOfChosen,
        logit_bias: true,
        expert_bias: true,
        ..PLAIN
    },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        &[("self_attn.sinks", Part::Sinks), ("mlp.router.weight", Part::Router), ("mlp.router.bias", Part::RouterBias)],
    ],
    packed: &[],
    experts: &[
        // bf16: `[experts, in, out]`, gate and up in alternating columns.
        ExpertNames::Stacked {
            gate_up: "mlp.experts.gate_up_proj",
            down: "mlp.experts.down_proj",
            biases: Some(["mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"]),
            fused: Fused::Interleaved,
            transposed: true,
            blocks: false,
        },
        // MXFP4: `[experts, out, in]`, gate and up in alternating rows.
        ExpertNames::Stacked {
            gate_up: "mlp.experts.gate_up_proj",
            down: "mlp.experts.down_proj",
            biases: Some(["mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"]),
            fused: Fused::Interleaved,
            transposed: false,
            blocks: true,
        },
    ],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
