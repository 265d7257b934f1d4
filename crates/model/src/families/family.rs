//! What a family's file says: the types of its tables.

use crate::config::{Fixed, Key};
use crate::role::{Part, Role};
use crate::spec::{Activation, NormKind, Normalise, QkNorm, RopePairing, RouterScore};

/// A family of models.
pub struct Family {
    /// The published name.
    pub name: &'static str,
    /// Values of `model_type` that mean it.
    pub model_types: &'static [&'static str],
    /// Tensors by which it is recognised.
    pub(crate) marks: Marks,
    /// Keys beside the text model's object in a wrapper, where the family has such a form.
    pub(crate) wrapper: Option<&'static [&'static str]>,
    /// Keys that are read.
    pub(crate) keys: &'static [&'static [Key]],
    /// Keys with a closed list of values.
    pub(crate) fixed: &'static [Fixed],
    /// Keys without a meaning in this family.
    pub(crate) idle: &'static [&'static [&'static str]],
    /// The mechanisms.
    pub(crate) arch: Arch,
    /// What stands before `embed_tokens`, `layers.N` and the final norm, in the order to look for them.
    pub(crate) prefixes: &'static [&'static str],
    /// Tensors outside of layers: with the prefix, save the head's.
    pub(crate) globals: &'static [(&'static str, Role)],
    /// Tensors of a layer.
    pub(crate) tensors: &'static [&'static [(&'static str, Part)]],
    /// Tensors of a layer that hold several parts.
    pub(crate) packed: &'static [(&'static str, Packed)],
    /// The published layouts of the experts.
    pub(crate) experts: &'static [ExpertNames],
    /// Weights of the vision tower that a `vision_config` describes.
    pub(crate) vision: Option<fn(&serde_json::Value) -> Option<u64>>,
    /// Tensors that are left out, by rule.
    pub(crate) skips: &'static [Skip],
}

/// Parts of tensor names: of a layer's tensor, or of any.
pub(crate) struct Marks {
    /// Each is in at least one name.
    pub(crate) has: &'static [&'static str],
    /// None is in any name.
    pub(crate) lacks: &'static [&'static str],
}

/// Whether a mechanism is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    Yes,
    No,
    /// As its key says.
    Key,
}

/// The mechanisms that follow from the family.
pub(crate) struct Arch {
    pub(crate) norm: NormKind,
    pub(crate) mixer: MixerRule,
    /// Kind of the q and k norm, and whether it is there.
    pub(crate) qk_norm: (QkNorm, Flag),
    pub(crate) pairing: RopePairing,
    pub(crate) qkv_bias: Flag,
    pub(crate) o_bias: Flag,
    pub(crate) sinks: bool,
    pub(crate) output_gate: bool,
    pub(crate) window: WindowRule,
    /// A key may say that a share of the head is rotated.
    pub(crate) partial: bool,
    /// `rope_scaling.alpha` is a fixed NTK base.
    pub(crate) alpha: bool,
    /// Epsilon of the latent norms; they do not follow `rms_norm_eps`.
    pub(crate) latent_eps: f32,
    pub(crate) act: Activation,
    pub(crate) score: RouterScore,
    pub(crate) logit_bias: bool,
    pub(crate) selection_bias: Flag,
    pub(crate) groups: GroupRule,
    pub(crate) normalise: NormalRule,
    pub(crate) shared: SharedRule,
    pub(crate) expert_bias: bool,
    pub(crate) head_bias: Flag,
}

/// What most families have in common.
pub(super) const PLAIN: Arch = Arch {
    norm: NormKind::Rms,
    mixer: MixerRule::Gqa,
    qk_norm: (QkNorm::Absent, Flag::No),
    pairing: RopePairing::Halves,
    qkv_bias: Flag::No,
    o_bias: Flag::No,
    sinks: false,
    output_gate: false,
    window: WindowRule::Never,
    partial: false,
    alpha: false,
    latent_eps: 1e-6,
    act: Activation::SwiGlu,
    score: RouterScore::Softmax,
    logit_bias: false,
    selection_bias: Flag::No,
    groups: GroupRule::Never,
    normalise: NormalRule::Never,
    shared: SharedRule::Never,
    expert_bias: false,
    head_bias: Flag::No,
};

