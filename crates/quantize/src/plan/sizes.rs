//! Arithmetic of a plan.

use super::PlanOptions;
use super::source::Source;
use crate::error::{QuantizeError, Result};
use serde::Serialize;
use smoe_codec::Codec;
use smoe_engine::MemoryEstimate;
use smoe_model::ModelSpec;
use smoe_model::counts::{Counts, counts, expert_elements};
use smoe_model::spec::MoeSpec;
use smoe_vault::{BLOB_ALIGN, BlobLayout};

/// Tokens of a chunk of prefill that the scratch is planned for.
const CHUNK: usize = 64;

/// Bytes of one expert of the widest layer: weights and scales, without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExpertBytes {
    /// As published.
    pub bf16: u64,
    /// `smoe-q4`.
    pub q4: u64,
    /// `smoe-q2`.
    pub q2: u64,
}

/// Experts of that size that the drive reads in a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ExpertsPerSecond {
    /// As published.
    pub bf16: f64,
    /// `smoe-q4`.
    pub q4: f64,
    /// `smoe-q2`.
    pub q2: f64,
}

impl ExpertBytes {
    fn new(spec: &ModelSpec, moe: &MoeSpec) -> Self {
        let coded = |codec: Codec| {
            let row = |cols: usize| (codec.code_bytes(cols) + codec.scale_bytes(cols)) as u64;
            let biases = if moe.expert_bias { 4 * (2 * moe.width + spec.hidden) as u64 } else { 0 };
            2 * moe.width as u64 * row(spec.hidden) + spec.hidden as u64 * row(moe.width) + biases
        };
        Self { bf16: 2 * expert_elements(spec, moe), q4: coded(Codec::Q4), q2: coded(Codec::Q2) }
    }

    pub(super) fn per_second(self, rate: f64) -> ExpertsPerSecond {
        let per = |bytes: u64| rate / bytes as f64;
        ExpertsPerSecond { bf16: per(self.bf16), q4: per(self.q4), q2: per(self.q2) }
    }
}

/// The least memory, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryFloor {
    /// The trunk, always in memory.
    pub trunk: u64,
    /// Keys, values, latents and states at the planned context.
    pub cache: u64,
    /// The experts that one token visits.
    pub token_cycle: u64,
    /// Activations of a pass.
    pub scratch: u64,
}

impl MemoryFloor {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.trunk + self.cache + self.token_cycle + self.scratch
    }
}

/// Measured sizes.
pub(super) struct Sizes {
    pub(super) counts: Counts,
    pub(super) codec_name: &'static str,
    pub(super) experts_per_layer: usize,
    pub(super) top_k: usize,
    pub(super) expert_bytes: ExpertBytes,
    pub(super) all_experts: u64,
    pub(super) token_cycle: u64,
    pub(super) vault: u64,
    pub(super) vault_exact: bool,
    pub(super) floor: MemoryFloor,
}

/// Bytes of an expert's blob.
fn blob_bytes(codec: Codec, hidden: usize, moe: &MoeSpec) -> Result<u64> {
    let narrow = |n: usize| {
        u32::try_from(n).map_err(|_| QuantizeError::Refused(format!("a width of {n} is beyond the vault's limit")))
    };
    let layout = BlobLayout::new([codec; 3], narrow(hidden)?, narrow(moe.width)?, moe.expert_bias)
        .map_err(|e| QuantizeError::Refused(e.to_string()))?;
    Ok(layout.len_bytes() as u64)
}

pub(super) fn measure(source: &Source, options: &PlanOptions) -> Result<Sizes> {
    let spec = &source.spec;
    let widest = spec.moe_layers().max_by_key(|(_, moe)| (expert_elements(spec, moe), moe.experts)).map(|(_, moe)| moe);
    let widest =
        widest.ok_or_else(|| QuantizeError::Refused("the model has no routed experts: nothing to plan".into()))?;
    let (mut all_experts, mut token_cycle, mut stored) = (0, 0, 0);
    for (_, moe) in spec.moe_layers() {
        let blob = blob_bytes(options.codec, spec.hidden, moe)?;
        all_experts += blob * moe.experts as u64;
        stored += blob.next_multiple_of(BLOB_ALIGN) * moe.experts as u64;
        token_cycle += blob * moe.top_k as u64;
    }
    let memory = MemoryEstimate::new(spec, source.trunk_bytes, token_cycle, options.context, CHUNK);
    let floor =
        MemoryFloor { trunk: source.trunk_bytes, cache: memory.cache, token_cycle, scratch: memory.activations };
    Ok(Sizes {
        counts: counts(spec),
        codec_name: options.codec.name(),
        experts_per_layer: widest.experts,
        top_k: widest.top_k,
        expert_bytes: ExpertBytes::new(spec, widest),
        all_experts,
        token_cycle,
        vault: source.vault_bytes.unwrap_or(stored + source.trunk_bytes),
        vault_exact: source.vault_bytes.is_some(),
        floor,
    })
}
