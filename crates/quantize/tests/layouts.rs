//! Every published layout through the whole program: converted in both codecs, verified, run, exported and opened
//! again. Random models of all families' configs, and the golden folders beside the repository where they are.

mod random_models;

use random_models::forge::golden_configs;
use random_models::write_random;
use smoe_codec::Codec;
use smoe_engine::{Control as Steps, Engine, EngineOptions, GenerateParams, SamplerParams, Silent, Want, generate};
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, OpenOptions};
use smoe_quantize::Control;
use smoe_quantize::convert::{Presence, QuantizeOptions, TrunkStorage, quantize};
use smoe_quantize::export::{Element, HfOptions, to_hf};
use smoe_vault::VaultFile;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

fn open(path: &Path) -> Engine {
    Engine::open(path, &EngineOptions { threads: 2, ..EngineOptions::default() })
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Logits of a short text, in one pass or token by token.
fn logits(engine: &Engine, chunk: usize) -> Vec<f32> {
    let ids: Vec<u32> = (0..12).map(|i| 3 + i * 7 % (engine.spec().vocab as u32 - 3)).collect();
    let mut session = engine.session();
    session.chunk = chunk;
    engine.forward(&mut session, &ids, &mut Silent, Want::All).expect("a pass")
}

/// The largest difference against the largest magnitude.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(f32::MIN_POSITIVE, |most, b| most.max(b.abs()));
    a.iter().zip(b).fold(0.0, |worst: f32, (a, b)| if a.is_nan() { f32::NAN } else { worst.max((a - b).abs()) }) / most
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    (dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()) as f32
}

fn four_tokens(engine: &Engine) -> usize {
    let params = GenerateParams { max_tokens: 4, sampler: SamplerParams::default(), ignore_eos: true };
    let control = Steps { on_token: &mut |_| ControlFlow::Continue(()), cancel: &AtomicBool::new(false) };
    generate(engine, &mut engine.session(), &[1, 2, 3], &params, control).expect("tokens").ids.len()
}

/// What routers choose by is in the vault as it was published, whatever the trunk's storage: dtype and bytes.
fn check_trunk(case: &str, folder: &Path, vault: &Path) {
    let source = Checkpoint::open(folder, &OpenOptions::default()).expect("a checkpoint").with_bf16_trunk();
    let vault = VaultFile::open(vault).expect("a vault");
    let mut biases = 0;
    for tensor in vault.manifest().trunk.iter().filter(|tensor| tensor.dtype.name() != "Q8") {
        let stored = source.stored(&tensor.name).unwrap_or_else(|| panic!("{case}: {}", tensor.name));
        assert_eq!(tensor.dtype.name(), format!("{:?}", stored.dtype).to_uppercase(), "{case}: {}", tensor.name);
        let (mut theirs, mut ours) = (vec![0; tensor.length as usize], vec![0; tensor.length as usize]);
        source.read_stored(&tensor.name, 0, &mut theirs).expect("published");
        vault.read_trunk(&tensor.name, 0, &mut ours).expect("stored");
        assert!(theirs == ours, "{case}: {} changed", tensor.name);
        biases += usize::from(tensor.name.contains("bias"));
    }
    let selects = source.spec().moe_layers().any(|(_, moe)| moe.router.selection_bias);
    assert!(!selects || biases > 0, "{case}: no bias was compared");
}

/// One folder through the program.
fn check(name: &str, folder: &Path, scratch: &Path) {
    let source = open(folder);
    let (whole, steps) = (logits(&source, 12), logits(&source, 1));
    assert!(distance(&steps, &whole) <= 1e-5, "{name}: token by token differs by {}", distance(&steps, &whole));
    for (codec, trunk, like) in [(Codec::Q4, TrunkStorage::AsPublished, 0.9), (Codec::Q2, TrunkStorage::Q8, 0.5)] {
        let case = format!("{name}, {}", codec.name());
        let (vault, export) = (scratch.join("vault"), scratch.join("export"));
        let options = QuantizeOptions {
            trunk,
            presence: Presence { force: true, ..Presence::default() },
            ..QuantizeOptions::new(codec)
        };
        quantize(folder, &vault, &options, &Control::silent()).unwrap_or_else(|e| panic!("{case}: {e}"));
        let faults = smoe_vault::verify(&vault, &mut |_, _| ()).expect("readable");
        assert!(faults.is_empty(), "{case}: {} faults", faults.len());
        check_trunk(&case, folder, &vault);
        let file = VaultFile::open(&vault).expect("a vault");
        let blobs: BTreeSet<_> = file.experts().iter().map(|record| file.read_blob(record).expect("a blob")).collect();
        assert_eq!(blobs.len(), file.experts().len(), "{case}: two experts of random weights are one");
        let engine = open(&vault);
        assert_eq!(four_tokens(&engine), 4, "{case}");
        let said = logits(&engine, 12);
        let alike = cosine(&said, &whole);
        assert!(alike >= like, "{case}: the vault says something else, cosine {alike}");
        let how = HfOptions { element: Element::F32, force: true };
        to_hf(&vault, &export, how, &Control::silent()).unwrap_or_else(|e| panic!("{case}: {e}"));
        let back = distance(&logits(&open(&export), 12), &said);
        assert!(back <= 1e-4, "{case}: the export says something else, {back}");
        println!("{case}: cosine {alike}, export {back:e}");
    }
}

#[test]
fn random_models_of_every_layout() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    for (name, config) in golden_configs() {
        let folder = scratch.path().join(&name);
        write_random(&config, &folder);
        check(&name, &folder, scratch.path());
    }
}

#[test]
fn golden_folders_beside_the_repository() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let golden = std::env::var_os("SMOE_SHARED").map_or_else(beside, PathBuf::from).join("golden");
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut ran = 0;
    for (name, _) in golden_configs() {
        let folder = golden.join(&name);
        if folder.join("config.json").exists() {
            check(&name, &folder, scratch.path());
            ran += 1;
        }
    }
    println!("golden folders beside the repository: {ran} ran");
    assert!(ran == 0 || ran == golden_configs().len(), "{ran} ran: some are missing from {}", golden.display());
}
