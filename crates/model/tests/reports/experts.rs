//! Layouts of experts: one tensor each, stacked, fused, transposed, renamed.

use super::forge::{Model, Opened, golden, golden_config, of_config, open, read_golden, shard};
use serde_json::json;
use smoe_model::role::Proj;
use smoe_model::store::{ExpertMatrix, ExpertReader};
use std::fs;

/// Every routed expert's values, in order.
fn experts(model: &Opened) -> Vec<f32> {
    let mut all = Vec::new();
    let spec = &model.plan().spec;
    for (layer, moe) in spec.moe_layers() {
        for expert in 0..moe.experts {
            for proj in [Proj::Gate, Proj::Up, Proj::Down] {
                let mut out = vec![0.0; moe.width * spec.hidden];
                model.read_expert_rows(ExpertMatrix { layer, expert, proj }, 0, &mut out).expect("rows");
                all.extend(out);
            }
        }
    }
    all
}

/// The same weights with all experts of a layer in two tensors.
fn stacked(model: &Model, layers: usize, experts: usize) -> Model {
    let mut out = model.clone();
    for layer in 0..layers {
        let prefix = format!("model.layers.{layer}.mlp.experts");
        let (mut fused, mut down) = (Vec::new(), Vec::new());
        let (mut wide, mut narrow) = (Vec::new(), Vec::new());
        for e in 0..experts {
            for part in ["gate", "up", "down"] {
                let (_, shape, bytes) = out.tensors.remove(&format!("{prefix}.{e}.{part}_proj.weight")).expect("there");
                if part == "down" {
                    down.extend(bytes);
                    narrow = shape;
                } else {
                    fused.extend(bytes);
                    wide = shape;
                }
            }
        }
        let shape = vec![experts, 2 * wide[0], wide[1]];
        out.tensors.insert(format!("{prefix}.gate_up_proj"), ("BF16".into(), shape, fused));
        let shape = vec![experts, narrow[0], narrow[1]];
        out.tensors.insert(format!("{prefix}.down_proj"), ("BF16".into(), shape, down));
    }
    out
}

#[test]
fn experts_one_by_one_and_stacked_are_the_same_weights_and_never_both() {
    let each = golden();
    let stacks = stacked(&each, 2, 5);
    assert_eq!(experts(&each.open().expect("each")), experts(&stacks.open().expect("stacked")));
    // Layers may differ; a layer may not have both.
    let mut one = each.clone();
    for (name, tensor) in stacks.tensors.iter().filter(|(name, _)| name.contains("layers.1.mlp.experts")) {
        one.tensors.insert(name.clone(), tensor.clone());
    }
    assert_eq!(
        one.refusal(),
        "model.safetensors: layer 1 holds experts in two layouts, mlp.experts.{e}.gate_proj.weight and \
         mlp.experts.gate_up_proj; remove one"
    );
    one.tensors.retain(|name, _| !(name.contains("layers.1.mlp.experts.") && name.ends_with(".weight")));
    assert_eq!(experts(&one.open().expect("one layer stacked")), experts(&each.open().expect("each")));
}

/// Wider, as wide and narrower than the residual stream: orientation comes from the family, and a matrix that lies the
/// other way is refused where its shape shows it.
#[test]
fn orientation_never_follows_from_which_side_is_longer() {
    for (name, key) in [
        ("granitemoe", "intermediate_size"),
        ("gpt_oss", "intermediate_size"),
        ("qwen3_5_moe", "text_config.moe_intermediate_size"),
        ("mixtral", "intermediate_size"),
    ] {
        let mut config = golden_config(name);
        let inner = key.strip_prefix("text_config.");
        let hidden = if inner.is_some() { &config["text_config"]["hidden_size"] } else { &config["hidden_size"] };
        let hidden = hidden.as_u64().expect("a width");
        for width in [hidden / 2, hidden, 2 * hidden] {
            match inner {
                Some(inner) => config["text_config"][inner] = json!(width),
                None => config[key] = json!(width),
            }
            let model = of_config(config.clone());
            let found = model.open().unwrap_or_else(|e| panic!("{name}, width {width}: {e}"));
            assert!(found.plan().spec.moe_layers().all(|(_, moe)| moe.width as u64 == width), "{name}");
            if width == hidden {
                continue;
            }
            let mut turned = model.clone();
            let down = |tensor: &str| tensor.contains("experts") && tensor.contains("down") && !tensor.contains("bias");
            let old = |tensor: &str| tensor.contains("output_linear") || tensor.contains(".w2.");
            let tensor = turned.tensors.keys().find(|tensor| down(tensor) || old(tensor)).expect("a down").clone();
            turned
                .tensor(&tensor)
                .1
                .iter_mut()
                .rev()
                .take(2)
                .for_each(|d| *d = if *d as u64 == width { hidden } else { width } as usize);
            let refusal = turned.refusal();
            assert!(refusal.contains(&tensor) && refusal.contains("config.json makes it"), "{name}: {refusal}");
        }
    }
}

/// Names that no rule knows: the message has what is expected, what was counted and what is there.
#[test]
fn experts_under_another_name_are_counted_and_named() {
    let renamed = |from: &str, to: &str| {
        let mut model = golden();
        model.tensors = model.tensors.into_iter().map(|(name, tensor)| (name.replace(from, to), tensor)).collect();
        model.refusal()
    };
    let refusal = renamed(".mlp.experts.", ".mlp.experts.switch_glu.");
    assert!(
        refusal.contains("layer 0 holds no expert under a known name")
            && refusal
                .contains("expected 5 experts there, 30 matrices in all; 30 tensors with `experts.` in their names")
            && refusal.contains("mlp.experts.switch_glu.0.down_proj.weight"),
        "{refusal}"
    );
    assert_eq!(
        renamed(".mlp.", ".block_sparse_moe."),
        "config.json: `model_type`: says qwen3_moe, but no layer holds `.mlp.experts.`; the tensors are those of no \
         family that is read"
    );
    // One expert less than the config says.
    let mut model = golden();
    model.tensors.retain(|name, _| !name.contains("layers.1.mlp.experts.4."));
    assert!(model.refusal().contains("`model.layers.1.mlp.experts.4.gate_proj.weight`: in no file"));
}

/// Both names under which this family's block of experts was published.
#[test]
fn a_renamed_block_of_experts_is_the_same_model() {
    let old = read_golden("mixtral");
    let new = old.tensors.iter().map(|(name, tensor)| {
        let name = name.replace("block_sparse_moe.", "mlp.");
        let name = name.replace(".w1.", ".gate_proj.").replace(".w2.", ".down_proj.").replace(".w3.", ".up_proj.");
        (name, tensor.clone())
    });
    let each = Model { config: old.config.clone(), tensors: new.collect() };
    let new = stacked(&each, 2, 4);
    assert_eq!(experts(&new.open().expect("new")), experts(&old.open().expect("old")));
}

/// The experts of one layer, apart in three files and in three orders.
#[test]
fn experts_of_a_layer_may_lie_in_several_shards() {
    let model = golden();
    let whole = experts(&model.open().expect("whole"));
    for n in [2, 3, 4] {
        let folder = tempfile::tempdir().expect("a folder");
        model.write_shards(folder.path(), n);
        let names: Vec<_> = (1..=n).map(|i| shard(i, n)).collect();
        assert!(names.iter().all(|name| fs::metadata(folder.path().join(name)).is_ok()));
        let checkpoint = open(folder.path()).expect("shards");
        assert_eq!(experts(&Opened::of(checkpoint, folder)), whole, "{n} shards");
    }
}
