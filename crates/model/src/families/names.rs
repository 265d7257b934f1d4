//! Keys and tensor names that several families share.

use super::family::{ExpertNames, Fused, Skip, SkipRule};
use crate::config::{Field, Key, Lit, may, need, or, unless};
use crate::role::{Part, Role};
use serde_json::Value;

type Names = &'static [(&'static str, Part)];

/// Sizes that every family calls by the same name.
pub(super) const SIZES: &[Key] = &[
    need(&["vocab_size"], Field::Vocab),
    need(&["hidden_size"], Field::Hidden),
    need(&["num_hidden_layers"], Field::Layers),
    need(&["max_position_embeddings"], Field::Context),
    need(&["num_attention_heads"], Field::Heads),
    may(&["quantization_config"], Field::Quantization),
];

/// The rotary embedding, in the words of both generations; a base is required under one of them.
pub(super) const ROPE: &[Key] = &[
    may(&["rope_theta"], Field::RopeTheta),
    may(&["rope_scaling"], Field::RopeScaling),
    may(&["rope_parameters"], Field::RopeParameters),
];

/// Experts in Qwen's words.
pub(super) const QWEN_MOE: &[Key] = &[
    need(&["intermediate_size"], Field::DenseWidth),
    need(&["num_experts", "num_local_experts"], Field::Experts),
    need(&["num_experts_per_tok"], Field::TopK),
    need(&["moe_intermediate_size"], Field::ExpertWidth),
    or(&["decoder_sparse_step"], Field::MoeEvery, Lit::Int(1), "the family's config class"),
    or(&["mlp_only_layers"], Field::MlpOnly, Lit::Empty, "the family's config class"),
    may(&["layer_types"], Field::LayerTypes),
];

/// Gated delta nets.
pub(super) const DELTA_NET: &[Key] = &[
    may(&["layer_types"], Field::LayerTypes),
    unless(&["full_attention_interval"], Field::FullInterval, Field::LayerTypes),
    need(&["linear_num_key_heads"], Field::DeltaKeyHeads),
    need(&["linear_num_value_heads"], Field::DeltaValueHeads),
    need(&["linear_key_head_dim"], Field::DeltaKeyDim),
    need(&["linear_value_head_dim"], Field::DeltaValueDim),
    need(&["linear_conv_kernel_dim"], Field::DeltaKernel),
];

/// Latent attention.
pub(super) const LATENT: &[Key] = &[
    may(&["q_lora_rank"], Field::QRank),
    need(&["kv_lora_rank"], Field::KvRank),
    need(&["qk_nope_head_dim"], Field::NopeDim),
    need(&["qk_rope_head_dim"], Field::RopeDim),
    need(&["v_head_dim"], Field::ValueDim),
    or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "the family's config class"),
];

/// Keys beside latent attention that follow from others or are for training.
pub(super) const LATENT_IDLE: &[&str] =
    &["aux_loss_alpha", "head_dim", "num_key_value_heads", "pretraining_tp", "qk_head_dim", "seq_aux"];

/// Experts in DeepSeek's words.
pub(super) const DEEPSEEK_MOE: &[Key] = &[
    need(&["intermediate_size"], Field::DenseWidth),
    need(&["first_k_dense_replace"], Field::FirstDense),
    need(&["n_routed_experts", "num_local_experts", "num_experts"], Field::Experts),
    need(&["num_experts_per_tok"], Field::TopK),
    need(&["moe_intermediate_size"], Field::ExpertWidth),
    // 0 and null alike mean none.
    may(&["n_shared_experts"], Field::SharedCount),
    need(&["routed_scaling_factor"], Field::RouterScale),
];

/// Groups of experts where the config may say nothing of them.
pub(super) const GROUPS: &[Key] = &[may(&["n_group"], Field::Groups), may(&["topk_group"], Field::GroupsKept)];

/// Embedding, final norm, head.
pub(super) const GLOBALS: &[(&str, Role)] =
    &[("embed_tokens.weight", Role::Embedding), ("norm.weight", Role::FinalNorm), ("lm_head.weight", Role::Head)];

/// The two norms of a layer.
pub(super) const NORMS: Names =
    &[("input_layernorm.weight", Part::MixerNorm), ("post_attention_layernorm.weight", Part::MlpNorm)];

/// Grouped-query attention, biases included: whether they are there follows from the spec.
pub(super) const GQA: Names = &[
    ("self_attn.q_proj.weight", Part::Q),
    ("self_attn.q_proj.bias", Part::QBias),
    ("self_attn.k_proj.weight", Part::K),
    ("self_attn.k_proj.bias", Part::KBias),
    ("self_attn.v_proj.weight", Part::V),
    ("self_attn.v_proj.bias", Part::VBias),
    ("self_attn.o_proj.weight", Part::O),
    ("self_attn.o_proj.bias", Part::OBias),
];

/// Norm of queries and keys.
pub(super) const QK_NORM: Names = &[("self_attn.q_norm.weight", Part::QNorm), ("self_attn.k_norm.weight", Part::KNorm)];

/// Latent attention.
pub(super) const MLA: Names = &[
    ("self_attn.q_proj.weight", Part::Q),
    ("self_attn.q_a_proj.weight", Part::QA),
    ("self_attn.q_a_proj.bias", Part::QABias),
    ("self_attn.q_a_layernorm.weight", Part::QANorm),
    ("self_attn.q_b_proj.weight", Part::QB),
    ("self_attn.kv_a_proj_with_mqa.weight", Part::KvA),
    ("self_attn.kv_a_proj_with_mqa.bias", Part::KvABias),
    ("self_attn.kv_a_layernorm.weight", Part::KvANorm),
    ("self_attn.kv_b_proj.weight", Part::KvB),
    ("self_attn.o_proj.weight", Part::O),
    ("self_attn.o_proj.bias", Part::OBias),
];

