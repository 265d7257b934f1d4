//! Random edits that know the structure: keys, values, names, shapes, offsets of this and of other seeds.

use super::Rng;
use super::edit::Edit;
use super::seeds::{Seed, Tensor};
use serde_json::{Value, json};

/// Edits for a seed, most often one.
pub(crate) fn mutate(all: &[Seed], seed: &Seed, rng: &mut Rng) -> Vec<Edit> {
    let mut edits = Vec::new();
    loop {
        match rng.below(100) {
            0..=32 => edits.push(config(all, seed, rng)),
            33..=62 => edits.push(tensor(all, seed, rng)),
            63..=82 => edits.push(description(seed, rng)),
            83..=90 => files(seed, rng, &mut edits),
            91..=96 => edits.push(raw(rng)),
            _ => edits.push(length(rng)),
        }
        if !rng.one_in(3) || edits.len() > 5 {
            return edits;
        }
    }
}

/// A path to a value of a document, its root excluded where it has children.
fn path(value: &Value, rng: &mut Rng) -> Vec<String> {
    let mut path = Vec::new();
    let mut at = value;
    loop {
        let next = match at {
            Value::Object(map) if !map.is_empty() => map.iter().nth(rng.below(map.len())).map(|(k, v)| (k.clone(), v)),
            Value::Array(list) if !list.is_empty() => {
                let i = rng.below(list.len());
                Some((i.to_string(), &list[i]))
            }
            _ => None,
        };
        let Some((key, inner)) = next else { return path };
        path.push(key);
        at = inner;
        if rng.one_in(3) && !(path.len() == 1 && path[0] == "text_config") {
            return path;
        }
    }
}

fn look<'a>(value: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(value, |at, part| match at {
        Value::Array(list) => part.parse().ok().and_then(|i: usize| list.get(i)).unwrap_or(&Value::Null),
        _ => at.get(part).unwrap_or(&Value::Null),
    })
}

fn config(all: &[Seed], seed: &Seed, rng: &mut Rng) -> Edit {
    let own = path(&seed.config, rng);
    let other = rng.pick(all);
    let theirs = path(&other.config, rng);
    let parent = || own[..own.len().saturating_sub(1)].to_vec();
    match rng.below(24) {
        0..=1 => Edit::Remove(own),
        2 => Edit::Rename(own, theirs.last().cloned().unwrap_or_default()),
        // A key of another family, with its value.
        3..=4 => Edit::Set(
            [parent(), theirs.last().cloned().into_iter().collect()].concat(),
            look(&other.config, &theirs).clone(),
        ),
        // The value of another family's key.
        5..=6 => Edit::Set(own, look(&other.config, &theirs).clone()),
        7 => Edit::Twice(own.last().cloned().unwrap_or_default(), value(&Value::Null, rng)),
        8 if rng.one_in(4) => Edit::Wrap,
        9 if rng.one_in(4) => Edit::Generation(value(&json!({"eos_token_id": [1, 2]}), rng)),
        10 if rng.one_in(20) => Edit::Deep(own, 1 << rng.below(12)),
        // Two MiB of config at most, and beyond.
        10 if rng.one_in(100) => Edit::Fill(own, json!(rng.below(2)), 1 << rng.below(21)),
        11 => Edit::Fill(own.clone(), look(&seed.config, &own).clone(), rng.below(10)),
        12 => Edit::Set(
            [parent(), vec![rng.pick(&["quantization_config", "rope_scaling", "text_config", "x"]).to_string()]]
                .concat(),
            value(&Value::Null, rng),
        ),
        _ => {
            let new = value(look(&seed.config, &own), rng);
            Edit::Set(own, new)
        }
    }
}

const NUMBERS: [u64; 18] = [
    0,
    1,
    2,
    3,
    7,
    8,
    64,
    127,
    4096,
    65536,
    65537,
    (1 << 28) - 1,
    1 << 28,
    (1 << 28) + 1,
    1 << 31,
    1 << 32,
    1 << 53,
    u64::MAX,
];

