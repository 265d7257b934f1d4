//! Every published layout through the whole program: converted in both codecs, verified, run, exported and opened
//! again. Random models of all families' configs, and the golden folders beside the repository where they are.

#[path = "../../model/tests/forge/mod.rs"]
mod forge;

use forge::{Tensor, Tensors, golden_configs, of_config};
use serde_json::Value;
use smoe_codec::{Codec, half};
use smoe_engine::{Control as Steps, Engine, EngineOptions, GenerateParams, SamplerParams, Silent, Want, generate};
use smoe_quantize::Control;
use smoe_quantize::convert::{Presence, QuantizeOptions, TrunkStorage, quantize};
use smoe_quantize::export::{Element, HfOptions, to_hf};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Elements of a bf16 tensor; its scale becomes that of a trained matrix, exactly.
fn scaled((_, shape, bytes): &Tensor) -> Vec<f32> {
    let cols = if shape.len() > 1 { shape.iter().rev().take(2).copied().max().unwrap_or(1) } else { 1 };
    let factor = (-((cols as f32).sqrt().log2().round())).exp2();
    let pairs = bytes.as_chunks::<2>().0.iter();
    pairs.map(|b| half::bf16_to_f32(u16::from_le_bytes(*b)) * factor).collect()
}

fn bf16(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|v| half::f32_to_bf16(v).to_le_bytes()).collect()
}

/// e4m3 codes of magnitudes from 0.5 to 2, and scales that differ by block.
fn fp8(name: &str, tensor: &Tensor, out: &mut Tensors) {
    let (_, shape, bytes) = tensor;
    let codes = bytes.as_chunks::<2>().0.iter().map(|[low, high]| {
        let exponent = 6 + u8::from(high & 0x7f == 0x3f && low & 0x80 != 0);
        high & 0x80 | exponent << 3 | (low >> 4 & 7)
    });
    out.insert(name.into(), ("F8_E4M3".into(), shape.clone(), codes.collect()));
    let blocks = [shape[0].div_ceil(128), shape[1].div_ceil(128)];
    let scale = 1.0 / (shape[1] as f32).sqrt();
    let scales = (0..blocks[0] * blocks[1]).flat_map(|i| (scale * (1.0 + 0.25 * i as f32)).to_le_bytes());
    out.insert(format!("{name}_scale_inv"), ("F32".into(), blocks.to_vec(), scales.collect()));
}

/// Blocks of 32 whose rows are outputs, of a plain tensor `[experts, in, out]`.
fn mxfp4(name: &str, tensor: &Tensor, out: &mut Tensors) {
    let (_, shape, bytes) = tensor;
    let [experts, cols, rows] = shape[..] else { panic!("{name}: {shape:?}") };
    let groups = experts * rows * cols / 32;
    let codes: Vec<u8> = (0..groups * 16).map(|i| bytes[2 * i] ^ bytes[2 * i + 1] << 3).collect();
    let scales = (0..groups).map(|i| 123 + u8::from(i % 3 == 0)).collect();
    out.insert(format!("{name}_blocks"), ("U8".into(), vec![experts, rows, cols / 32, 16], codes));
    out.insert(format!("{name}_scales"), ("U8".into(), vec![experts, rows, cols / 32], scales));
}

/// Eight values a word, a scale for 32.
fn int4(name: &str, tensor: &Tensor, out: &mut Tensors) {
    let (_, shape, bytes) = tensor;
    let (rows, cols) = (shape[0], shape[1]);
    let words: Vec<u8> = (0..rows * cols / 2).map(|i| bytes[4 * i] ^ bytes[4 * i + 2] << 2).collect();
    let scales = (0..rows * cols / 32).map(|i| 0.03 + 0.01 * (i % 5) as f32);
    out.insert(format!("{name}_packed"), ("I32".into(), vec![rows, cols / 8], words));
    out.insert(format!("{name}_scale"), ("BF16".into(), vec![rows, cols / 32], bf16(scales)));
    let shape = [rows as i32, cols as i32].iter().flat_map(|n| n.to_le_bytes()).collect();
    out.insert(format!("{name}_shape"), ("I32".into(), vec![2], shape));
}

/// A random checkpoint of a config, in the block format that the config announces.
fn write_random(config: &Value, folder: &Path) {
    let mut model = of_config(config.clone());
    let method = config["quantization_config"]["quant_method"].as_str().unwrap_or("none");
    let mut tensors = Tensors::new();
    for (name, tensor) in &model.tensors {
        let plain = || ("BF16".to_owned(), tensor.1.clone(), bf16(scaled(tensor)));
        let projection = name.ends_with("_proj.weight") || name.ends_with("_with_mqa.weight");
        match method {
            "fp8" if projection => fp8(name, tensor, &mut tensors),
            "mxfp4" if name.ends_with(".gate_up_proj") || name.ends_with(".down_proj") => {
                mxfp4(name, tensor, &mut tensors);
            }
            "compressed-tensors" if name.contains(".mlp.experts.") => int4(name, tensor, &mut tensors),
            _ => drop(tensors.insert(name.clone(), plain())),
        }
    }
    model.config = config.clone();
    model.tensors = tensors;
    std::fs::create_dir_all(folder).expect("a folder");
    model.write(folder);
}

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