/// Gated delta nets, the projections apart.
pub(super) const DELTA: Names = &[
    ("linear_attn.in_proj_qkv.weight", Part::DeltaQkv),
    ("linear_attn.in_proj_z.weight", Part::DeltaZ),
    ("linear_attn.in_proj_b.weight", Part::DeltaB),
    ("linear_attn.in_proj_a.weight", Part::DeltaA),
    ("linear_attn.conv1d.weight", Part::DeltaConv),
    ("linear_attn.A_log", Part::DeltaALog),
    ("linear_attn.dt_bias", Part::DeltaDtBias),
    ("linear_attn.norm.weight", Part::DeltaNorm),
    ("linear_attn.out_proj.weight", Part::DeltaOut),
];

/// A dense layer.
pub(super) const DENSE: Names = &[
    ("mlp.gate_proj.weight", Part::DenseGate),
    ("mlp.up_proj.weight", Part::DenseUp),
    ("mlp.down_proj.weight", Part::DenseDown),
];

/// The router.
pub(super) const ROUTER: Names = &[("mlp.gate.weight", Part::Router)];

/// The router's bias for the choice.
pub(super) const SELECTION_BIAS: Names = &[("mlp.gate.e_score_correction_bias", Part::RouterSelectionBias)];

/// The shared expert; several are stored as one.
pub(super) const SHARED: Names = &[
    ("mlp.shared_experts.gate_proj.weight", Part::SharedGateProj),
    ("mlp.shared_experts.up_proj.weight", Part::SharedUpProj),
    ("mlp.shared_experts.down_proj.weight", Part::SharedDownProj),
];

/// The shared expert with its gate.
pub(super) const SHARED_GATED: Names = &[
    ("mlp.shared_expert.gate_proj.weight", Part::SharedGateProj),
    ("mlp.shared_expert.up_proj.weight", Part::SharedUpProj),
    ("mlp.shared_expert.down_proj.weight", Part::SharedDownProj),
    ("mlp.shared_expert_gate.weight", Part::SharedGate),
];

/// The router where the block is called `block_sparse_moe`, or `mlp` as newer versions of the library call it.
pub(super) const BLOCK_ROUTER: Names =
    &[("block_sparse_moe.gate.weight", Part::Router), ("mlp.gate.weight", Part::Router)];

/// One tensor an expert.
pub(super) const EACH: ExpertNames = ExpertNames::Each([
    "mlp.experts.{e}.gate_proj.weight",
    "mlp.experts.{e}.up_proj.weight",
    "mlp.experts.{e}.down_proj.weight",
]);

/// `gate_up_proj` `[experts, 2 width, hidden]` and `down_proj` `[experts, hidden, width]`, gate rows first.
pub(super) const STACKED: ExpertNames = ExpertNames::Stacked {
    gate_up: "mlp.experts.gate_up_proj",
    down: "mlp.experts.down_proj",
    biases: None,
    fused: Fused::GateThenUp,
    transposed: false,
    blocks: false,
};

/// Experts of `block_sparse_moe`: w1, w3, w2 are gate, up, down.
pub(super) const BLOCK_EXPERTS: &[ExpertNames] = &[
    ExpertNames::Each([
        "block_sparse_moe.experts.{e}.w1.weight",
        "block_sparse_moe.experts.{e}.w3.weight",
        "block_sparse_moe.experts.{e}.w2.weight",
    ]),
    STACKED,
];

/// Buffers that old versions of the library stored.
pub(super) const ROTARY_BUFFERS: Skip =
    Skip { rule: "rotary buffers", what: SkipRule::Suffix(&[".rotary_emb.inv_freq"]) };

/// Prediction layers under names of their own.
pub(super) const MTP: Skip = Skip { rule: "multi-token prediction", what: SkipRule::Prefix(&["mtp."]) };

/// Prediction layers after the last layer.
pub(super) const LAYERS_PAST: Skip = Skip { rule: "multi-token prediction", what: SkipRule::LayersPast };

/// Weights of the vision tower of a `vision_config`: patches, positions, blocks, merger.
pub(super) fn vision_tower(config: &Value) -> Option<u64> {
    let size = |key: &str| config.get(key).and_then(Value::as_u64).filter(|n| *n < 1 << 20);
    let (hidden, width, depth) = (size("hidden_size")?, size("intermediate_size")?, size("depth")?);
    let merge = size("spatial_merge_size").filter(|n| *n < 1 << 8)?;
    let patch_side = size("patch_size").filter(|n| *n < 1 << 12)?;
    let merged = (merge * merge * hidden).min(1 << 30);
    let block = 4 * hidden * hidden + 2 * hidden * width + width + 9 * hidden;
    let pixels =
        (size("in_channels")?.min(1 << 10) * size("temporal_patch_size")?.min(1 << 10)) * patch_side * patch_side;
    let patches = pixels.checked_mul(hidden)? + hidden;
    let out = size("out_hidden_size")?;
    let merger = 2 * hidden + merged * merged + merged + merged * out + out;
    let positions = size("num_position_embeddings")? * hidden;
    patches.checked_add(positions)?.checked_add(depth.checked_mul(block)?)?.checked_add(merger)
}
