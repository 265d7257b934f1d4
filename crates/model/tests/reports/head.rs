//! The head: tied or its own, in every family, by the config alone.

use super::forge::{Model, golden_configs, of_config};
use super::{inner, plan};
use serde_json::json;
use smoe_model::role::Role;
use smoe_model::spec::Head;
use smoe_model::store::TensorStore;

const HEAD: &str = "lm_head.weight";

/// A model of each family that may tie, tied, without a head.
fn tied() -> Vec<(String, Model)> {
    let mut all = Vec::new();
    for (name, mut config) in golden_configs() {
        for key in ["tie_word_embeddings", "tie_embedding"] {
            if key == "tie_word_embeddings" || config.get(key).is_some() {
                config[key] = json!(true);
            }
            let keys = inner(&mut config);
            if key == "tie_word_embeddings" || keys.get(key).is_some() {
                keys[key] = json!(true);
            }
        }
        match plan(&config) {
            Ok(plan) => {
                assert!(plan.spec.head == Head::Tied, "{name}");
                all.push((name, of_config(config)));
            }
            // A head with a bias cannot be the embedding.
            Err(e) => assert!(e.contains("tie_word_embeddings") || e.contains("lm_head_bias"), "{name}: {e}"),
        }
    }
    assert!(all.len() >= 20, "{} families may tie", all.len());
    all
}

#[test]
fn every_family_may_tie_and_then_the_head_is_the_embedding() {
    for (name, model) in tied() {
        assert!(!model.tensors.contains_key(HEAD), "{name}");
        let found = model.open().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!found.bindings().trunk.contains_key(&Role::Head), "{name}");
    }
}

#[test]
fn a_tied_models_own_head_must_be_its_embedding() {
    for (name, model) in tied() {
        let embedding = model.tensors.keys().find(|name| name.ends_with("embed_tokens.weight")).expect("one").clone();
        let mut same = model.clone();
        same.tensors.insert(HEAD.into(), model.tensors[&embedding].clone());
        let notes = same.open().unwrap_or_else(|e| panic!("{name}: {e}")).report().notes.join("\n");
        assert!(notes.contains(&format!("`{HEAD}` equals `{embedding}` and is dropped: the head is tied")), "{notes}");
        let mut other = same;
        let last = other.tensor(HEAD).2.len() - 1;
        other.tensor(HEAD).2[last] ^= 1;
        assert_eq!(
            other.refusal(),
            format!(
                "model.safetensors: `{HEAD}`: config.json ties the head to `{embedding}`, and this head differs from \
                 it; set tie_word_embeddings to the truth"
            ),
            "{name}"
        );
    }
}

#[test]
fn an_untied_model_without_its_head_is_refused() {
    for (name, config) in golden_configs() {
        let mut model = of_config(config);
        if model.tensors.remove(HEAD).is_some() {
            let refusal = model.refusal();
            assert!(refusal.contains(&format!("`{HEAD}`: in no file")), "{name}: {refusal}");
        }
    }
}
