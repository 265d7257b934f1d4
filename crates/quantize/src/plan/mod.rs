//! Sizes and speeds before anything is converted: from a checkpoint's headers, a vault, or a config.json alone.

mod sizes;
mod source;

use crate::error::Result;
use serde::Serialize;
use smoe_codec::Codec;
use std::path::Path;

pub use sizes::{ExpertBytes, ExpertsPerSecond, MemoryFloor};

/// What to plan for.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// The codec of the experts.
    pub codec: Codec,
    /// Tokens that the caches must hold.
    pub context: usize,
    /// How fast the drive reads.
    pub drive_gbps: f64,
    /// Memory that may be used; `None` for what this machine has.
    pub ram: Option<u64>,
    /// Config keys to pass over.
    pub ignore_config: Vec<String>,
}

/// Tokens a second that the drive allows; reading is all that counts here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TokensPerSecond {
    /// Every expert read from the drive.
    pub cold: f64,
    /// Uniform routing over the share of experts that memory holds; `None` where it holds all of them and the drive
    /// limits nothing.
    pub warm: Option<f64>,
}

/// The answer. Sizes are bytes, counts are elements.
#[derive(Debug, Clone, Serialize)]
pub struct PlanReport {
    /// "checkpoint headers", "vault" or "config.json alone".
    pub source: &'static str,
    /// The family's published name.
    pub family: String,
    /// The codec that the plan is for.
    pub codec: &'static str,
    /// Every weight of the text model.
    pub parameters: u64,
    /// Weights that one token uses, both embedding tables counted.
    pub active_parameters: u64,
    /// Weights of the trunk.
    pub trunk_parameters: u64,
    /// Weights of all routed experts.
    pub expert_parameters: u64,
    /// Layers with experts.
    pub moe_layers: usize,
    /// Routed experts of the widest layer.
    pub experts_per_layer: usize,
    /// Experts that a token visits in that layer.
    pub top_k: usize,
    /// One expert, by codec.
    pub expert_bytes: ExpertBytes,
    /// Experts that the drive delivers.
    pub experts_per_second: ExpertsPerSecond,
    /// The vault's file.
    pub vault_bytes: u64,
    /// Whether `vault_bytes` is the exact length, rather than blobs and trunk alone.
    pub vault_bytes_exact: bool,
    /// The trunk.
    pub trunk_bytes: u64,
    /// All expert blobs.
    pub all_expert_bytes: u64,
    /// The blobs that one token visits.
    pub token_cycle_bytes: u64,
    /// The least memory that runs the model.
    pub memory_floor_bytes: u64,
    /// What it consists of.
    pub memory_floor: MemoryFloor,
    /// The context planned for.
    pub context: usize,
    /// The drive planned for.
    pub drive_gbps: f64,
    /// The memory planned for.
    pub ram_bytes: Option<u64>,
    /// Whether the memory reaches the floor.
    pub fits: Option<bool>,
    /// Speeds.
    pub tokens_per_second: TokensPerSecond,
    /// Layers for multi-token prediction that are announced or present; not in `parameters`.
    pub mtp_layers: usize,
    /// Weights of skipped tensors by the rule that skips them; not in `parameters`.
    pub skipped_parameters: std::collections::BTreeMap<String, u64>,
    /// What the reader should know, one line each.
    pub notes: Vec<String>,
}

/// Plans `path`: a checkpoint folder, a vault, or a config.json.
///
/// # Errors
/// What refuses the checkpoint, the vault or the config.
pub fn plan(path: &Path, options: &PlanOptions) -> Result<PlanReport> {
    let source = source::read(path, options)?;
    let sizes = sizes::measure(&source, options)?;
    let ram = options.ram.or_else(smoe_engine::machine_memory);
    let floor = sizes.floor.total();
    let rate = options.drive_gbps * 1e9;
    let cycle = sizes.token_cycle as f64;
    let cached = ram.map(|ram| {
        // The floor already holds one token cycle of experts.
        let room = ram.saturating_sub(floor - sizes.floor.token_cycle);
        (room as f64 / sizes.all_experts.max(1) as f64).min(1.0)
    });
    let cold = rate / cycle;
    let warm = match cached {
        Some(share) if share >= 1.0 => None,
        Some(share) => Some(cold / (1.0 - share)),
        None => Some(cold),
    };
    let mut notes = source.notes;
    if warm.is_none() {
        notes.push("all experts fit into memory: once they are read, the drive limits nothing".into());
    }
    if let Some(ram) = ram.filter(|&ram| ram < floor) {
        notes.push(format!("memory of {ram} B is below the floor of {floor} B: the model will not run in it"));
    }
    Ok(PlanReport {
        source: source.kind,
        family: source.spec.family.clone(),
        codec: sizes.codec_name,
        parameters: sizes.counts.total,
        active_parameters: sizes.counts.active,
        trunk_parameters: sizes.counts.trunk,
        expert_parameters: sizes.counts.experts,
        moe_layers: source.spec.moe_layers().count(),
        experts_per_layer: sizes.experts_per_layer,
        top_k: sizes.top_k,
        expert_bytes: sizes.expert_bytes,
        experts_per_second: sizes.expert_bytes.per_second(rate),
        vault_bytes: sizes.vault,
        vault_bytes_exact: sizes.vault_exact,
        trunk_bytes: source.trunk_bytes,
        all_expert_bytes: sizes.all_experts,
        token_cycle_bytes: sizes.token_cycle,
        memory_floor_bytes: floor,
        memory_floor: sizes.floor,
        context: options.context,
        drive_gbps: options.drive_gbps,
        ram_bytes: ram,
        fits: ram.map(|ram| ram >= floor),
        tokens_per_second: TokensPerSecond { cold, warm },
        mtp_layers: source.mtp_layers,
        skipped_parameters: source.skipped,
        notes,
    })
}
