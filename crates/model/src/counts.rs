//! Counting parameters of a [`ModelSpec`].

use crate::needs::trunk_needs;
use crate::role::{Part, Role};
use crate::spec::{ModelSpec, MoeSpec};

/// Elements by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// All weights.
    pub total: u64,
    /// Weights used for one token, both embedding tables included.
    pub active: u64,
    /// Weights of all routed experts.
    pub experts: u64,
    /// All others.
    pub trunk: u64,
}

/// Counts the weights of `spec`.
pub fn counts(spec: &ModelSpec) -> Counts {
    let elements = |shape: &[usize]| shape.iter().map(|&d| d as u64).product::<u64>();
    // The selection bias is state of the router's balancing and is not counted as a weight.
    let trunk: u64 = trunk_needs(spec)
        .iter()
        .filter(|(role, _)| !matches!(role, Role::Layer(_, Part::RouterSelectionBias)))
        .map(|(_, shape)| elements(shape))
        .sum();
    let of = |moe: &MoeSpec, n: usize| n as u64 * expert_elements(spec, moe);
    let experts = spec.moe_layers().map(|(_, moe)| of(moe, moe.experts)).sum::<u64>();
    let chosen = spec.moe_layers().map(|(_, moe)| of(moe, moe.top_k)).sum::<u64>();
    Counts { total: trunk + experts, active: trunk + chosen, experts, trunk }
}

/// Weights (and biases) of one expert.
pub fn expert_elements(spec: &ModelSpec, moe: &MoeSpec) -> u64 {
    let biases = if moe.expert_bias { 2 * moe.width + spec.hidden } else { 0 };
    (3 * moe.width * spec.hidden + biases) as u64
}
