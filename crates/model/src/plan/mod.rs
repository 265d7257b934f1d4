//! From a config and a family's table to a [`ModelSpec`].

mod attention;
mod experts;
mod quantization;

pub(crate) use quantization::BlockFormat;

use crate::config::{Field, Source, Values, parse_config};
use crate::counts::prediction_layer;
use crate::error::CheckpointError;
use crate::families::{Arch, Family, Flag, by_model_type};
use crate::spec::{ControlTokens, Head, LayerSpec, ModelSpec, Multipliers, NormSpec};
use serde_json::{Map, Value};

/// Layers of a model: dozens of times more than any has, and their specs stay below 16 MiB.
const MAX_LAYERS: usize = 1 << 12;
/// Pairs in the rotary tables of all layers together: 16 MiB.
const MAX_ROPE_PAIRS: usize = 1 << 22;
/// Weights of a model.
const MAX_WEIGHTS: f64 = (1_u64 << 56) as f64;

/// How to open a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Config keys that are not looked at, with their parents where they have some (`text_config.x`).
    pub ignore_config: Vec<String>,
}

/// A model as its config alone describes it.
#[derive(Debug, Clone)]
pub struct ConfigPlan {
    /// The model.
    pub spec: ModelSpec,
    /// Layers for multi-token prediction that the config announces.
    pub mtp_layers: usize,
    /// Their weights; not in [`crate::counts`].
    pub prediction: u64,
    /// Weights of the vision tower that the config describes.
    pub vision: u64,
    /// Things to tell: values that have no effect, defaults that were taken.
    pub notes: Vec<String>,
    pub(crate) format: Option<BlockFormat>,
}

/// Plans a model from its `config.json`; no tensor confirms the family.
///
/// # Errors
/// A config that is not JSON, an unknown family, an unknown or missing key, a value that is not supported.
pub fn spec_from_config(config_json: &str, options: &OpenOptions) -> Result<ConfigPlan, CheckpointError> {
    let source = parse_config(config_json.as_bytes())?;
    let family = by_model_type(source.model_type()?)?;
    plan(&source, family, None, options)
}

/// Plans a model; `generation` is the content of `generation_config.json`.
pub(crate) fn plan(
    source: &Source,
    family: &'static Family,
    generation: Option<&Map<String, Value>>,
    options: &OpenOptions,
) -> Result<ConfigPlan, CheckpointError> {
    let values = source.read(family, &options.ignore_config)?;
    let mut builder = Builder { values: &values, arch: &family.arch, layers: 0, hidden: 0, notes: Vec::new() };
    let format = quantization::read(&values)?;
    let spec = builder.spec(family.name, source, generation)?;
    check_weights(&spec)?;
    let mtp_layers = values.count(Field::PredictionLayers)?.unwrap_or(0);
    let prediction = (mtp_layers as u64).saturating_mul(prediction_layer(&spec));
    let vision = family.vision.map_or(0, |count| source.outer.get("vision_config").and_then(count).unwrap_or(0));
    let notes = builder.notes;
    Ok(ConfigPlan { spec, mtp_layers, prediction, vision, notes, format })
}

/// Reads fields into a spec.
pub(crate) struct Builder<'a> {
    values: &'a Values,
    arch: &'a Arch,
    layers: usize,
    hidden: usize,
    notes: Vec<String>,
}