/// The sum of the chosen scores with the guard of DeepSeek-V3's router and its descendants.
pub(super) const V3_SUM: Normalise = Normalise { eps: 1e-20, floor: 0.0 };

/// The sum of the chosen scores as it is.
pub(super) const SUM: Normalise = Normalise { eps: 0.0, floor: 0.0 };

/// The token mixers of a family.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MixerRule {
    Gqa,
    Mla,
    /// Gated delta nets, with attention in some layers.
    DeltaNet,
    /// Short convolutions, with attention in some layers.
    ShortConv,
}

/// Which layers have a window.
#[derive(Clone, Copy)]
pub(crate) enum WindowRule {
    /// None; the key, if there, is off.
    Never,
    /// Every one, where the key has a value.
    All,
    /// Those that `layer_types` calls `sliding_attention`.
    ByLayerType,
}

/// Group-limited routing.
#[derive(Clone, Copy)]
pub(crate) enum GroupRule {
    Never,
    /// A group's score is the sum of this many of its best.
    Best(usize),
    /// A group's score is its best, where the key says `group_limited_greedy`.
    ByMethod,
}

/// Normalisation of the chosen scores.
#[derive(Clone, Copy)]
pub(crate) enum NormalRule {
    Never,
    Always(Normalise),
    ByKey(Normalise),
    /// Always, with the floor of a key.
    Floor,
}

/// The shared expert.
#[derive(Clone, Copy)]
pub(crate) enum SharedRule {
    Never,
    Plain,
    /// With a sigmoid gate.
    Gated,
}

/// Parts that one tensor holds, interleaved by key head.
#[derive(Clone, Copy)]
pub(crate) enum Packed {
    /// Per key head: q, k, and the v and z of its value heads.
    QkvzPerHead,
    /// Per key head: the b and the a of its value heads.
    BaPerHead,
}

/// How gate and up share the axis of a stacked tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fused {
    /// All gate, then all up.
    GateThenUp,
    /// gate 0, up 0, gate 1, ...
    Interleaved,
}

/// A layout of a layer's experts.
#[derive(Clone, Copy)]
pub(crate) enum ExpertNames {
    /// Gate, up and down of each expert in a tensor of its own, `[out, in]`.
    Each([&'static str; 3]),
    /// All experts in two tensors.
    Stacked {
        /// `[experts, 2 width, hidden]`, or with the last two axes swapped.
        gate_up: &'static str,
        /// `[experts, hidden, width]`, or with the last two axes swapped.
        down: &'static str,
        /// Biases of both, `[experts, 2 width]` and `[experts, hidden]`.
        biases: Option<[&'static str; 2]>,
        /// Order of gate and up.
        fused: Fused,
        /// The last two axes are `[in, out]`.
        transposed: bool,
        /// Stored as blocks and scales; the layout holds for that format only, as the others do for the rest.
        blocks: bool,
    },
}

/// Tensors that are left out.
pub(crate) struct Skip {
    /// The rule's name, for people.
    pub(crate) rule: &'static str,
    pub(crate) what: SkipRule,
}

/// Which tensors a skip rule means.
pub(crate) enum SkipRule {
    /// Names that begin so.
    Prefix(&'static [&'static str]),
    /// Names that end so.
    Suffix(&'static [&'static str]),
    /// Layers past the last one, as many as the config announces.
    LayersPast,
}

impl Family {
    /// The head's tensor.
    #[must_use]
    pub fn head(&self) -> &'static str {
        self.globals.iter().find(|(_, role)| *role == Role::Head).map_or("lm_head.weight", |(name, _)| name)
    }

    /// Gate, up and down of an expert where each has a tensor of its own; `None` where the family stacks them.
    #[must_use]
    pub fn expert_tensors(&self, layer: usize, expert: usize) -> Option<[String; 3]> {
        let names = self.experts.iter().find_map(|layout| match layout {
            ExpertNames::Each(names) => Some(names),
            ExpertNames::Stacked { .. } => None,
        })?;
        let prefix = self.prefixes.first().copied().unwrap_or("");
        Some(names.map(|name| format!("{prefix}layers.{layer}.{}", name.replace("{e}", &expert.to_string()))))
    }
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("name", &self.name).finish_non_exhaustive()
    }
}
