//! Config keys: renamed, nested, absent, of several forms.

use super::forge::{golden_config, golden_configs, open, read_golden};
use super::{gqa, inner, plan, remove, ropes, spec};
use serde_json::{Value, json};
use smoe_model::spec::{Mlp, ModelSpec, NormKind, RouterScore};

/// The base of the rotary embedding, moved from where the config has it to the other place.
#[test]
fn the_rotary_base_is_read_in_either_place_and_in_none_it_is_missing() {
    for (name, config) in golden_configs() {
        let before = spec(&config);
        if ropes(&before).is_empty() {
            continue;
        }
        let mut moved = config.clone();
        let keys = inner(&mut moved);
        let nested = keys.get("rope_parameters").and_then(|p| p.get("rope_theta")).cloned();
        let Some(base) = remove(keys, "rope_theta").or(nested) else { panic!("{name}: no base") };
        match keys.get_mut("rope_parameters") {
            Some(parameters) => {
                remove(parameters, "rope_theta");
                keys["rope_theta"] = base;
            }
            // What scales it moves along: in this generation it is one object.
            None => {
                let mut parameters = remove(keys, "rope_scaling").filter(Value::is_object).unwrap_or(json!({}));
                parameters["rope_theta"] = base;
                keys["rope_parameters"] = parameters;
            }
        }
        assert_eq!(ropes(&spec(&moved)), ropes(&before), "{name}");
        let mut none = config;
        let keys = inner(&mut none);
        remove(keys, "rope_theta");
        remove(keys, "rope_parameters");
        let refusal = plan(&none).expect_err("no base");
        assert!(refusal.contains("rope_theta`: missing"), "{name}: {refusal}");
    }
}

/// Half of the head where the family's config class says so, a quarter where the config does; never scaled twice.
#[test]
fn the_rotated_share_of_a_head_is_the_familys_or_the_configs() {
    let widths = |config: &Value| {
        let spec = spec(config);
        let layer = spec.layers.iter().find_map(|layer| gqa(&layer.mixer)).expect("attention").clone();
        (layer.head_dim, layer.rope.expect("rotated").dim)
    };
    let mut glm = golden_config("glm4_moe");
    remove(&mut glm, "partial_rotary_factor");
    let (head, rotated) = widths(&glm);
    assert_eq!(2 * rotated, head, "half is the default of this family");
    let (head, rotated) = widths(&golden_config("qwen3_5_moe"));
    assert_eq!(4 * rotated, head, "a quarter is what this config says");
    let minimax = golden_config("minimax_m2");
    let (head, rotated) = widths(&minimax);
    assert_eq!(minimax["rotary_dim"], json!(rotated));
    assert!(rotated < head);
    let mut both = minimax;
    both["partial_rotary_factor"] = json!(rotated as f64 / head as f64);
    assert_eq!(widths(&both).1, rotated, "a share and a width are the same thing said twice");
}

/// A field that a vault lacks is an error, also where its value may be nothing: no reader falls back to a default.
#[test]
fn a_spec_without_one_of_its_fields_is_not_read() {
    fn each(value: &Value, at: &mut Vec<String>, see: &mut dyn FnMut(&[String])) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Value::Array(list) => list.iter().enumerate().map(|(i, value)| (i.to_string(), value)).collect(),
            _ => return,
        };
        for (key, child) in children {
            at.push(key);
            if value.is_object() {
                see(at);
            }
            each(child, at, see);
            at.pop();
        }
    }
    for (name, config) in golden_configs() {
        let whole = serde_json::to_value(spec(&config)).expect("JSON");
        each(&whole, &mut Vec::new(), &mut |path| {
            let mut less = whole.clone();
            let (last, parents) = path.split_last().expect("a key");
            let parent = parents.iter().fold(&mut less, |at, key| match key.parse::<usize>() {
                Ok(i) => &mut at[i],
                Err(_) => &mut at[key.as_str()],
            });
            remove(parent, last);
            assert!(serde_json::from_value::<ModelSpec>(less).is_err(), "{name}: read without {path:?}");
        });
    }
}

/// Nothing, nought and absence mean the same of a width of shared experts: none.
#[test]
fn no_shared_experts_may_be_said_in_three_ways() {
    for (name, key) in [
        ("qwen3_moe", "shared_expert_intermediate_size"),
        ("deepseek_v3", "n_shared_experts"),
        ("deepseek_v2", "n_shared_experts"),
        ("dots1", "n_shared_experts"),
        ("glm4_moe", "n_shared_experts"),
    ] {
        for value in [json!(0), Value::Null] {
            let mut config = golden_config(name);
            config[key] = value.clone();
            let plain = |spec: &ModelSpec| spec.moe_layers().all(|(_, moe)| moe.shared.is_none());
            match plan(&config) {
                Ok(plan) => assert!(plain(&plan.spec), "{name}: {key} = {value}"),
                Err(e) => assert!(e.contains(key), "{name}: {key} = {value}: {e}"),
            }
        }
        let mut config = golden_config(name);
        remove(&mut config, key);
        match plan(&config) {
            Ok(plan) => assert!(plan.spec.moe_layers().all(|(_, moe)| moe.shared.is_none()), "{name}: no {key}"),
            Err(e) => assert!(e.contains(key), "{name}: no {key}: {e}"),
        }
    }
}

