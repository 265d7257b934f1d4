//! Rotary embeddings: from the keys of either generation of configs to the table that the engine multiplies with.
//!
//! Both `rope_theta` with `rope_scaling`, and `rope_parameters`, are read; where both say a thing they must agree.
//! Formulas: YaRN (Peng et al. 2023, section 3.4), LongRoPE's short factors, the fixed NTK base of `alpha`.

use super::{Field, Values, read_flat};
use crate::error::CheckpointError;
use crate::spec::{Rope, RopePairing};
use serde_json::{Map, Value};
use std::f64::consts::PI;

/// Keys that any kind may have. The sections of multi-axis positions say nothing about text.
const COMMON: [&str; 6] =
    ["rope_theta", "rope_type", "type", "partial_rotary_factor", "mrope_section", "mrope_interleaved"];

/// What a mixer needs.
pub(crate) struct RopeRequest {
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// How channels pair.
    pub(crate) pairing: RopePairing,
    /// Whether the family rotates a share of the head where a key says so.
    pub(crate) partial: bool,
    /// Whether `dynamic` with `alpha` is this family's fixed NTK base.
    pub(crate) alpha: bool,
}

/// A rotary embedding and the factor of the attention logits that latent attention takes with it.
pub(crate) fn resolve(values: &Values, request: &RopeRequest) -> Result<(Rope, f64), CheckpointError> {
    let part = Part::new(values)?;
    let theta = theta(values, &part)?;
    let dim = width(values, &part, request)?;
    let mut table = Table { dim, theta, inv_freq: plain(theta, dim), amplitude: 1.0, logit_factor: 1.0, limit: None };
    let kind = part.kind()?;
    let origin = match kind {
        "default" => part.known(&[]).map(|()| String::new())?,
        "linear" => table.linear(&part)?,
        "yarn" => table.yarn(&part)?,
        "longrope" | "su" => table.longrope(&part, values)?,
        "dynamic" if request.alpha => table.alpha(&part)?,
        _ => {
            return Err(part
                .fault("rope_type", format!("`{kind}` is not supported; expected default, linear, yarn or longrope")));
        }
    };
    if kind != "longrope" && kind != "su" && values.get(Field::OriginalContext).is_some() {
        return Err(values.fault(
            Field::OriginalContext,
            format!("without a rotary scaling that uses it (rope_type is `{kind}`); `rope_scaling` is missing"),
        ));
    }
    let rope = Rope {
        dim,
        pairing: request.pairing,
        inv_freq: table.inv_freq.iter().map(|f| *f as f32).collect(),
        amplitude: table.amplitude as f32,
        origin: format!("theta {theta}{origin}"),
        limit: table.limit,
    };
    Ok((rope, table.logit_factor))
}

/// The object with the scaling, under whichever name.
struct Part<'a> {
    object: Option<&'a Map<String, Value>>,
    key: String,
}

