//! `smoe logits --compare` on checkpoints with the logits of an independent program.

use crate::process::{names, root, shared, smoe};
use std::path::{Path, PathBuf};

fn check(folder: &Path) {
    let golden = folder.join("golden.safetensors");
    let (folder, golden) = (folder.to_str().expect("UTF-8"), golden.to_str().expect("UTF-8"));
    for chunk in ["1", "7", "24"] {
        let ran = smoe(&["logits", folder, "--compare", golden, "--chunk", chunk, "--json"]).expect(0);
        let json = ran.json();
        assert!(json["relative"].as_f64().is_some_and(|r| r <= 1e-4), "{folder}, chunk {chunk}: {json}");
        assert_eq!(json["argmax_equal"], json["argmax_total"], "{folder}, chunk {chunk}");
        assert!(json["first_differing_layer"].is_null(), "{folder}, chunk {chunk}: {json}");
    }
}

#[test]
fn golden_checkpoints_of_the_repository() {
    for name in names(&root().join("tests/golden")) {
        check(&root().join("tests/golden").join(name));
    }
}

#[test]
fn golden_checkpoints_beside_the_repository() {
    let folders: Vec<PathBuf> = shared()
        .into_iter()
        .flat_map(|s| ["qwen3_moe", "qwen3_moe-sharded"].map(|n| s.join("golden").join(n)))
        .collect();
    folders.iter().for_each(|folder| check(folder));
    println!("golden checkpoints beside the repository: {} ran", folders.len());
}
