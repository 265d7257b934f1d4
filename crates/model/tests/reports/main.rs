//! What public reports of checkpoints that went wrong ask for; `docs/checkpoint-reports.md` says which report each test
//! answers. Every guard is tested for its kind: over all families, or all forms of the same thing.

#[path = "../forge/mod.rs"]
mod forge;

mod blocks;
mod config;
mod experts;
mod files;
mod head;
mod prediction;

use serde_json::Value;
use smoe_model::spec::{Gqa, Mixer, Rope};
use smoe_model::{ConfigPlan, ModelSpec, OpenOptions, families};

/// What a config alone means.
fn plan(config: &Value) -> Result<ConfigPlan, String> {
    families::spec_from_config(&config.to_string(), &OpenOptions::default()).map_err(|e| e.to_string())
}

fn spec(config: &Value) -> ModelSpec {
    plan(config).unwrap_or_else(|e| panic!("{e}: {config}")).spec
}

/// The object that holds a model's own keys: a wrapper's inner config, or all of it.
fn inner(config: &mut Value) -> &mut Value {
    if config.get("text_config").is_some() { &mut config["text_config"] } else { config }
}

fn remove(config: &mut Value, key: &str) -> Option<Value> {
    config.as_object_mut().expect("an object").remove(key)
}

fn gqa(mixer: &Mixer) -> Option<&Gqa> {
    if let Mixer::Gqa(gqa) = mixer { Some(gqa) } else { None }
}

fn ropes(spec: &ModelSpec) -> Vec<Rope> {
    let of = |mixer: &Mixer| match mixer {
        Mixer::Gqa(gqa) => gqa.rope.clone(),
        Mixer::Mla(mla) => Some(mla.rope.clone()),
        _ => None,
    };
    spec.layers.iter().filter_map(|layer| of(&layer.mixer)).collect()
}
