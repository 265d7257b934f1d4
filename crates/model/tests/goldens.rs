//! Real folders: every golden checkpoint of a family that is read opens, and its counts are those published.

use smoe_model::store::{ExpertMatrix, ExpertReader, TensorStore, load_role};
use smoe_model::{Checkpoint, OpenOptions, Role, counts::counts, families};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The reference material beside the repository, where it is there.
fn shared() -> Option<PathBuf> {
    let path = std::env::var_os("SMOE_SHARED").map_or_else(|| repository().join("../shared"), PathBuf::from);
    path.is_dir().then_some(path)
}

fn folders() -> Vec<PathBuf> {
    let mut roots = vec![repository().join("tests/golden")];
    match shared() {
        Some(shared) => roots.extend([shared.join("golden"), shared.join("models")]),
        None => println!("no reference material beside the repository: only the goldens in it are opened"),
    }
    let mut all = Vec::new();
    for root in roots {
        for entry in std::fs::read_dir(&root).expect("golden folders") {
            let path = entry.expect("an entry").path();
            if path.join("config.json").exists() {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

#[test]
fn every_golden_checkpoint_opens_and_is_read() {
    for folder in folders() {
        let config = std::fs::read_to_string(folder.join("config.json")).expect("a config");
        let json: serde_json::Value = serde_json::from_str(&config).expect("JSON");
        let model_type = json["model_type"].as_str().expect("a model_type");
        if families::by_model_type(model_type).is_err() {
            println!("{}: family {model_type} is not read yet", folder.display());
            continue;
        }
        let checkpoint =
            Checkpoint::open(&folder, &OpenOptions::default()).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
        let embedding = load_role(&checkpoint, Role::Embedding).expect("readable").expect("an embedding");
        assert_eq!((embedding.rows, embedding.cols), (checkpoint.spec().vocab, checkpoint.spec().hidden));
        for (layer, moe) in checkpoint.spec().moe_layers() {
            let mut row = vec![0.0; checkpoint.spec().hidden];
            let at = ExpertMatrix { layer, expert: moe.experts - 1, proj: smoe_model::role::Proj::Up };
            checkpoint.read_expert_rows(at, moe.width - 1, &mut row).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
            assert!(row.iter().any(|w| *w != 0.0) && row.iter().all(|w| w.is_finite()), "{folder:?} layer {layer}");
        }
    }
}

#[test]
fn counts_are_the_published_ones() {
    let Some(shared) = shared() else {
        println!("no reference material beside the repository: published counts are not compared");
        return;
    };
    let text = std::fs::read_to_string(shared.join("configs/expected.json")).expect("expected.json");
    let expected: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for (file, model) in expected["models"].as_object().expect("models") {
        let config = std::fs::read_to_string(shared.join("configs").join(file)).expect("a config");
        let plan = match families::spec_from_config(&config, &OpenOptions::default()) {
            Ok(plan) => plan,
            Err(e) => {
                println!("{file}: {e}");
                continue;
            }
        };
        let got = counts(&plan.spec);
        for (name, got) in [("total", got.total), ("active", got.active)] {
            let want = model["computed"][name].as_f64().expect("a number");
            let off = (got as f64 - want).abs() / want;
            assert!(off < 1e-3, "{file}: {name}: expected {want}, got {got}");
        }
    }
}
