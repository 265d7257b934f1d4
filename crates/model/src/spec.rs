//! [`ModelSpec`]: everything that the forward pass must know of a model, with no family's name in a decision.
//!
//! A family file resolves `config.json` into this once; the vault stores it; the engine reads nothing else. Every
//! field is resolved: a default of a family is written here as a value, so that a vault never depends on a default
//! of the program that reads it; for the same reason a field that is missing there is an error, where its value may be
//! `None` too.

use serde::{Deserialize, Serialize};

/// A model, resolved. Sizes are element counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// The family's published name (`model_type`): for people; no code decides by it.
    pub family: String,
    /// Rows of the embedding and of the head.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// The decoder layers in order.
    pub layers: Vec<LayerSpec>,
    /// The kind of every norm on the residual stream, the final one included.
    pub norm: NormSpec,
    /// Where the output head's weights come from.
    pub head: Head,
    /// Scalar multipliers of the residual stream and the logits.
    pub multipliers: Multipliers,
    /// Positions that the model was made for (`max_position_embeddings`): generation ends there.
    pub context: usize,
    /// Token ids with a meaning to the program.
    pub tokens: ControlTokens,
}

/// One decoder layer: `x += r * mixer(norm(x)); x += r * mlp(norm(x))`, r = [`Multipliers::residual`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// What mixes the tokens.
    pub mixer: Mixer,
    /// What works on each token alone.
    pub mlp: Mlp,
}

/// Kind and epsilon of the residual stream's norms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormSpec {
    /// The formula.
    pub kind: NormKind,
    /// Added to the mean square (or variance) before the root.
    pub eps: f32,
}

/// The norms in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// `x / sqrt(mean(x^2) + eps) * w`.
    Rms,
    /// `x / sqrt(mean(x^2) + eps) * (1 + w)`, the one added in f32; per-head q and k norms follow it too.
    RmsUnitOffset,
    /// `(x - mean) / sqrt(var + eps) * w + b`.
    LayerNorm,
}

/// The output head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// The embedding itself.
    Tied,
    /// A matrix of its own, with a bias or not.
    Untied {
        /// Whether `Role::HeadBias` exists.
        bias: bool,
    },
}

/// Scalars; 1 where a family has none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Multipliers {
    /// Times the embedding.
    pub embedding: f32,
    /// Times each branch before it is added to the stream.
    pub residual: f32,
    /// The logits are divided by it.
    pub logits_divisor: f32,
}

/// Token ids that the config names, and where the stop ids were found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlTokens {
    /// Start of text.
    #[serde(deserialize_with = "Option::deserialize")]
    pub bos: Option<u32>,
    /// Ids that end a generation.
    pub eos: Vec<u32>,
    /// The file and key that gave `eos` ("generation_config.json eos_token_id"), for people.
    pub eos_source: String,
}

/// The token mixers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    /// Grouped-query attention.
    Gqa(Gqa),
    /// Multi-head latent attention (DeepSeek-V2, section 2.1).
    Mla(Mla),
    /// Gated delta net.
    DeltaNet(DeltaNet),
    /// Gated short convolution: `(B, C, x) = in_proj(n); y = out_proj(C * conv(B * x))`, causal, no activation.
    ShortConv {
        /// Taps of the depthwise convolution, the current token included.
        kernel: usize,
        /// Whether the projections and the convolution have biases.
        bias: bool,
    },
}

/// Grouped-query attention. Query `[heads * head_dim, hidden]`, key and value `[kv_heads * head_dim, hidden]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gqa {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; `heads * head_dim` need not be `hidden`.
    pub head_dim: usize,
    /// Factor of the attention logits before the softmax.
    pub scale: f32,
    /// Rotary embedding; `None` for a layer without positions.
    #[serde(deserialize_with = "Option::deserialize")]
    pub rope: Option<Rope>,
    /// Norm of queries and keys.
    pub qk_norm: QkNorm,
    /// Epsilon of that norm.
    pub qk_norm_eps: f32,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// Bias on the output projection.
    pub o_bias: bool,
    /// A token sees itself and the `window - 1` before it.
    #[serde(deserialize_with = "Option::deserialize")]
    pub window: Option<usize>,
    /// One extra logit per head in the softmax's denominator.
    pub sinks: bool,
    /// `q_proj` holds, per head, the query and then a gate: the head's output is multiplied by `sigmoid(gate)`.
    pub output_gate: bool,
    /// Queries, keys and values are clamped to `±clip` after the projection (OLMoE's `clip_qkv`).
    #[serde(deserialize_with = "Option::deserialize")]
    pub clip_qkv: Option<f32>,
}

/// Norm of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QkNorm {
    /// None.
    Absent,
    /// Each head by itself, before the rotation.
    HeadBeforeRope,
    /// Each head by itself, after the rotation.
    HeadAfterRope,
    /// All heads together over the full projected width, before the split and the rotation.
    FullWidth,
}

/// Multi-head latent attention.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mla {
    /// Heads.
    pub heads: usize,
    /// Rank of the query's latent; `None` where `q_proj` is direct.
    #[serde(deserialize_with = "Option::deserialize")]
    pub q_rank: Option<usize>,
    /// Rank of the key-value latent: what the cache holds, beside the rotated key part.
    pub kv_rank: usize,
    /// Unrotated width of a key head.
    pub nope_dim: usize,
    /// Rotated width of a key head; its key part is one head for all.
    pub rope_dim: usize,
    /// Width of a value head.
    pub v_dim: usize,
    /// Rotary embedding of the rotated part (`rope.dim == rope_dim`).
    pub rope: Rope,
    /// Factor of the attention logits, YaRN's `mscale` included.
    pub scale: f32,
    /// Epsilon of `q_a_layernorm` and `kv_a_layernorm`.
    pub latent_norm_eps: f32,
    /// Biases on `q_a_proj`, `kv_a_proj_with_mqa` and `o_proj`.
    pub bias: bool,
}