impl Builder<'_> {
    fn spec(
        &mut self,
        family: &str,
        source: &Source,
        generation: Option<&Map<String, Value>>,
    ) -> Result<ModelSpec, CheckpointError> {
        let values = self.values;
        (self.layers, self.hidden) = (values.size(Field::Layers)?, values.size(Field::Hidden)?);
        if self.layers > MAX_LAYERS {
            return Err(values.fault(Field::Layers, format!("{} layers, expected at most {MAX_LAYERS}", self.layers)));
        }
        let mixers = self.mixers()?;
        let mlps = self.mlps()?;
        let layers = mixers.into_iter().zip(mlps).map(|(mixer, mlp)| LayerSpec { mixer, mlp }).collect();
        let multiplier = |field| values.number_or_off(field).map(|n| n.unwrap_or(1.0) as f32);
        let logits_divisor = multiplier(Field::LogitsScaling)?;
        if logits_divisor == 0.0 {
            return Err(values.fault(Field::LogitsScaling, "expected a number other than 0"));
        }
        Ok(ModelSpec {
            family: family.to_owned(),
            vocab: values.size(Field::Vocab)?,
            hidden: self.hidden,
            layers,
            norm: NormSpec { kind: self.arch.norm, eps: self.eps()? },
            head: self.head(source)?,
            multipliers: Multipliers {
                embedding: multiplier(Field::EmbeddingMultiplier)?,
                residual: multiplier(Field::ResidualMultiplier)?,
                logits_divisor,
            },
            context: values.size(Field::Context)?,
            tokens: tokens(source, generation)?,
        })
    }

    fn eps(&self) -> Result<f32, CheckpointError> {
        Ok(self.values.positive(Field::NormEps)? as f32)
    }

    fn flag(&self, flag: Flag, field: Field) -> Result<bool, CheckpointError> {
        match flag {
            Flag::Yes => Ok(true),
            Flag::No => Ok(false),
            Flag::Key => self.values.flag(field),
        }
    }

    /// Tied by the text model's key; in a wrapper the outer key says the same or decides alone.
    fn head(&self, source: &Source) -> Result<Head, CheckpointError> {
        let inner = self.values.flag(Field::Tied)?;
        let outer = source.inner.and_then(|_| source.outer.get("tie_word_embeddings"));
        let said = source.text().get("tie_word_embeddings").and_then(Value::as_bool);
        let tied = match (outer.map(Value::as_bool), said) {
            (None, _) => inner,
            (Some(Some(outer)), Some(said)) if outer != said => {
                let text = format!("is {outer}, and `{}` is {said}; keep the right one", self.values.key(Field::Tied));
                return Err(CheckpointError::key("tie_word_embeddings", text));
            }
            (Some(Some(outer)), _) => outer,
            (Some(None), _) => return Err(CheckpointError::key("tie_word_embeddings", "expected true or false")),
        };
        let bias = self.flag(self.arch.head_bias, Field::HeadBias)?;
        match (tied, bias) {
            (true, true) => Err(self.values.fault(Field::HeadBias, "a bias on a tied head is not supported")),
            (true, false) => Ok(Head::Tied),
            (false, bias) => Ok(Head::Untied { bias }),
        }
    }

    /// The width of `n` heads, checked.
    fn product(&self, fields: [Field; 2], n: usize, width: usize) -> Result<usize, CheckpointError> {
        let product = n.checked_mul(width).filter(|product| *product <= 1 << 28);
        let [a, b] = fields.map(|field| self.values.key(field));
        product.ok_or_else(|| CheckpointError::key(a, format!("{n} times {width} of `{b}` is beyond any model")))
    }

    fn check_rope_pairs(&self, dim: usize) -> Result<(), CheckpointError> {
        if dim / 2 * self.layers > MAX_ROPE_PAIRS {
            let text = format!("{} layers with {dim} rotated channels are beyond any model", self.layers);
            return Err(self.values.fault(Field::Layers, text));
        }
        Ok(())
    }
}

/// Refuses sizes whose products could overflow further on.
fn check_weights(spec: &ModelSpec) -> Result<(), CheckpointError> {
    let product = |shape: &[usize]| shape.iter().map(|n| *n as f64).product::<f64>();
    let trunk: f64 = crate::needs::trunk_needs(spec).iter().map(|(_, shape)| product(shape)).sum();
    let experts: f64 = spec.moe_layers().map(|(_, moe)| 4.0 * product(&[moe.experts, moe.width, spec.hidden])).sum();
    if trunk + experts > MAX_WEIGHTS {
        let text = format!("its sizes make {:.1e} weights, beyond any model", trunk + experts);
        return Err(CheckpointError::file("config.json", text));
    }
    Ok(())
}

/// Stop ids from the generation config, then the config, then the text model's; the first that has them.
fn tokens(source: &Source, generation: Option<&Map<String, Value>>) -> Result<ControlTokens, CheckpointError> {
    let inner = source.inner.map(|key| (source.text(), format!("config.json {key}.")));
    let mut places: Vec<(&Map<String, Value>, String)> = Vec::new();
    places.extend(generation.map(|map| (map, "generation_config.json ".to_owned())));
    places.push((&source.outer, "config.json ".to_owned()));
    places.extend(inner);
    let mut tokens = ControlTokens { bos: None, eos: Vec::new(), eos_source: "none".into() };
    for (map, place) in &places {
        if tokens.eos.is_empty()
            && let Some(value) = map.get("eos_token_id").filter(|value| !value.is_null())
        {
            tokens.eos = ids(value).ok_or_else(|| bad_id(place, "eos_token_id", value))?;
            tokens.eos_source = format!("{place}eos_token_id");
        }
        if tokens.bos.is_none()
            && let Some(value) = map.get("bos_token_id").filter(|value| !value.is_null())
        {
            tokens.bos = Some(id(value).ok_or_else(|| bad_id(place, "bos_token_id", value))?);
        }
    }
    Ok(tokens)
}

fn bad_id(place: &str, key: &str, value: &Value) -> CheckpointError {
    let (file, parents) = place.split_once(' ').unwrap_or((place, ""));
    let fault = format!("expected a token id or a list of them, found {value}");
    CheckpointError::item(file, format!("{parents}{key}"), fault)
}

fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    match value {
        Value::Array(list) => list.iter().map(id).collect(),
        one => id(one).map(|id| vec![id]),
    }
}