/// A value in place of another: near it, of its kind, or of any kind.
fn value(old: &Value, rng: &mut Rng) -> Value {
    if rng.one_in(2) {
        match old {
            Value::Number(n) => {
                let n = n.as_f64().unwrap_or(0.0);
                return match rng.below(9) {
                    0 => json!(n + 1.0),
                    1 => json!((n - 1.0) as i64),
                    2 => json!((n + 1.0) as i64),
                    3 => json!((n * 2.0) as i64),
                    4 => json!((n / 2.0) as i64),
                    5 => json!(-n),
                    6 => json!(n * 1e-3),
                    7 => json!([n]),
                    _ => json!(n.to_string()),
                };
            }
            Value::Bool(b) => return json!(!b),
            Value::Array(list) => {
                let mut list = list.clone();
                match rng.below(3) {
                    0 => drop(list.pop()),
                    1 => list.push(list.first().cloned().unwrap_or(json!(0))),
                    _ => list.reverse(),
                }
                return Value::Array(list);
            }
            _ => {}
        }
    }
    let words = [
        "",
        "silu",
        "yarn",
        "longrope",
        "linear",
        "default",
        "dynamic",
        "fp8",
        "gptq",
        "awq",
        "mxfp4",
        "x\u{0}\u{1b}[2J",
    ];
    match rng.below(12) {
        0..=3 => json!(*rng.pick(&NUMBERS)),
        4 => json!(rng.next() as i64 >> rng.below(64)),
        5 => json!(*rng.pick(&[0.5, -0.0, 1e308, 1e-308, 1.5, 3.4e38, 1e40, 0.25, 1e-45])),
        6 => Value::Null,
        7 => json!(rng.one_in(2)),
        8 | 9 => json!(*rng.pick(&words)),
        10 => rng.pick(&[json!([]), json!({}), json!([[]]), json!([0]), json!({"x": 1}), json!([null])]).clone(),
        _ => json!("a".repeat(rng.below(3000))),
    }
}

const DTYPES: [&str; 22] = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "F8_E4M3",
    "F8_E5M2",
    "F8_E8M0",
    "F4",
    "F6_E2M3",
    "I8",
    "U8",
    "I16",
    "U16",
    "I32",
    "U32",
    "I64",
    "U64",
    "BOOL",
    "C64",
    "",
    "bf16",
    "\u{202e}\n",
];

/// Changes that leave the header consistent, so that the binding has to see them.
fn tensor(all: &[Seed], seed: &Seed, rng: &mut Rng) -> Edit {
    let this = rng.pick(&seed.tensors);
    let name = this.name.clone();
    match rng.below(16) {
        0..=1 => Edit::Drop(name),
        2..=5 => Edit::Shape(name, shape(&this.shape, rng)),
        6..=8 => Edit::Dtype(name, (*rng.pick(&DTYPES)).into()),
        9..=11 => {
            let to = other_name(all, seed, this, rng);
            Edit::Name(name, to)
        }
        12..=13 => {
            let to = other_name(all, seed, this, rng);
            Edit::Add(to, this.dtype.clone(), this.shape.clone())
        }
        14 => Edit::Rotate(rng.below(1000)),
        _ if rng.one_in(3) => {
            // A weight in a block format that nobody announced, or its parts.
            let suffix = *rng.pick(&["_scale_inv", "_scale", "_blocks", "_scales", "_packed", "_shape", "_zero_point"]);
            Edit::Add(format!("{name}{suffix}"), (*rng.pick(&DTYPES)).into(), shape(&this.shape, rng))
        }
        _ => Edit::Shape(name, vec![*rng.pick(&NUMBERS); rng.below(10)]),
    }
}

fn shape(old: &[u64], rng: &mut Rng) -> Vec<u64> {
    let mut new = old.to_vec();
    let at = rng.below(new.len());
    match rng.below(9) {
        0 => new.reverse(),
        1 => new.push(1),
        2 => drop(new.pop()),
        3 => new.insert(0, 1),
        _ if new.is_empty() => new.push(1),
        4 => new[at] += 1,
        5 => new[at] = new[at].saturating_sub(1),
        6 => new[at] = new[at].saturating_mul(2),
        7 => new[at] = *rng.pick(&NUMBERS),
        _ => new.swap(0, at),
    }
    new
}

const PREFIXES: [&str; 4] = ["", "model.language_model.", "language_model.model.", "model.model."];
const SUFFIXES: [&str; 7] = [".bias", "", ".qweight", ".qzeros", ".g_idx", ".weight_scale", ".lora_A"];

fn other_name(all: &[Seed], seed: &Seed, this: &Tensor, rng: &mut Rng) -> String {
    let name = &this.name;
    match rng.below(9) {
        0 => {
            let other = rng.pick(all);
            rng.pick(&other.tensors).name.clone()
        }
        1 => rng.pick(&seed.tensors).name.clone(),
        2 => format!("{name}_scale_inv"),
        3 => {
            let to = *rng.pick(&PREFIXES);
            name.replace("model.", to)
        }
        4 => {
            let to = *rng.pick(&SUFFIXES);
            name.replace(".weight", to)
        }
        5 => number(name, rng),
        6 => format!("{}{name}", rng.pick(&["mtp.", "model.visual.", "x", "model.mtp_", "\u{1b}[31m", "\u{7f}\r\n"])),
        7 => "n".repeat(rng.below(5000)),
        _ => format!("{name}{}", rng.pick(&[".", " ", "\u{0}", ".rotary_emb.inv_freq", "{e}", "x", "\u{1F30A}"])),
    }
}

