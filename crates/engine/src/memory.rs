//! What a model needs in memory, and what this process has used.

use smoe_model::spec::{Mixer, Mlp, ModelSpec};

/// Bytes in memory, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// Embedding, attention, norms, shared experts, head.
    pub trunk: u64,
    /// Routed experts.
    pub experts: u64,
    /// Keys and values, latents, recurrent states of one session.
    pub cache: u64,
    /// Activations of one pass.
    pub activations: u64,
}

impl MemoryEstimate {
    /// Estimates for one session with `tokens` positions in use, prefilled `chunk` tokens at a time.
    pub fn new(spec: &ModelSpec, trunk: u64, experts: u64, tokens: usize, chunk: usize) -> Self {
        // Saturating throughout: a context may be any number that a file or a user gives.
        let states = spec.layers.iter().map(|layer| state_floats(&layer.mixer, spec.hidden, tokens as u64));
        let cache = states.fold(0u64, u64::saturating_add);
        let widest = spec.layers.iter().map(|layer| layer_floats(layer, spec.hidden as u64)).max().unwrap_or(0);
        let chunk = chunk.min(tokens.max(1)) as u64;
        let logits = chunk.min(64) * spec.vocab as u64 * 2;
        let activations = chunk.saturating_mul(widest).saturating_add(logits).saturating_mul(4);
        Self { trunk, experts, cache: cache.saturating_mul(4), activations }
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        [self.experts, self.cache, self.activations].into_iter().fold(self.trunk, u64::saturating_add)
    }
}

/// f32 values that a layer remembers after `tokens` tokens.
fn state_floats(mixer: &Mixer, hidden: usize, tokens: u64) -> u64 {
    match mixer {
        Mixer::Gqa(gqa) => (2 * (gqa.kv_heads * gqa.head_dim) as u64).saturating_mul(tokens),
        Mixer::Mla(mla) => ((mla.kv_rank + mla.rope_dim) as u64).saturating_mul(tokens),
        Mixer::DeltaNet(d) => {
            let channels = 2 * d.key_heads * d.key_dim + d.value_heads * d.value_dim;
            (d.value_heads * d.key_dim * d.value_dim + d.conv_kernel * channels) as u64
        }
        Mixer::ShortConv { kernel, .. } => (kernel * hidden) as u64,
    }
}

/// f32 values a token that the widest moment of a layer holds.
fn layer_floats(layer: &smoe_model::spec::LayerSpec, hidden: u64) -> u64 {
    let mixer = match &layer.mixer {
        Mixer::Gqa(gqa) => 4 * (gqa.heads + gqa.kv_heads) * gqa.head_dim,
        Mixer::Mla(mla) => 3 * mla.heads * (mla.kv_rank + mla.rope_dim + mla.nope_dim + mla.v_dim),
        Mixer::DeltaNet(d) => 3 * (2 * d.key_heads * d.key_dim + 2 * d.value_heads * d.value_dim),
        Mixer::ShortConv { .. } => 6 * hidden as usize,
    } as u64;
    let mlp = match &layer.mlp {
        Mlp::Dense { width, .. } => 4 * *width as u64,
        Mlp::Moe(moe) => {
            moe.top_k as u64 * (3 * hidden + 4 * moe.width as u64) + 4 * moe.shared.map_or(0, |s| s.width) as u64
        }
    };
    4 * hidden + mixer.max(mlp)
}

/// The most memory that this process has held, as the kernel counts it; `None` where the system does not say.
pub fn peak_rss_bytes() -> Option<u64> {
    parse_status(&std::fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The memory that this process holds now, as the kernel counts it; `None` where the system does not say.
pub fn rss_bytes() -> Option<u64> {
    parse_status(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// A size in a `/proc/.../status`.
fn parse_status(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_kilobytes() {
        let status = "VmPeak:\t 9 kB\nVmHWM:\t    1024 kB\nVmRSS:\t 2 kB\n";
        assert_eq!(parse_status(status, "VmHWM:"), Some(1 << 20));
        assert_eq!(parse_status(status, "VmRSS:"), Some(2 << 10));
        assert_eq!(parse_status("VmHWM:\t x kB\n", "VmHWM:"), None);
        assert_eq!(parse_status("", "VmRSS:"), None);
    }
}
