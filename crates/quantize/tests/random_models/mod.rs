//! Random models of every published layout, written as checkpoint folders.
#![allow(dead_code)] // Each test file uses its part.

#[path = "../../../model/tests/forge/mod.rs"]
pub(crate) mod forge;

use forge::{Tensor, Tensors, of_config};
use serde_json::Value;
use smoe_codec::half;
use std::path::Path;

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
pub(crate) fn write_random(config: &Value, folder: &Path) {
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
