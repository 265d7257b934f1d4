//! What several families resolve alike: rotary tables, control tokens.

use crate::config::{Config, FILE, wrong};
use crate::error::CheckpointError;
use crate::spec::{ControlTokens, Rope, RopePairing};
use serde_json::Value;

/// The rotary base, from `rope_theta` or `rope_parameters.rope_theta`; both must agree.
pub fn rope_theta(config: &Config) -> Result<f64, CheckpointError> {
    let flat = config.get("rope_theta").cloned();
    let nested = config.get("rope_parameters").and_then(|p| p.get("rope_theta")).cloned();
    let found = match (flat, nested) {
        (Some(a), Some(b)) if a.as_f64() != b.as_f64() => {
            return Err(CheckpointError::item(
                FILE,
                "rope_theta",
                format!("is {a}, and rope_parameters.rope_theta is {b}"),
            ));
        }
        (Some(a), _) | (None, Some(a)) => a,
        (None, None) => {
            return Err(CheckpointError::item(
                FILE,
                "rope_theta",
                "expected a number, found neither it nor rope_parameters.rope_theta",
            ));
        }
    };
    found.as_f64().filter(|t| t.is_finite() && *t > 0.0).ok_or_else(|| wrong("rope_theta", "a positive number", &found))
}

/// The plain table of a base, in f32 as the reference computes it.
pub fn plain_rope(theta: f64, dim: usize, pairing: RopePairing) -> Rope {
    let inv_freq = (0..dim / 2).map(|i| 1.0 / (theta as f32).powf((2 * i) as f32 / dim as f32)).collect();
    Rope { dim, pairing, inv_freq, amplitude: 1.0, origin: format!("theta {theta}"), limit: None }
}

/// A token id or a list of them.
pub fn ids(key: &str, value: &Value) -> Result<Vec<u32>, CheckpointError> {
    let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong(key, "a token id", v));
    match value {
        Value::Array(all) => all.iter().map(id).collect(),
        one => Ok(vec![id(one)?]),
    }
}

/// Control tokens by the config alone; `generation_config.json` may replace them.
pub fn tokens(config: &Config) -> Result<ControlTokens, CheckpointError> {
    let bos = config.get("bos_token_id").map(|v| ids("bos_token_id", v)).transpose()?.and_then(|v| v.first().copied());
    let eos = config.get("eos_token_id").map(|v| ids("eos_token_id", v)).transpose()?;
    let eos_source = if eos.is_some() { "config.json eos_token_id" } else { "none" };
    Ok(ControlTokens { bos, eos: eos.unwrap_or_default(), eos_source: eos_source.to_owned() })
}