/// A name with one of its numbers changed: another layer, another expert.
fn number(name: &str, rng: &mut Rng) -> String {
    let mut parts: Vec<String> = name.split('.').map(str::to_owned).collect();
    let numbers: Vec<usize> = (0..parts.len()).filter(|i| parts[*i].parse::<u64>().is_ok()).collect();
    if numbers.is_empty() {
        return name.to_owned();
    }
    let at = *rng.pick(&numbers);
    let n: u64 = parts[at].parse().unwrap_or(0);
    parts[at] = match rng.below(6) {
        0 => (n + 1).to_string(),
        1 => n.saturating_sub(1).to_string(),
        2 => rng.pick(&NUMBERS).to_string(),
        3 => format!("0{n}"),
        4 => format!("+{n}"),
        _ => "99999999999999999999".into(),
    };
    parts.join(".")
}

/// Changes of a description that contradict the rest of the header.
fn description(seed: &Seed, rng: &mut Rng) -> Edit {
    let this = rng.pick(&seed.tensors);
    let field = *rng.pick(&["data_offsets", "data_offsets", "shape", "dtype", "x"]);
    let near = |rng: &mut Rng| (rng.below(40_000) as u64).saturating_sub(8);
    let new = match (field, rng.below(8)) {
        (_, 0) => value(&Value::Null, rng),
        (_, 1) => json!("gone"),
        ("data_offsets", 2) => json!([near(rng), *rng.pick(&NUMBERS)]),
        ("data_offsets", 3) => json!([*rng.pick(&NUMBERS), *rng.pick(&NUMBERS)]),
        ("data_offsets", 4) => json!([near(rng)]),
        ("data_offsets", 5) => json!([near(rng), near(rng), 1]),
        ("data_offsets", 6) => json!([-1, 1.5]),
        ("data_offsets", _) => {
            let at = near(rng);
            json!([at, at + this.shape.iter().fold(2, |n: u64, axis| n.saturating_mul(*axis))])
        }
        ("shape", 2) => json!(vec![1; rng.below(20)]),
        ("shape", 3) => json!([-1]),
        ("shape", _) => json!(shape(&this.shape, rng)),
        ("dtype", _) => json!(rng.pick(&DTYPES)),
        _ => json!({"deep": [[[{}]]]}),
    };
    match rng.below(12) {
        0 => Edit::Again(this.name.clone()),
        1 => Edit::Metadata(rng.pick(&[json!({"format": "pt"}), json!(1), json!([]), json!({"a": {"b": []}})]).clone()),
        2 => Edit::Pad(rng.below(100)),
        3 if rng.one_in(100) => Edit::Many(1 << rng.below(16)),
        _ => Edit::Field(this.name.clone(), field.into(), new),
    }
}

fn files(seed: &Seed, rng: &mut Rng, edits: &mut Vec<Edit>) {
    let n = 1 + rng.below(5);
    edits.push(Edit::Shards(n));
    let name = rng.pick(&seed.tensors).name.clone();
    let file = |rng: &mut Rng| match rng.below(6) {
        0 => json!("../model.safetensors"),
        1 => json!("/etc/passwd"),
        2 => value(&Value::Null, rng),
        _ => json!(format!("model-{:05}-of-{n:05}.safetensors", rng.below(n + 2))),
    };
    match rng.below(8) {
        0 => edits.push(Edit::NoIndex),
        1 => edits.push(Edit::Lose(rng.below(9))),
        2 => edits.extend([Edit::NoIndex, Edit::Lose(rng.below(9))]),
        3 => edits.push(Edit::Index(vec!["weight_map".into()], value(&json!({}), rng))),
        4 => edits.push(Edit::Index(vec!["weight_map".into(), format!("{name}x")], file(rng))),
        5 | 6 => edits.push(Edit::Index(vec!["weight_map".into(), name], file(rng))),
        _ => {}
    }
}

const PIECES: [&str; 16] =
    ["{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "0", "-", "e", "null", "\u{0}", "\u{10FFFD}", "\"a\":{},"];

fn raw(rng: &mut Rng) -> Edit {
    let at = rng.below(1 << 14);
    let times = if rng.one_in(50) { rng.below(3000) } else { 1 };
    match rng.below(8) {
        0..=2 => Edit::Byte(8 + at, 1 << rng.below(8)),
        3 => Edit::Byte(8 + at, rng.next() as u8 | 1),
        4 => Edit::Insert(8 + at, (*rng.pick(&PIECES)).into(), times),
        5 => Edit::ConfigByte(at, 1 << rng.below(8)),
        6 => Edit::ConfigInsert(at, (*rng.pick(&PIECES)).into(), times),
        _ => Edit::ConfigCut(at),
    }
}

fn length(rng: &mut Rng) -> Edit {
    match rng.below(6) {
        0 => Edit::Prefix(*rng.pick(&NUMBERS)),
        1 => Edit::Prefix(rng.below(20_000) as u64),
        2 => Edit::Cut(rng.below(20_000)),
        3 => Edit::Len(rng.next() as i64 >> rng.below(64)),
        4 => Edit::Len(*rng.pick(&[-1, 1, 8, -8, i64::MAX, i64::MIN])),
        _ => Edit::Byte(rng.below(8), 1 << rng.below(8)),
    }
}
