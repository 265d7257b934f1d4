//! Families as data: how config keys become a [`ModelSpec`] and tensor names become roles. One file a family.

use crate::config::Config;
use crate::error::CheckpointError;
use crate::role::Part;
use crate::spec::{LayerSpec, ModelSpec};

mod qwen3_moe;

/// All families that are read.
pub const ALL: &[&Family] = &[&qwen3_moe::FAMILY];

/// Families that people will try and that are not read.
const KNOWN_UNREAD: &[&str] = &[
    "llama4",
    "deepseek_v32",
    "glm_moe_dsa",
    "dbrx",
    "jamba",
    "grok",
    "arctic",
    "bailing_moe",
    "flex_olmo",
    "step3",
    "qwen2",
    "qwen3",
    "llama",
    "mistral",
    "gemma3",
    "gemma4",
];

/// The family that answers to a `model_type`.
///
/// # Errors
/// When none does, with the families that are read.
pub fn by_model_type(model_type: &str) -> Result<&'static Family, CheckpointError> {
    ALL.iter().find(|f| f.model_types.contains(&model_type)).copied().ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|f| f.name).collect();
        let known =
            if KNOWN_UNREAD.contains(&model_type) { "is known and not read by this version" } else { "is not known" };
        CheckpointError::item(crate::config::FILE, "model_type", format!("family {model_type} {known}"))
            .hint(format!("families that are read: {}", names.join(", ")))
    })
}

/// A family.
#[derive(Debug)]
pub struct Family {
    /// Its published name.
    pub name: &'static str,
    /// Values of `model_type` that it answers to.
    pub model_types: &'static [&'static str],
    /// One of these tensors (patterns) must be there.
    pub marks: &'static [&'static str],
    /// Config keys that may be there and change nothing.
    pub idle: &'static [&'static str],
    /// Config to spec.
    pub resolve: fn(&Config) -> Result<ModelSpec, CheckpointError>,
    /// Names of trunk tensors.
    pub trunk: Trunk,
    /// Names and orders of expert tensors: the layouts in which the family is published.
    pub experts: &'static [Experts],
    /// Tensors that a text engine does not need, by rule.
    pub skips: &'static [Skip],
}

/// Trunk tensor names. `{l}` is the layer's index.
#[derive(Debug)]
pub struct Trunk {
    /// The embedding.
    pub embedding: &'static str,
    /// The final norm (its bias under `.bias` in place of `.weight`).
    pub final_norm: &'static str,
    /// The head.
    pub head: &'static str,
    /// Parts of a layer; the first entry of a part that is there counts.
    pub layer: &'static [(Part, &'static str, Seen)],
}

/// How a part is seen in its tensor.
#[derive(Debug, Clone, Copy)]
pub enum Seen {
    /// All rows.
    Whole,
    /// Some rows, which follow from the layer's sizes.
    Rows(fn(&LayerSpec) -> Vec<(usize, usize)>),
}

/// A published layout of expert tensors. `{l}` layer, `{e}` expert.
#[derive(Debug, Clone, Copy)]
pub enum Experts {
    /// One `[out, in]` tensor for each of gate, up, down.
    Each {
        /// Patterns of gate, up, down.
        names: [&'static str; 3],
    },
    /// Gate and up of all experts in one tensor, down in another.
    Stacked {
        /// Pattern of gate and up.
        gate_up: &'static str,
        /// Pattern of down.
        down: &'static str,
        /// `[E, in, out]` rather than `[E, out, in]`.
        transposed: bool,
        /// Gate and up rows alternate rather than gate first.
        interleaved: bool,
        /// Patterns of the biases `[E, out]`.
        biases: Option<[&'static str; 2]>,
    },
}

/// Tensors to be skipped, and why.
#[derive(Debug, Clone, Copy)]
pub struct Skip {
    /// The rule's name, as reported.
    pub rule: &'static str,
    /// Beginning of the names; `{L}` is the number of layers: names of that layer and of later ones.
    pub prefix: &'static str,
}

/// What a `config.json` alone says: the spec, its family, and what no tensor has confirmed.
#[derive(Debug)]
pub struct ConfigPlan {
    /// The model.
    pub spec: ModelSpec,
    /// Layers for multi-token prediction that the config announces.
    pub mtp_layers: usize,
}

/// Resolves a config by its `model_type`.
///
/// # Errors
/// As [`crate::Checkpoint::open`], for what a config can get wrong.
pub fn spec_from_config(text: &str, options: &crate::OpenOptions) -> Result<ConfigPlan, CheckpointError> {
    let config = Config::parse(text)?;
    let family = by_model_type(&config.model_type()?)?;
    let spec = (family.resolve)(&config)?;
    config.finish(family.idle, &options.ignore_config)?;
    Ok(ConfigPlan { spec, mtp_layers: 0 })
}
