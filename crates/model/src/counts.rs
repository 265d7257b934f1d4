//! Parameter counts of a spec. Weights are counted as elements; the scales of block formats are not weights.

use crate::needs::{part_shape, trunk_needs};
use crate::role::Role;
use crate::spec::{Head, LayerSpec, Mlp, ModelSpec, MoeSpec};

/// How many weights a model has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// All weights, without prediction layers and vision.
    pub total: u64,
    /// Weights that one token uses: everything but the experts that are not chosen.
    pub active: u64,
    /// Weights of all routed experts, biases included.
    pub experts: u64,
    /// `total - experts`.
    pub trunk: u64,
    /// The embedding.
    pub embedding: u64,
    /// The head; 0 where it is the embedding.
    pub head: u64,
}

/// Weights of one routed expert, its biases included.
#[must_use]
pub fn expert_elements(spec: &ModelSpec, moe: &MoeSpec) -> u64 {
    let (hidden, width) = (spec.hidden as u64, moe.width as u64);
    let biases = if moe.expert_bias { 2 * width + hidden } else { 0 };
    3 * hidden * width + biases
}

/// Counts a model.
#[must_use]
pub fn counts(spec: &ModelSpec) -> Counts {
    let trunk: u64 = trunk_needs(spec).iter().map(|(_, shape)| elements(shape)).sum();
    let (mut experts, mut chosen) = (0, 0);
    for (_, moe) in spec.moe_layers() {
        let one = expert_elements(spec, moe);
        experts += one * moe.experts as u64;
        chosen += one * moe.top_k as u64;
    }
    let embedding = spec.vocab as u64 * spec.hidden as u64;
    let head = if spec.head == Head::Tied { 0 } else { embedding };
    Counts { total: trunk + experts, active: trunk + chosen, experts, trunk, embedding, head }
}

/// Weights of one layer, experts included.
pub(crate) fn layer_weights(spec: &ModelSpec, layer: &LayerSpec) -> u64 {
    let trunk: u64 =
        crate::role::Part::ALL.iter().filter_map(|part| part_shape(spec, layer, *part)).map(|s| elements(&s)).sum();
    match &layer.mlp {
        Mlp::Dense { .. } => trunk,
        Mlp::Moe(moe) => trunk + expert_elements(spec, moe) * moe.experts as u64,
    }
}

/// Weights of a prediction layer like the last layer: the projection of two hidden states and three norms besides.
pub(crate) fn prediction_layer(spec: &ModelSpec) -> u64 {
    let hidden = spec.hidden as u64;
    let norm = crate::needs::role_shape(spec, Role::FinalNorm).map_or(hidden, |s| elements(&s));
    spec.layers.last().map_or(0, |layer| 2 * hidden * hidden + 3 * norm + layer_weights(spec, layer))
}

fn elements(shape: &[usize]) -> u64 {
    shape.iter().map(|axis| *axis as u64).product()
}
