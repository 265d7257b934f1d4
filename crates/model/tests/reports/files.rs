//! Files: several name patterns and no index.

use super::forge::{Tensors, golden, open, safetensors, shard};
use std::fs;

/// One list of tensors from the headers of all files: with no index, no name pattern decides what is in the model.
#[test]
fn without_an_index_files_of_any_name_make_one_checkpoint() {
    let model = golden();
    let part = |i: usize| -> Tensors {
        model
            .tensors
            .iter()
            .enumerate()
            .filter(|(at, _)| at % 3 == i)
            .map(|(_, (n, t))| (n.clone(), t.clone()))
            .collect()
    };
    for names in [
        ["model.safetensors", "experts-part-a.safetensors", "consolidated.safetensors"],
        ["dense.safetensors", "experts-part-a.safetensors", "consolidated.safetensors"],
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("config.json"), model.config.to_string()).expect("config");
        for (i, name) in names.iter().enumerate() {
            fs::write(folder.path().join(name), safetensors(&part(i))).expect("weights");
        }
        let found = open(folder.path()).unwrap_or_else(|e| panic!("{names:?}: {e}"));
        assert_eq!(found.report().used, model.open().expect("whole").report().used);
        assert!(found.report().ignored_files.is_empty());
        if names[0] == "model.safetensors" {
            assert_eq!(
                found.report().notes,
                ["there is no index, and tensors of the model lie in `consolidated.safetensors`, \
                  `experts-part-a.safetensors`, too: read as well"]
            );
        }
    }
}

/// A file that is no part of the model beside one that is whole: left alone and named, whatever it holds.
#[test]
fn a_stranger_beside_a_whole_model_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = golden();
    model.write(folder.path());
    fs::write(folder.path().join("reference.safetensors"), safetensors(&model.tensors)).expect("a copy");
    let found = open(folder.path()).expect("whole");
    assert_eq!(found.report().ignored_files, ["reference.safetensors"]);
    // And where the model is not whole, the first reason is told, not what the stranger would make of it.
    let mut less = model.clone();
    less.tensors.remove("model.norm.weight");
    less.write(folder.path());
    let refusal = open(folder.path()).expect_err("not whole").to_string();
    assert!(refusal.contains("`model.norm.weight`: in no file"), "{refusal}");
}

/// Copies of the weights in folders inside the folder are not read twice.
#[test]
fn folders_inside_the_folder_are_not_looked_into() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = golden();
    model.write_shards(folder.path(), 2);
    for inside in ["original", "metal"] {
        fs::create_dir(folder.path().join(inside)).expect("a folder");
        fs::copy(folder.path().join(shard(1, 2)), folder.path().join(inside).join(shard(1, 2))).expect("a copy");
    }
    assert_eq!(open(folder.path()).expect("opens").report().used, model.open().expect("whole").report().used);
}