impl<'a> Part<'a> {
    fn new(values: &'a Values) -> Result<Self, CheckpointError> {
        let (old, new) = (values.object(Field::RopeScaling)?, values.object(Field::RopeParameters)?);
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            let text = format!("differs from `{}`; keep one of them", values.key(Field::RopeScaling));
            return Err(values.fault(Field::RopeParameters, text));
        }
        let field = if new.is_some() { Field::RopeParameters } else { Field::RopeScaling };
        let part = Self { object: new.or(old), key: values.key(field).to_owned() };
        match part.object.and_then(|o| o.iter().find(|(_, value)| value.is_object())) {
            Some((key, _)) => Err(part.fault(key, "an own rotary embedding for a kind of layer is not supported")),
            None => Ok(part),
        }
    }

    fn fault(&self, key: &str, text: impl Into<String>) -> CheckpointError {
        CheckpointError::key(format!("{}.{key}", self.key), text)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.object?.get(key).filter(|value| !value.is_null())
    }

    fn kind(&self) -> Result<&'a str, CheckpointError> {
        match (self.get("rope_type"), self.get("type")) {
            (Some(a), Some(b)) if a != b => {
                Err(self.fault("rope_type", format!("is {a}, and `type` is {b}; keep one")))
            }
            (None, None) => Ok("default"),
            (a, b) => a.or(b).and_then(Value::as_str).ok_or_else(|| self.fault("rope_type", "expected a word")),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(n) if n.is_finite() => Ok(Some(n)),
            _ => Err(self.fault(key, format!("expected a number, found {value}"))),
        }
    }

    /// A number above 0.
    fn positive(&self, key: &str) -> Result<f64, CheckpointError> {
        match self.number(key)? {
            Some(n) if n > 0.0 => Ok(n),
            Some(n) => Err(self.fault(key, format!("expected a number above 0, found {n}"))),
            None => Err(self.fault(key, "missing")),
        }
    }

    fn known(&self, keys: &[&str]) -> Result<(), CheckpointError> {
        let all: Vec<&str> = COMMON.iter().chain(keys).copied().collect();
        self.object.map_or(Ok(()), |object| read_flat(object, &self.key, &all))
    }

    fn factors(&self, key: &str, pairs: usize) -> Result<Vec<f64>, CheckpointError> {
        let list: Option<Vec<f64>> =
            self.get(key).and_then(Value::as_array).and_then(|list| list.iter().map(Value::as_f64).collect());
        match list {
            Some(list) if list.len() == pairs && list.iter().all(|f| f.is_finite() && *f > 0.0) => Ok(list),
            Some(list) => {
                Err(self.fault(key, format!("expected {pairs} numbers above 0, found {} values", list.len())))
            }
            None => Err(self.fault(key, format!("expected a list of {pairs} numbers"))),
        }
    }
}

fn theta(values: &Values, part: &Part<'_>) -> Result<f64, CheckpointError> {
    let outer = values.number_or_off(Field::RopeTheta)?;
    let theta = match (outer, part.number("rope_theta")?) {
        (Some(a), Some(b)) if a != b => {
            let text = format!("is {b}, and `{}` is {a}; keep the right one", values.key(Field::RopeTheta));
            return Err(part.fault("rope_theta", text));
        }
        (a, b) => a.or(b),
    };
    match theta {
        Some(theta) if theta > 1.0 => Ok(theta),
        Some(theta) => Err(CheckpointError::key("rope_theta", format!("expected a number above 1, found {theta}"))),
        None => Err(CheckpointError::key("rope_theta", "missing, and no `rope_parameters.rope_theta` either")),
    }
}

/// The rotated channels: derived here and nowhere else.
fn width(values: &Values, part: &Part<'_>, request: &RopeRequest) -> Result<usize, CheckpointError> {
    let share = match part.number("partial_rotary_factor")? {
        Some(share) => Some(share),
        None => values.number_or_off(Field::PartialRotary)?,
    };
    let head = request.head_dim;
    if let Some(share) = share.filter(|share| !request.partial && *share != 1.0) {
        let text = format!("{share} is not supported: this family rotates whole heads; expected 1");
        return Err(CheckpointError::key("partial_rotary_factor", text));
    }
    let by_share = share.map(|share| (head as f64 * share) as usize);
    let fault = |text: String| Err(CheckpointError::key("partial_rotary_factor", text));
    let dim = match (by_share, values.size_or_off(Field::RotaryDim)?) {
        (Some(a), Some(b)) if a != b => {
            return fault(format!("rotates {a} of {head} channels, `{}` says {b}", values.key(Field::RotaryDim)));
        }
        (a, b) => a.or(b).unwrap_or(head),
    };
    if dim == 0 || dim > head || dim % 2 == 1 {
        return fault(format!("rotates {dim} of {head} channels; expected an even number from 2 to {head}"));
    }
    Ok(dim)
}

/// `theta^(-2 i / dim)`.
fn plain(theta: f64, dim: usize) -> Vec<f64> {
    (0..dim / 2).map(|i| theta.powf(-2.0 * i as f64 / dim as f64)).collect()
}

struct Table {
    dim: usize,
    theta: f64,
    inv_freq: Vec<f64>,
    amplitude: f64,
    logit_factor: f64,
    limit: Option<usize>,
}

/// YaRN's `0.1 m ln s + 1`.
fn mscale(factor: f64, m: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 }
}

impl Table {
    fn linear(&mut self, part: &Part<'_>) -> Result<String, CheckpointError> {
        part.known(&["factor"])?;
        let factor = part.positive("factor")?;
        self.inv_freq.iter_mut().for_each(|f| *f /= factor);
        Ok(format!(", linear factor {factor}"))
    }

