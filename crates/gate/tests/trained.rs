//! A trained model through the engine, against the reference's own numbers.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use smoe_engine::{Engine, EngineOptions, tensors};
use smoe_gate::{Control, EngineModel, EvalOptions, Windows, evaluate};

/// The first documents; all windows take minutes on a busy machine.
const ROWS: usize = 8;

#[test]
fn an_evaluation_reproduces_the_reference() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("SMOE_SHARED").map_or_else(|| repository.join("../shared"), PathBuf::from);
    if !shared.is_dir() {
        println!("ran without ../shared: no reference to compare with");
        return;
    }
    println!("ran with ../shared");
    let folder = shared.join("models/moe-3m-qwen3");
    let engine = Engine::open(&folder, &EngineOptions { threads: 2, ..EngineOptions::default() }).expect("a model");
    let windows = Windows::read(&shared.join("text/eval-windows.safetensors"), None, 512).expect("windows");
    let rows = std::env::var("SMOE_EVAL_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(ROWS);
    let windows = windows.first(rows);
    let options = EvalOptions { per_token: true, threads: 2, ..EvalOptions::default() };
    let mut control = Control { progress: &mut |_| (), cancel: &AtomicBool::new(false) };
    let outcome = evaluate(&mut EngineModel(&engine), None, &windows, &options, &mut control).expect("evaluates");
    let reference = tensors::read(&folder.join("reference.safetensors")).expect("a reference");
    let cells = windows.rows() * 511;
    let nll = &reference["nll"].as_floats().expect("nll")[..cells];
    let argmax = &reference["argmax"].as_integers().expect("argmax")[..cells];
    let got = outcome.per_token.expect("asked for");
    let close = got.nll.iter().zip(nll).filter(|(got, want)| (*got - *want).abs() <= 2e-3).count();
    let same = got.argmax.iter().zip(argmax).filter(|(got, want)| got == want).count();
    let mean = nll.iter().map(|nll| f64::from(*nll)).sum::<f64>() / cells as f64;
    println!("{rows} windows: {close} close, {same} same of {cells}; mean {} against {mean}", outcome.report.nll);
    assert!(close * 1000 >= cells * 999 && same * 1000 >= cells * 999, "{close} close, {same} same of {cells}");
    assert!((outcome.report.nll - mean).abs() <= 1e-4, "mean {} against {mean}", outcome.report.nll);
}
