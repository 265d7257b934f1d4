//! Released layouts: the golden folders of the repository, and those beside it where they are there.
#![allow(missing_docs)]

use smoe_model::needs::trunk_needs;
use smoe_model::role::Proj;
use smoe_model::spec::Mlp;
use smoe_model::store::{ExpertMatrix, ExpertReader, TensorStore, load_role};
use smoe_model::{Checkpoint, OpenOptions};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Golden folders: the repository's own, then those of the shared material.
fn folders() -> Vec<PathBuf> {
    let shared = std::env::var_os("SMOE_SHARED").map_or_else(|| repository().join("../shared"), PathBuf::from);
    let mut found = Vec::new();
    for root in [repository().join("tests/golden"), shared.join("golden")] {
        let Ok(entries) = std::fs::read_dir(&root) else {
            println!("not there, not run: {}", root.display());
            continue;
        };
        let folders = entries.filter_map(Result::ok).map(|e| e.path()).filter(|p| p.join("config.json").exists());
        found.extend(folders);
    }
    found.sort();
    found
}

#[test]
fn every_golden_folder_opens_and_every_role_and_expert_is_read() {
    let folders = folders();
    assert!(folders.len() >= 2, "the repository's own goldens are missing");
    for folder in folders {
        let checkpoint =
            Checkpoint::open(&folder, &OpenOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let spec = checkpoint.spec();
        for (role, shape) in trunk_needs(spec) {
            let tensor =
                load_role(&checkpoint, role).expect("readable").unwrap_or_else(|| panic!("{role:?} is not bound"));
            assert_eq!(tensor.rows * tensor.cols, shape.iter().product::<usize>(), "{role:?}");
            assert!(tensor.bytes.iter().any(|b| *b != 0), "{}: {role:?} is all zero", folder.display());
        }
        for (layer, moe) in spec.moe_layers() {
            for expert in 0..moe.experts {
                for proj in [Proj::Gate, Proj::Up, Proj::Down] {
                    let at = ExpertMatrix { layer, expert, proj };
                    let mut all = vec![f32::NAN; moe.width * spec.hidden];
                    checkpoint.read_expert_rows(at, 0, &mut all).expect("readable");
                    assert!(all.iter().all(|v| v.is_finite()), "{at:?}");
                    // Slices of rows are the same values.
                    let cols = if proj == Proj::Down { moe.width } else { spec.hidden };
                    for rows in [1, 3] {
                        for (i, want) in all.chunks(rows * cols).enumerate() {
                            let mut slice = vec![f32::NAN; want.len()];
                            checkpoint.read_expert_rows(at, i * rows, &mut slice).expect("readable");
                            assert_eq!(slice, want, "{at:?}, rows from {}", i * rows);
                        }
                    }
                    let bias = checkpoint.read_expert_bias(at).expect("readable");
                    assert_eq!(bias.map(|b| b.len()), moe.expert_bias.then_some(all.len() / cols));
                }
            }
        }
        let dense = spec.layers.iter().filter(|l| matches!(l.mlp, Mlp::Dense { .. })).count();
        let skipped = checkpoint.report().skipped.len();
        println!("{}: {} layers, {dense} dense; {skipped} tensors skipped", folder.display(), spec.layers.len());
    }
}