    fn alpha(&mut self, part: &Part<'_>) -> Result<String, CheckpointError> {
        part.known(&["alpha", "factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"])?;
        let alpha = part.positive("alpha")?;
        if self.dim < 4 {
            return Err(part.fault("alpha", format!("needs a rotated width of at least 4, found {}", self.dim)));
        }
        let dim = self.dim as f64;
        self.inv_freq = plain(self.theta * alpha.powf(dim / (dim - 2.0)), self.dim);
        Ok(format!(", NTK alpha {alpha}"))
    }

    fn longrope(&mut self, part: &Part<'_>, values: &Values) -> Result<String, CheckpointError> {
        part.known(&[
            "short_factor",
            "long_factor",
            "short_mscale",
            "long_mscale",
            "original_max_position_embeddings",
        ])?;
        let short = part.factors("short_factor", self.dim / 2)?;
        part.factors("long_factor", self.dim / 2)?;
        self.inv_freq.iter_mut().zip(&short).for_each(|(f, short)| *f /= short);
        self.amplitude = part.positive("short_mscale")?;
        part.positive("long_mscale")?;
        let inner = part.number("original_max_position_embeddings")?.map(|n| n as usize);
        let outer = values.size_or_off(Field::OriginalContext)?;
        let original = match (inner, outer) {
            (Some(a), Some(b)) if a != b => {
                let text = format!("is {a}, and `{}` is {b}", values.key(Field::OriginalContext));
                return Err(part.fault("original_max_position_embeddings", text));
            }
            (a, b) => a.or(b).filter(|n| *n > 0),
        };
        let original = original.ok_or_else(|| part.fault("original_max_position_embeddings", "missing"))?;
        self.limit = Some(original);
        Ok(format!(", longrope of {original}"))
    }

    fn yarn(&mut self, part: &Part<'_>) -> Result<String, CheckpointError> {
        part.known(&[
            "factor",
            "original_max_position_embeddings",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "attention_factor",
            "truncate",
        ])?;
        let factor = part.positive("factor")?;
        let original = part.positive("original_max_position_embeddings")?;
        let set = |n: Option<f64>| n.filter(|n| *n != 0.0);
        let fast = set(part.number("beta_fast")?).unwrap_or(32.0);
        let slow = set(part.number("beta_slow")?).unwrap_or(1.0);
        self.ramp(factor, original, (fast, slow), truncates(part)?);
        let (m, all) = (set(part.number("mscale")?), set(part.number("mscale_all_dim")?));
        if m.is_some() != all.is_some() {
            // The published implementations differ here.
            return Err(part.fault("mscale", "set without `mscale_all_dim`, or the reverse; expected both or none"));
        }
        self.amplitude = match (part.number("attention_factor")?, m, all) {
            (Some(given), _, _) => given,
            (None, Some(m), Some(all)) => mscale(factor, m) / mscale(factor, all),
            (None, ..) => mscale(factor, 1.0),
        };
        self.logit_factor = all.map_or(1.0, |all| mscale(factor, all).powi(2));
        Ok(format!(", yarn factor {factor} of {original}"))
    }

    /// Pairs that turn often within the original context keep their angle, those that turn rarely are stretched.
    fn ramp(&mut self, factor: f64, original: f64, (fast, slow): (f64, f64), truncate: bool) {
        let dim = self.dim as f64;
        let pair_of = |turns: f64| dim * (original / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
        let (mut low, mut high) = (pair_of(fast), pair_of(slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, mut high) = (low.max(0.0), high.min(dim - 1.0));
        if low == high {
            high += 0.001;
        }
        for (i, f) in self.inv_freq.iter_mut().enumerate() {
            let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            *f = *f / factor * stretched + *f * (1.0 - stretched);
        }
    }
}

fn truncates(part: &Part<'_>) -> Result<bool, CheckpointError> {
    // Null counts as false in the reference, a missing key as true.
    match part.object.and_then(|object| object.get("truncate")) {
        None => Ok(true),
        Some(value) => value.as_bool().ok_or_else(|| part.fault("truncate", "expected true or false")),
    }
}
