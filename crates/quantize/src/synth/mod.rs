//! Random checkpoints and vaults of named shapes: what to measure with where nobody wants to download 60 GB.

mod checkpoint;
mod shape;
mod vault;

use crate::control::Control;
use crate::error::{QuantizeError, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shape::Shape;
use std::path::Path;

pub use checkpoint::checkpoint;
pub use vault::vault;

/// What to write.
#[derive(Debug, Clone)]
pub struct SynthOptions {
    /// A name of [`shape_names`].
    pub shape: String,
    /// Sizes that differ from the named shape's.
    pub overrides: Overrides,
    /// Seed of the weights.
    pub seed: u64,
    /// Replace what is at the target.
    pub force: bool,
}

/// Sizes in place of the shape's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overrides {
    /// Decoder layers.
    pub layers: Option<usize>,
    /// Positions that the config announces.
    pub context: Option<usize>,
    /// Routed experts a layer.
    pub experts: Option<usize>,
    /// Experts a token.
    pub top_k: Option<usize>,
    /// Rows of the embedding.
    pub vocab: Option<usize>,
}

/// What was written.
#[derive(Debug, Clone, Serialize)]
pub struct SynthReport {
    /// The target.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// Files in it.
    pub files: usize,
    /// Weights in it.
    pub parameters: u64,
    /// Time taken.
    pub seconds: f64,
}

/// The shapes by name, with what each is for.
const SHAPES: [(&str, &str); 5] = [
    ("qwen3-30b-a3b", include_str!("../../shapes/qwen3-30b-a3b.json")),
    ("qwen3-235b-a22b", include_str!("../../shapes/qwen3-235b-a22b.json")),
    ("wide-embedding", include_str!("../../shapes/wide-embedding.json")),
    ("tiny", include_str!("../../shapes/tiny.json")),
    ("tiny-odd", include_str!("../../shapes/tiny-odd.json")),
];

/// Names of the shapes: two released models; one whose embedding is over 1 GB; a tiny one for tests; and a tiny one whose
/// rows are no multiples of 64.
pub fn shape_names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|(name, _)| *name)
}

/// The config.json of a shape, and its sizes.
fn config(options: &SynthOptions) -> Result<(Value, Shape)> {
    let Some((_, text)) = SHAPES.iter().find(|(name, _)| *name == options.shape) else {
        let known = shape_names().collect::<Vec<_>>().join(", ");
        return Err(QuantizeError::Refused(format!("no shape is named `{}`; known are {known}", options.shape)));
    };
    let mut config: Value =
        serde_json::from_str(text).map_err(|e| QuantizeError::Refused(format!("{}: {e}", options.shape)))?;
    let o = options.overrides;
    let sizes = [
        ("num_hidden_layers", o.layers),
        ("max_position_embeddings", o.context),
        ("num_experts", o.experts),
        ("num_experts_per_tok", o.top_k),
        ("vocab_size", o.vocab),
    ];
    for (key, value) in sizes {
        match value {
            Some(0) => return Err(QuantizeError::Refused(format!("{key}: expected 1 or more, found 0"))),
            Some(value) => config[key] = value.into(),
            None => {}
        }
    }
    let (experts, top_k) = (&config["num_experts"], &config["num_experts_per_tok"]);
    if top_k.as_u64() > experts.as_u64() {
        return Err(QuantizeError::Refused(format!("expected at most {experts} experts a token, found {top_k}")));
    }
    let sizes = Shape::deserialize(&config).map_err(|e| QuantizeError::Refused(format!("{}: {e}", options.shape)))?;
    Ok((config, sizes))
}

/// Refuses what would fail later: a folder that cannot be written, a full drive.
fn require_room(path: &Path, bytes: u64, control: &Control<'_>) -> Result<()> {
    control.check()?;
    let parent = crate::disk::parent(path);
    crate::disk::require_writable(&parent)?;
    crate::disk::require_space(&parent, bytes)
}
