//! Golden checkpoints and trained models against the reference: in passes of 1, 7 and all tokens.

use smoe_engine::compare::{Golden, TOLERANCE, compare};
use smoe_engine::sampler::argmax;
use smoe_engine::{Engine, EngineOptions, Silent, Want, tensors};
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The reference material beside the repository, where it is there.
fn shared() -> Option<PathBuf> {
    let path = std::env::var_os("SMOE_SHARED").map_or_else(|| repository().join("../shared"), PathBuf::from);
    path.is_dir().then_some(path)
}

/// Folders with this file below some roots, in name order.
fn folders_with(roots: &[PathBuf], file: &str) -> Vec<PathBuf> {
    let entries = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten();
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.join(file).exists()).collect();
    found.sort();
    found
}

fn open(folder: &Path) -> Engine {
    Engine::open(folder, &EngineOptions { threads: 2, ..EngineOptions::default() })
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
}

#[test]
fn golden_checkpoints() {
    let mut roots = vec![repository().join("tests/golden")];
    roots.extend(shared().map(|s| s.join("golden")));
    let folders = folders_with(&roots, "golden.safetensors");
    assert!(!folders.is_empty(), "the repository has goldens of its own");
    for folder in folders {
        let engine = open(&folder);
        let golden = Golden::open(&folder.join("golden.safetensors")).expect("a golden file");
        for chunk in [1, 7, golden.input_ids.len()] {
            let result = compare(&engine, &golden, chunk).expect("a comparison");
            let case = format!("{} in passes of {chunk}: {result:?}", folder.display());
            assert!(result.relative <= TOLERANCE && result.router_weights_max_abs_diff <= TOLERANCE, "{case}");
            assert!(result.argmax_equal == result.argmax_total && result.router_equal == result.router_total, "{case}");
            assert!(result.first_differing_layer.is_none() && result.greedy_equal == Some(true), "{case}");
            assert!(result.router_total > 0 && !result.hidden.is_empty() && result.equal, "{case}");
        }
        println!("{}: equal", folder.display());
    }
}

/// Windows of a trained model whose predictions are compared; all of them take minutes on a busy machine.
const WINDOWS: usize = 8;

#[test]
fn trained_models_reproduce_their_reference() {
    let Some(shared) = shared() else {
        println!("no reference material beside the repository: trained models are not compared");
        return;
    };
    let windows = tensors::read(&shared.join("text/eval-windows.safetensors")).expect("windows");
    let ids: Vec<u32> = windows["ids"].as_integers().expect("ids").iter().map(|id| *id as u32).collect();
    let length = windows["ids"].shape[1];
    for folder in folders_with(&[shared.join("models")], "reference.safetensors") {
        let engine = open(&folder);
        let reference = tensors::read(&folder.join("reference.safetensors")).expect("a reference");
        let (nll, best) = (reference["nll"].as_floats().expect("nll"), reference["argmax"].as_integers().expect("ids"));
        let (mut close, mut same, mut total, mut drift) = (0, 0, 0, 0.0);
        for (w, window) in ids.chunks(length).take(WINDOWS).enumerate() {
            let logits = engine.forward(&mut engine.session(), window, &mut Silent, Want::All).expect("a pass");
            for (t, row) in logits.chunks_exact(engine.spec().vocab).take(length - 1).enumerate() {
                let at = w * (length - 1) + t;
                let found = surprise(row, window[t + 1] as usize);
                close += usize::from((found - f64::from(nll[at])).abs() <= 2e-3);
                same += usize::from(argmax(row) == u32::try_from(best[at]).ok());
                drift += found - f64::from(nll[at]);
                total += 1;
            }
        }
        let (least, drift) = (total * 999 / 1000, drift / total as f64);
        let case = format!("{}: {close} close, {same} same of {total}, drift {drift:e}", folder.display());
        assert!(close >= least && same >= least && drift.abs() <= 1e-4, "{case}");
        println!("{case}");
    }
}

/// The negative log-likelihood of a token in nats.
fn surprise(logits: &[f32], token: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|l| f64::from(l - max).exp()).sum();
    sum.ln() + f64::from(max) - f64::from(logits[token])
}
