//! LFM2 MoE (8B-A1B): gated short convolutions and attention. Defaults and rules: transformers 5.17, `Lfm2MoeConfig` and
//! `modeling_lfm2_moe`.

use super::family::{Arch, ExpertNames, Family, Flag, Fused, Marks, MixerRule, NormalRule, PLAIN};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::role::{Part, Role};
use crate::spec::{Normalise, QkNorm, RouterScore};

pub(super) const FAMILY: Family = Family {
    name: "lfm2_moe",
    model_types: &["lfm2_moe"],
    marks: Marks { has: &[".feed_forward.experts.", ".conv.in_proj."], lacks: &[] },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            need(&["norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings", "tie_embedding"], Field::Tied, Lit::Bool(true), "Lfm2MoeConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim"], Field::HeadDim),
            need(&["layer_types"], Field::LayerTypes),
            need(&["conv_L_cache"], Field::ConvKernel),
            or(&["conv_bias"], Field::ConvBias, Lit::Bool(false), "Lfm2MoeConfig"),
            need(&["num_dense_layers"], Field::FirstDense),
            need(&["intermediate_size"], Field::DenseWidth),
            need(&["num_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["moe_intermediate_size"], Field::ExpertWidth),
            need(&["norm_topk_prob"], Field::NormTopk),
            or(&["routed_scaling_factor"], Field::RouterScale, Lit::Num(1.0), "Lfm2MoeConfig"),
            or(&["use_expert_bias"], Field::SelectionBias, Lit::Bool(true), "Lfm2MoeConfig"),
        ],
    ],
    fixed: &[only("hidden_act", &[Lit::Str("silu")])],
    idle: &[],
    arch: Arch {
        mixer: MixerRule::ShortConv,
        qk_norm: (QkNorm::HeadBeforeRope, Flag::Yes),
        score: RouterScore::Sigmoid,
        selection_bias: Flag::Key,
        normalise: NormalRule::ByKey(Normalise { eps: 1e-6, floor: 0.0 }),
        ..PLAIN
    },
    prefixes: &["model."],
    globals: &[
        ("embed_tokens.weight", Role::Embedding),
        ("embedding_norm.weight", Role::FinalNorm),
        ("lm_head.weight", Role::Head),
    ],
    tensors: &[&[
        ("operator_norm.weight", Part::MixerNorm),
        ("ffn_norm.weight", Part::MlpNorm),
        ("self_attn.q_proj.weight", Part::Q),
        ("self_attn.k_proj.weight", Part::K),
        ("self_attn.v_proj.weight", Part::V),
        ("self_attn.out_proj.weight", Part::O),
        ("self_attn.q_layernorm.weight", Part::QNorm),
        ("self_attn.k_layernorm.weight", Part::KNorm),
        ("conv.in_proj.weight", Part::ConvIn),
        ("conv.in_proj.bias", Part::ConvInBias),
        ("conv.conv.weight", Part::ConvTaps),
        ("conv.conv.bias", Part::ConvTapsBias),
        ("conv.out_proj.weight", Part::ConvOut),
        ("conv.out_proj.bias", Part::ConvOutBias),
        ("feed_forward.w1.weight", Part::DenseGate),
        ("feed_forward.w3.weight", Part::DenseUp),
        ("feed_forward.w2.weight", Part::DenseDown),
        ("feed_forward.gate.weight", Part::Router),
        ("feed_forward.expert_bias", Part::RouterSelectionBias),
    ]],
    packed: &[],
    experts: &[
        ExpertNames::Each([
            "feed_forward.experts.{e}.w1.weight",
            "feed_forward.experts.{e}.w3.weight",
            "feed_forward.experts.{e}.w2.weight",
        ]),
        ExpertNames::Stacked {
            gate_up: "feed_forward.experts.gate_up_proj",
            down: "feed_forward.experts.down_proj",
            biases: None,
            fused: Fused::GateThenUp,
            transposed: false,
            blocks: false,
        },
    ],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
