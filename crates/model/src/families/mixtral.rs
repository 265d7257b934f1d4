//! Mixtral (8x7B, 8x22B). Defaults and rules: transformers 5.17, `MixtralConfig` and `modeling_mixtral`.

use super::family::{Arch, Family, Marks, NormalRule, PLAIN, SUM, WindowRule};
use super::names;
use crate::config::{Field, Lit, may, need, only, or};

pub(super) const FAMILY: Family = Family {
    name: "mixtral",
    model_types: &["mixtral"],
    marks: Marks {
        has: &[".self_attn.q_proj.weight"],
        lacks: &[".self_attn.q_norm.", "e_score_correction_bias", ".input_layernorm.bias", ".linear_attn.", ".router."],
    },
    wrapper: None,
    keys: &[
        names::SIZES,
        names::ROPE,
        &[
            need(&["rms_norm_eps"], Field::NormEps),
            or(&["tie_word_embeddings"], Field::Tied, Lit::Bool(false), "MixtralConfig"),
            need(&["num_key_value_heads"], Field::KvHeads),
            // hidden / heads where it is absent, as in the releases.
            may(&["head_dim"], Field::HeadDim),
            may(&["sliding_window"], Field::Window),
            need(&["num_local_experts", "num_experts"], Field::Experts),
            need(&["num_experts_per_tok"], Field::TopK),
            need(&["intermediate_size"], Field::ExpertWidth),
        ],
    ],
    fixed: &[only("hidden_act", &[Lit::Str("silu")])],
    idle: &[&["router_jitter_noise"]],
    // No key says so: the chosen weights are always divided by their sum.
    arch: Arch { window: WindowRule::All, normalise: NormalRule::Always(SUM), ..PLAIN },
    prefixes: &["model."],
    globals: names::GLOBALS,
    tensors: &[names::NORMS, names::GQA, names::BLOCK_ROUTER],
    packed: &[],
    experts: names::BLOCK_EXPERTS,
    vision: None,
    skips: &[names::ROTARY_BUFFERS],
};
