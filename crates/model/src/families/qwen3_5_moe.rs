//! Qwen3.5 MoE (35B-A3B, 122B-A10B, 397B-A17B) and its vision-language wrapper: as Qwen3-Next, with the projections of
//! the delta nets apart. Defaults and rules: transformers 5.17, `Qwen3_5MoeTextConfig` and `modeling_qwen3_5_moe`.

use super::family::{Arch, Family, Flag, Marks, MixerRule, NormalRule, PLAIN, SUM, SharedRule, Skip, SkipRule};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};
use crate::spec::{NormKind, QkNorm};

pub(super) const FAMILY: Family = Family {
    name: "qwen3_5_moe",
    model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
    marks: Marks {
        has: &[".linear_attn.in_proj_qkv.", ".linear_attn.in_proj_z."],
        lacks: &[".linear_attn.in_proj_qkvz."],
    },
    wrapper: Some(&[
        "image_token_id",
        "language_model_only",
        "quantization_config",
        "tie_word_embeddings",
        "video_token_id",
        "vision_config",
        "vision_end_token_id",
        "vision_start_token_id",
    ]),
    keys: &[
        names::SIZES,
        names::ROPE,
        names::DELTA_NET,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "Qwen3_5MoeTextConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            need(&["head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "Qwen3_5MoeTextConfig"),
            // `rope_parameters.partial_rotary_factor` goes before it.
            or(&["partial_rotary_factor"], Field::PartialRotary, Lit::Num(0.25), "Qwen3_5MoeTextConfig"),
            need(&["num_experts", "num_local_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["moe_intermediate_size"], Field::ExpertWidth),
            need(&["shared_expert_intermediate_size"], Field::SharedWidth),
            may(&["mlp_only_layers"], Field::MlpOnly),
            may(&["intermediate_size"], Field::DenseWidth),
            may(&["mtp_num_hidden_layers"], Field::PredictionLayers),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        only("attn_output_gate", &[Lit::Bool(true)]),
        // Not in the releases, which mean true.
        only("norm_topk_prob", &[Lit::Bool(true)]),
        only("decoder_sparse_step", &[Lit::Int(1)]),
    ],
    idle: &[&["mamba_ssm_dtype", "mtp_use_dedicated_embeddings"]],
    arch: Arch {
        norm: NormKind::RmsUnitOffset,
        mixer: MixerRule::DeltaNet,
        qk_norm: (QkNorm::HeadBeforeRope, Flag::Yes),
        qkv_bias: Flag::Key,
        o_bias: Flag::Key,
        output_gate: true,
        partial: true,
        normalise: NormalRule::Always(SUM),
        shared: SharedRule::Gated,
        ..PLAIN
    },
    prefixes: &["model.language_model.", "model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        names::QK_NORM,
        names::DELTA,
        names::DENSE,
        names::ROUTER,
        names::SHARED_GATED,
    ],
    packed: &[],
    // bf16 releases stack the experts, fp8 releases have one tensor each.
    experts: &[names::STACKED, names::EACH],
    vision: Some(names::vision_tower),
    skips: &[
        names::MTP,
        Skip { rule: "vision tower", what: SkipRule::Prefix(&["model.visual.", "visual."]) },
        names::ROTARY_BUFFERS,
    ],
};
