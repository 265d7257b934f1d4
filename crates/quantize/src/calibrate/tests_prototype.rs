//! Against the prototype's codes and scales (tests/golden/calibrate.json, made by scripts/calibrate_fixture.py).
//!
//! A descent amplifies rounding: near a tie one code moves, and then others. So the codes must agree for the most part,
//! and what the experts compute must be as good.

use super::*;
use serde_json::Value;

struct Golden {
    toy: Toy,
    value: Value,
}

fn floats(value: &Value, scale: f32) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number") as f32 / scale).collect()
}

fn golden() -> Golden {
    let text = include_str!("../../tests/golden/calibrate.json");
    let value: Value = serde_json::from_str(text).expect("JSON");
    let size = |key: &str| value[key].as_u64().expect("a size") as usize;
    let (experts, hidden, width, tokens) = (size("experts"), size("hidden"), size("width"), size("tokens"));
    let matrices: Vec<Vec<f32>> = ["gate", "up", "down"].iter().map(|key| floats(&value[*key], 64.0)).collect();
    let len = hidden * width;
    let weights = (0..experts).map(|e| [0, 1, 2].map(|i| matrices[i][e * len..(e + 1) * len].to_vec())).collect();
    let toy = Toy {
        shape: Shape { experts, hidden, width, act: Activation::SwiGlu },
        k: size("top_k"),
        tokens,
        held_from: tokens,
        x: floats(&value["x"], 64.0),
        reference: floats(&value["reference"], 64.0),
        ids: floats(&value["ids"], 1.0).into_iter().map(|id| id as u32).collect(),
        gates: floats(&value["gates"], 64.0),
        weights,
    };
    Golden { toy, value }
}

/// The prototype's matrix as our encoding.
fn encoded(solved: &Value, codec: Codec, (expert, rows, cols): (usize, usize, usize)) -> Encoded {
    let digits = solved["codes"].as_str().expect("digits");
    let digits = &digits.as_bytes()[expert * rows * cols..][..rows * cols];
    let (mut codes, bits) = (vec![0; rows * codec.code_bytes(cols)], codec.bits());
    for (i, &digit) in digits.iter().enumerate() {
        let code = (digit as char).to_digit(16).expect("hexadecimal") as u8;
        let (row, bit) = (i / cols, i % cols * bits);
        codes[row * codec.code_bytes(cols) + bit / 8] |= code << (bit % 8);
    }
    let groups = rows * codec.groups(cols);
    let scales = floats(&solved["scales"], 1.0)[expert * groups..][..groups].to_vec();
    Encoded { codec, codes, scales: scales.iter().flat_map(|&s| f32_to_f16(s).to_le_bytes()).collect() }
}

/// `sum g^2 |down h - q_down h_q|^2` over an expert's tokens: what the layer's output loses.
fn layer_error(toy: &Toy, expert: usize, matrices: &[Encoded; 3]) -> f64 {
    let (hidden, width) = (toy.shape.hidden, toy.shape.width);
    let [gate, up, down] = [0, 1, 2].map(|i| matrices[i].decode([hidden, hidden, width][i]));
    let quantised = [&gate, &up, &down];
    let original = &toy.weights[expert];
    let product = |w: &[f32], x: &[f64]| -> Vec<f64> {
        w.chunks_exact(x.len()).map(|w| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
    };
    let output = |w: [&Vec<f32>; 3], x: &[f64]| {
        let h = product(w[0], x).into_iter().zip(product(w[1], x));
        product(w[2], &h.map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect::<Vec<_>>())
    };
    let mut error = 0.0;
    for (slot, _) in toy.ids.iter().enumerate().filter(|(_, id)| **id as usize == expert) {
        let x: Vec<f64> = toy.x[slot / toy.k * hidden..][..hidden].iter().map(|&x| f64::from(x)).collect();
        let (got, want) = (output(quantised, &x), output([&original[0], &original[1], &original[2]], &x));
        let g = f64::from(toy.gates[slot]);
        error += g * g * got.iter().zip(want).map(|(g, w)| (g - w).powi(2)).sum::<f64>();
    }
    error
}

/// Runs a case; returns the share of equal codes of each projection and prints the rest.
fn compare(name: &str, codec: Codec, recipe: Recipe, experts: usize) -> [f64; 3] {
    let Golden { toy, value } = golden();
    let options = Options { codecs: [codec; 3], recipe, arm: Arm::Both, isa: Isa::detect() };
    let results = toy.calibrate(&options).expect("solved");
    let (hidden, width) = (toy.shape.hidden, toy.shape.width);
    let shapes = [(width, hidden), (width, hidden), (hidden, width)];
    let mut equal = [0.0; 3];
    let (mut ours, mut theirs) = (0.0, 0.0);
    for (e, result) in results.iter().enumerate().take(experts) {
        let solved = &value["solved"][name];
        let prototype = [0, 1, 2].map(|i| encoded(&solved[i], codec, (e, shapes[i].0, shapes[i].1)));
        for (i, (got, want)) in result.encoded.iter().zip(&prototype).enumerate() {
            let levels = |m: &Encoded| Encoded { scales: [0x00, 0x3c].repeat(m.scales.len() / 2), ..m.clone() };
            let (got, want) = (levels(got).decode(shapes[i].1), levels(want).decode(shapes[i].1));
            let same = got.iter().zip(&want).filter(|(g, w)| g == w).count();
            equal[i] += same as f64 / got.len() as f64 / experts as f64;
        }
        ours += layer_error(&toy, e, &result.encoded);
        theirs += layer_error(&toy, e, &prototype);
    }
    assert!(ours <= theirs * 1.02, "{name}: output error {ours}, the prototype's {theirs}");
    equal
}

fn recipe(damping: f32, beta: f32, gate_power: u32) -> Recipe {
    Recipe { damping, beta, gate_power, ..Recipe::for_tokens(1000, 100.0) }
}

#[test]
fn the_recipe_agrees() {
    let equal = compare("recipe q2", Codec::Q2, recipe(0.03, 0.0, 2), 4);
    assert!(equal.iter().all(|&share| share > 0.9), "{equal:?}");
}

#[test]
fn the_corrected_target_agrees() {
    let equal = compare("corrected q2", Codec::Q2, recipe(0.1, 0.5, 1), 4);
    assert!(equal.iter().all(|&share| share > 0.9), "{equal:?}");
}

#[test]
fn four_bits_agree() {
    let equal = compare("recipe q4", Codec::Q4, recipe(0.03, 0.0, 2), 4);
    assert!(equal.iter().all(|&share| share > 0.7), "{equal:?}");
}

#[test]
fn plain_gptq_agrees() {
    let equal = compare("plain q2", Codec::Q2, Recipe::plain(), 3);
    assert!(equal.iter().all(|&share| share > 0.97), "{equal:?}");
}
