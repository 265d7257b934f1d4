//! Granite 3.x MoE (1B-A400M, 3B-A800M). Defaults and rules: transformers 5.17, `GraniteMoeConfig` and
//! `modeling_granitemoe`. The four multipliers have no harmless default and are required.

use super::family::{Arch, ExpertNames, Family, Flag, Fused, Marks, PLAIN};
use super::names;
use crate::config::{Field, Lit, may, need, only, only_stated, or};
use crate::role::Part;
use crate::spec::RouterScore;

pub(super) const FAMILY: Family = Family {
    name: "granitemoe",
    model_types: &["granitemoe"],
    marks: Marks { has: &[".block_sparse_moe.router."], lacks: &[".mamba.", ".shared_mlp."] },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            need(&["tie_word_embeddings"], Field::Tied),
            // As many as query heads where it is absent.
            may(&["num_key_value_heads"], Field::KvHeads),
            may(&["head_dim"], Field::HeadDim),
            or(&["attention_bias"], Field::AttentionBias, Lit::Bool(false), "GraniteMoeConfig"),
            need(&["attention_multiplier"], Field::AttentionScale),
            need(&["embedding_multiplier"], Field::EmbeddingMultiplier),
            need(&["residual_multiplier"], Field::ResidualMultiplier),
            need(&["logits_scaling"], Field::LogitsScaling),
            need(&["num_local_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["intermediate_size"], Field::ExpertWidth),
        ],
    ],
    fixed: &[
        only("hidden_act", &[Lit::Str("silu")]),
        // Versions before 5 write it, and have no positions where it says anything else.
        only_stated("position_embedding_type", &[Lit::Str("rope")]),
    ],
    idle: &[],
    arch: Arch { qkv_bias: Flag::Key, o_bias: Flag::Key, score: RouterScore::SoftmaxOfChosen, ..PLAIN },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[
        names::NORMS,
        names::GQA,
        &[("block_sparse_moe.router.layer.weight", Part::Router), ("block_sparse_moe.router.weight", Part::Router)],
    ],
    packed: &[],
    experts: &[
        ExpertNames::Stacked {
            gate_up: "block_sparse_moe.input_linear.weight",
            down: "block_sparse_moe.output_linear.weight",
            biases: None,
            fused: Fused::GateThenUp,
            transposed: false,
            blocks: false,
        },
        ExpertNames::Stacked {
            gate_up: "block_sparse_moe.experts.gate_up_proj",
            down: "block_sparse_moe.experts.down_proj",
            biases: None,
            fused: Fused::GateThenUp,
            transposed: false,
            blocks: false,
        },
    ],
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