/// Gated delta net. The convolution runs over q | k | v, all heads' q first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaNet {
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Taps of the convolution.
    pub conv_kernel: usize,
    /// Epsilon of the gated output norm (an ordinary one: weights around 1, whatever the residual's norms are).
    pub norm_eps: f32,
}

/// A rotary embedding, resolved to what the engine multiplies with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Rotated channels of a head, from the first on; even.
    pub dim: usize,
    /// Which channels form a pair.
    pub pairing: RopePairing,
    /// Angle per position of each pair, `dim / 2` values, any scaling (YaRN, LongRoPE, NTK) already in them.
    pub inv_freq: Vec<f32>,
    /// Cosine and sine are multiplied by it (YaRN's attention factor, LongRoPE's mscale).
    pub amplitude: f32,
    /// What was resolved, in words ("theta 1000000", "yarn factor 40 of 4096"), for people.
    pub origin: String,
    /// Positions up to which `inv_freq` holds, where another table would be needed beyond (LongRoPE).
    #[serde(deserialize_with = "Option::deserialize")]
    pub limit: Option<usize>,
}

/// Which channels of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopePairing {
    /// `(i, i + dim / 2)`.
    Halves,
    /// `(2 i, 2 i + 1)`.
    Neighbours,
}

/// What works on each token alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mlp {
    /// `down(act(gate x, up x))`.
    Dense {
        /// Rows of gate and up.
        width: usize,
        /// The gated activation.
        act: Activation,
    },
    /// A mixture of experts.
    Moe(MoeSpec),
}

/// A mixture of experts. Expert gate and up are `[width, hidden]`, down is `[hidden, width]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoeSpec {
    /// Routed experts.
    pub experts: usize,
    /// Experts chosen for a token.
    pub top_k: usize,
    /// Rows of an expert's gate and up.
    pub width: usize,
    /// The gated activation of routed and shared experts.
    pub act: Activation,
    /// How scores and combine weights come from the router's logits.
    pub router: RouterSpec,
    /// The shared expert (several are one of their summed width).
    #[serde(deserialize_with = "Option::deserialize")]
    pub shared: Option<SharedExpert>,
    /// Whether each expert's gate, up and down have biases (kept in f32).
    pub expert_bias: bool,
}

/// Router: logits → scores → choice → combine weights. Everything in f32.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterSpec {
    /// Scores from logits.
    pub score: RouterScore,
    /// A bias added to the logits (`Part::RouterBias`).
    pub logit_bias: bool,
    /// A bias added to the scores for the choice only (`Part::RouterSelectionBias`).
    pub selection_bias: bool,
    /// Experts come in groups of which some are kept before the choice.
    #[serde(deserialize_with = "Option::deserialize")]
    pub groups: Option<ExpertGroups>,
    /// The chosen scores are divided by `max(sum, floor) + eps`.
    #[serde(deserialize_with = "Option::deserialize")]
    pub normalise: Option<Normalise>,
    /// The combine weights are multiplied by it, once, after normalisation.
    pub scale: f32,
}

/// Normalisation of the chosen scores: divided by `max(sum, floor) + eps`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalise {
    /// Added to the sum.
    pub eps: f32,
    /// The least that the sum counts as.
    pub floor: f32,
}

/// Scores from router logits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterScore {
    /// Softmax over all experts.
    Softmax,
    /// Each logit's sigmoid.
    Sigmoid,
    /// The choice on logits, then a softmax over the chosen ones.
    SoftmaxOfChosen,
    /// Two rounds, each taking the best remaining logit and weighing it by a softmax over those within
    /// `2 * jitter` (relative) of it (Phi-3.5-MoE's sparsemixer at inference).
    SparseMixer {
        /// `router_jitter_noise`.
        jitter: f32,
    },
}

/// Group-limited routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertGroups {
    /// Groups of equal size, in expert order.
    pub count: usize,
    /// Groups kept.
    pub keep: usize,
    /// How many of a group's best selection scores are summed into the group's score.
    pub scored_by: usize,
}

/// The shared expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedExpert {
    /// Rows of its gate and up.
    pub width: usize,
    /// Its output is multiplied by `sigmoid(shared_gate · x)` (`Part::SharedGate`).
    pub gated: bool,
}

/// Gated activations of `gate` and `up`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `silu(gate) * up`.
    SwiGlu,
    /// gpt-oss: gate clamped above at `limit`, up to `±limit`, then `(up + 1) * gate * sigmoid(alpha * gate)`.
    ClampedSwiGlu {
        /// The clamp.
        limit: f32,
        /// Factor inside the sigmoid.
        alpha: f32,
    },
}

impl ModelSpec {
    /// Layers with experts, in order, as (layer index, its spec).
    pub fn moe_layers(&self) -> impl Iterator<Item = (usize, &MoeSpec)> {
        self.layers.iter().enumerate().filter_map(|(i, layer)| match &layer.mlp {
            Mlp::Moe(moe) => Some((i, moe)),
            Mlp::Dense { .. } => None,
        })
    }
}
