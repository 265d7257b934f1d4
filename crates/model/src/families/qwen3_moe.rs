//! Qwen3-MoE (Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder). Defaults: `configuration_qwen3_moe.py` of transformers.

use super::{Experts, Family, Seen, Trunk};
use crate::config::{Config, FILE};
use crate::error::CheckpointError;
use crate::resolve;
use crate::role::Part;
use crate::spec::{
    Activation, Gqa, Head, LayerSpec, Mixer, Mlp, ModelSpec, MoeSpec, Multipliers, NormKind, NormSpec, Normalise,
    QkNorm, RopePairing, RouterScore, RouterSpec,
};

pub(super) const FAMILY: Family = Family {
    name: "qwen3_moe",
    model_types: &["qwen3_moe"],
    marks: &["model.layers.{l}.self_attn.q_norm.weight"],
    idle: &["max_window_layers"],
    resolve: spec,
    trunk: Trunk {
        embedding: "model.embed_tokens.weight",
        final_norm: "model.norm.weight",
        head: "lm_head.weight",
        layer: &[
            (Part::MixerNorm, "model.layers.{l}.input_layernorm.weight", Seen::Whole),
            (Part::MlpNorm, "model.layers.{l}.post_attention_layernorm.weight", Seen::Whole),
            (Part::Q, "model.layers.{l}.self_attn.q_proj.weight", Seen::Whole),
            (Part::QBias, "model.layers.{l}.self_attn.q_proj.bias", Seen::Whole),
            (Part::K, "model.layers.{l}.self_attn.k_proj.weight", Seen::Whole),
            (Part::KBias, "model.layers.{l}.self_attn.k_proj.bias", Seen::Whole),
            (Part::V, "model.layers.{l}.self_attn.v_proj.weight", Seen::Whole),
            (Part::VBias, "model.layers.{l}.self_attn.v_proj.bias", Seen::Whole),
            (Part::O, "model.layers.{l}.self_attn.o_proj.weight", Seen::Whole),
            (Part::OBias, "model.layers.{l}.self_attn.o_proj.bias", Seen::Whole),
            (Part::QNorm, "model.layers.{l}.self_attn.q_norm.weight", Seen::Whole),
            (Part::KNorm, "model.layers.{l}.self_attn.k_norm.weight", Seen::Whole),
            (Part::DenseGate, "model.layers.{l}.mlp.gate_proj.weight", Seen::Whole),
            (Part::DenseUp, "model.layers.{l}.mlp.up_proj.weight", Seen::Whole),
            (Part::DenseDown, "model.layers.{l}.mlp.down_proj.weight", Seen::Whole),
            (Part::Router, "model.layers.{l}.mlp.gate.weight", Seen::Whole),
        ],
    },
    experts: &[Experts::Each {
        names: [
            "model.layers.{l}.mlp.experts.{e}.gate_proj.weight",
            "model.layers.{l}.mlp.experts.{e}.up_proj.weight",
            "model.layers.{l}.mlp.experts.{e}.down_proj.weight",
        ],
    }],
    skips: &[],
};

fn spec(config: &Config) -> Result<ModelSpec, CheckpointError> {
    let hidden = config.size("hidden_size")?;
    let layers = config.size("num_hidden_layers")?;
    config.word_in("hidden_act", &["silu"], "silu")?;
    config.absent_or_false("use_sliding_window")?;
    config.get("sliding_window");
    config.null("rope_scaling")?;
    // Qwen3-Coder spells out what the family does anyway.
    config.absent_or_false("qkv_bias")?;
    config.must_be("use_qk_norm", true)?;
    config.absent_or_zero("shared_expert_intermediate_size")?;
    let step = config.size_or("decoder_sparse_step", 1)?;
    let dense = config.indices("mlp_only_layers")?;
    let eps = config.number("rms_norm_eps")? as f32;
    let heads = config.size("num_attention_heads")?;
    let head_dim = config.size_or("head_dim", hidden / heads)?;
    let bias = config.flag_or("attention_bias", false)?;
    let gqa = Gqa {
        heads,
        kv_heads: config.size("num_key_value_heads")?,
        head_dim,
        scale: 1.0 / (head_dim as f32).sqrt(),
        rope: Some(resolve::plain_rope(resolve::rope_theta(config)?, head_dim, RopePairing::Halves)),
        qk_norm: QkNorm::HeadBeforeRope,
        qk_norm_eps: eps,
        qkv_bias: bias,
        o_bias: bias,
        window: None,
        sinks: false,
        output_gate: false,
        clip_qkv: None,
    };
    let moe = moe(config)?;
    let dense_width = config.size_or("intermediate_size", 6144)?;
    let layer = |l: usize| LayerSpec {
        mixer: Mixer::Gqa(gqa.clone()),
        mlp: if dense.contains(&l) || !(l + 1).is_multiple_of(step) {
            Mlp::Dense { width: dense_width, act: Activation::SwiGlu }
        } else {
            Mlp::Moe(moe.clone())
        },
    };
    Ok(ModelSpec {
        family: FAMILY.name.into(),
        vocab: config.size("vocab_size")?,
        hidden,
        layers: (0..layers).map(layer).collect(),
        norm: NormSpec { kind: NormKind::Rms, eps },
        head: if config.flag_or("tie_word_embeddings", false)? { Head::Tied } else { Head::Untied { bias: false } },
        multipliers: Multipliers { embedding: 1.0, residual: 1.0, logits_divisor: 1.0 },
        context: config.size("max_position_embeddings")?,
        tokens: resolve::tokens(config)?,
    })
}

fn moe(config: &Config) -> Result<MoeSpec, CheckpointError> {
    let experts = config.size("num_experts")?;
    let top_k = config.size("num_experts_per_tok")?;
    if top_k > experts {
        return Err(CheckpointError::item(FILE, "num_experts_per_tok", format!("is {top_k} of num_experts {experts}")));
    }
    let width = config.size("moe_intermediate_size")?;
    let normalise = config.flag_or("norm_topk_prob", false)?.then_some(Normalise { eps: 0.0, floor: 0.0 });
    Ok(MoeSpec {
        experts,
        top_k,
        width,
        act: Activation::SwiGlu,
        router: RouterSpec {
            score: RouterScore::Softmax,
            logit_bias: false,
            selection_bias: false,
            groups: None,
            normalise,
            scale: 1.0,
        },
        shared: None,
        expert_bias: false,
    })
}