/// No rule of the model depends on how many layers are dense, but for those layers.
#[test]
fn leading_dense_layers_are_counted_and_change_nothing_else() {
    for name in ["deepseek_v2", "deepseek_v3", "dots1", "glm4_moe", "glm4_moe_lite"] {
        let with = |dense: usize| {
            let mut config = golden_config(name);
            config["num_hidden_layers"] = json!(4);
            config["first_k_dense_replace"] = json!(dense);
            if config.get("layer_types").is_some_and(Value::is_array) {
                config["layer_types"] = vec!["full_attention"; 4].into();
            }
            if config.get("mlp_layer_types").is_some() {
                remove(&mut config, "mlp_layer_types");
            }
            spec(&config)
        };
        let none = with(0);
        for dense in [1, 3] {
            let some = with(dense);
            let dense_layers = some.layers.iter().take_while(|layer| matches!(layer.mlp, Mlp::Dense { .. })).count();
            assert_eq!((dense_layers, some.moe_layers().count()), (dense, 4 - dense), "{name}");
            assert_eq!(some.multipliers, none.multipliers, "{name}");
            assert_eq!(some.layers[dense..], none.layers[dense..], "{name}");
        }
    }
}

/// Where no key says it, the family does.
#[test]
fn families_without_a_key_for_it_normalise_as_they_were_trained() {
    let normalises = |name: &str, key: Option<&str>| {
        let mut config = golden_config(name);
        if let Some(key) = key {
            remove(inner(&mut config), key);
        }
        let spec = spec(&config);
        let (_, moe) = spec.moe_layers().next().expect("experts");
        moe.router.normalise.is_some() || moe.router.score == RouterScore::SoftmaxOfChosen
    };
    assert!(normalises("mixtral", None));
    assert!(normalises("qwen3_5_moe", Some("norm_topk_prob")));
    assert!(normalises("qwen3_next", Some("norm_topk_prob")));
    assert!(normalises("minimax_m2", None));
    assert!(!normalises("qwen2_moe", None), "its config says false");
}

/// A limit of any reader's own shows here.
#[test]
fn a_thousand_experts_and_sixteen_of_them_at_a_time_are_planned() {
    for (name, experts, k) in [
        ("qwen3_moe", "num_experts", "num_experts_per_tok"),
        ("mixtral", "num_local_experts", "num_experts_per_tok"),
        ("deepseek_v3", "n_routed_experts", "num_experts_per_tok"),
        ("gpt_oss", "num_local_experts", "num_experts_per_tok"),
    ] {
        let mut config = golden_config(name);
        config[experts] = json!(1024);
        config[k] = json!(16);
        if config.get("experts_per_token").is_some() {
            config["experts_per_token"] = json!(16);
        }
        let spec = spec(&config);
        assert!(spec.moe_layers().all(|(_, moe)| (moe.experts, moe.top_k) == (1024, 16)), "{name}");
    }
}

/// The generation config first, then the config, then the text's; a number or a list; none is said.
#[test]
fn stop_ids_come_from_three_places_in_two_forms() {
    let stops = |generation: Value, outer: Value, text: Value| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut model = read_golden("qwen3_5_moe");
        remove(&mut model.config, "eos_token_id");
        remove(&mut model.config["text_config"], "eos_token_id");
        if !outer.is_null() {
            model.config["eos_token_id"] = outer;
        }
        if !text.is_null() {
            model.config["text_config"]["eos_token_id"] = text;
        }
        model.write(folder.path());
        if !generation.is_null() {
            let text = json!({ "eos_token_id": generation }).to_string();
            std::fs::write(folder.path().join("generation_config.json"), text).expect("written");
        }
        let checkpoint = open(folder.path()).expect("opens");
        let tokens = checkpoint.plan().spec.tokens.clone();
        (tokens.eos, tokens.eos_source, checkpoint.report().notes.join("\n"))
    };
    let (ids, source, _) = stops(json!([7, 8]), json!(5), json!(6));
    assert_eq!((ids, source.as_str()), (vec![7, 8], "generation_config.json eos_token_id"));
    let (ids, source, _) = stops(json!(7), Value::Null, json!(6));
    assert_eq!((ids, source.as_str()), (vec![7], "generation_config.json eos_token_id"));
    let (ids, source, _) = stops(Value::Null, json!([5, 9]), json!(6));
    assert_eq!((ids, source.as_str()), (vec![5, 9], "config.json eos_token_id"));
    let (ids, source, _) = stops(Value::Null, Value::Null, json!(6));
    assert_eq!((ids, source.as_str()), (vec![6], "config.json text_config.eos_token_id"));
    let (ids, source, notes) = stops(Value::Null, Value::Null, Value::Null);
    assert_eq!((ids, source.as_str()), (vec![], "none"));
    assert!(notes.contains("no stop ids: generation ends at the token limit only"), "{notes}");
}

/// A wrapper's config may describe a vision tower whose tensors were left out, or hold them: the text is the same model.
#[test]
fn a_wrapper_with_and_without_its_vision_tensors_is_one_model() {
    let without = read_golden("qwen3_5_moe");
    let mut with = without.clone();
    with.config["vision_config"] = json!({"depth": 1, "hidden_size": 8});
    let bare = without.open().expect("without");
    for tower in [vec![], vec!["model.visual.blocks.0.attn.qkv.weight", "model.visual.merger.norm.weight"]] {
        let mut model = with.clone();
        for name in &tower {
            model.tensors.insert((*name).into(), ("BF16".into(), vec![2], vec![0; 4]));
        }
        let found = model.open().expect("a wrapper");
        assert_eq!(found.plan().spec, bare.plan().spec);
        let skipped = found.report().skipped.iter().filter(|(rule, _)| rule == "vision tower").count();
        assert_eq!(skipped, tower.len());
    }
}

/// The norms that are stored as a distance from 1, and the gated ones that are not.
#[test]
fn which_norms_add_one_follows_from_the_family() {
    for (name, config) in golden_configs() {
        let unit = spec(&config).norm.kind == NormKind::RmsUnitOffset;
        assert_eq!(unit, ["qwen3_next", "qwen3_5_moe"].contains(&name.as_str()), "{name}");
    }
}
