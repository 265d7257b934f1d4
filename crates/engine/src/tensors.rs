//! Small safetensors files: reference outputs in, results out. Whole files in memory; checkpoints are read elsewhere.

use crate::error::EngineError;
use serde_json::{Map, Value, json};
use smoe_codec::half;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The longest header that is read: reference files have a handful of tensors.
const HEADER_LIMIT: usize = 1 << 24;

/// A tensor's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// f32 (f16 and bf16 are widened when read).
    Floats(Vec<f32>),
    /// i32 (i64 is narrowed when read, where it fits).
    Integers(Vec<i32>),
}

/// A tensor with its shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Axes, row-major.
    pub shape: Vec<usize>,
    /// `shape`'s product of values.
    pub values: Values,
}

impl Array {
    /// An f32 array.
    ///
    /// # Panics
    /// If the shape does not fit the values.
    pub fn floats(shape: &[usize], values: Vec<f32>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "shape {shape:?}");
        Self { shape: shape.to_vec(), values: Values::Floats(values) }
    }

    /// An i32 array.
    ///
    /// # Panics
    /// If the shape does not fit the values.
    pub fn integers(shape: &[usize], values: Vec<i32>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "shape {shape:?}");
        Self { shape: shape.to_vec(), values: Values::Integers(values) }
    }

    /// The values, where they are f32.
    pub fn as_floats(&self) -> Option<&[f32]> {
        match &self.values {
            Values::Floats(values) => Some(values),
            Values::Integers(_) => None,
        }
    }

    /// The values, where they are integers.
    pub fn as_integers(&self) -> Option<&[i32]> {
        match &self.values {
            Values::Integers(values) => Some(values),
            Values::Floats(_) => None,
        }
    }
}

/// Arrays by name.
pub type Arrays = BTreeMap<String, Array>;

/// Reads every tensor of a safetensors file.
///
/// # Errors
/// When the file cannot be read, is no safetensors file, or holds another type than f32, f16, bf16, i32 or i64.
pub fn read(path: &Path) -> Result<Arrays, EngineError> {
    let file = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let fail = |fault: String| EngineError::Golden { file: file.clone(), fault };
    let bytes = fs::read(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
    parse(&bytes).map_err(fail)
}

/// Reads every tensor of a safetensors image.
///
/// # Errors
/// What is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Arrays, String> {
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or("not a safetensors file: shorter than 8 bytes")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > rest.len().min(HEADER_LIMIT) {
        return Err(format!("not a safetensors file: a header of {length} B in {} B", rest.len()));
    }
    let (header, data) = rest.split_at(length);
    let header: Map<String, Value> = serde_json::from_slice(header).map_err(|e| format!("header is no JSON: {e}"))?;
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    tensors.map(|(name, entry)| Ok((name.clone(), array(entry, data).map_err(|e| format!("`{name}`: {e}"))?))).collect()
}

/// One entry of the header with its data.
fn array(entry: &Value, data: &[u8]) -> Result<Array, String> {
    let sizes = |key: &str| -> Option<Vec<usize>> {
        entry.get(key)?.as_array()?.iter().map(|v| usize::try_from(v.as_u64()?).ok()).collect()
    };
    let shape = sizes("shape").ok_or("shape is missing")?;
    let offsets = sizes("data_offsets").filter(|o| o.len() == 2).ok_or("data_offsets are missing")?;
    let dtype = entry.get("dtype").and_then(Value::as_str).ok_or("dtype is missing")?;
    let width = match dtype {
        "F16" | "BF16" => 2,
        "F32" | "I32" => 4,
        "I64" => 8,
        other => return Err(format!("type {other} is not read here; expected F32, F16, BF16, I32 or I64")),
    };
    let bytes = data.get(offsets[0]..offsets[1]).ok_or("its data lies outside the file")?;
    let count =
        shape.iter().try_fold(1usize, |product, axis| product.checked_mul(*axis)).ok_or("its shape overflows")?;
    if count.checked_mul(width) != Some(bytes.len()) {
        return Err(format!("shape {shape:?} does not fit {} B of {dtype}", bytes.len()));
    }
    let pairs = || bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
    let quads = || bytes.as_chunks::<4>().0.iter();
    let values = match dtype {
        "F16" => Values::Floats(pairs().map(half::f16_to_f32).collect()),
        "BF16" => Values::Floats(pairs().map(half::bf16_to_f32).collect()),
        "F32" => Values::Floats(quads().map(|b| f32::from_le_bytes(*b)).collect()),
        "I32" => Values::Integers(quads().map(|b| i32::from_le_bytes(*b)).collect()),
        _ => {
            let wide = bytes.as_chunks::<8>().0.iter().map(|b| i32::try_from(i64::from_le_bytes(*b)));
            Values::Integers(wide.collect::<Result<_, _>>().map_err(|_| "a value does not fit 32 bits")?)
        }
    };
    Ok(Array { shape, values })
}

/// The safetensors image of some arrays.
pub fn image(arrays: &Arrays) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, array) in arrays {
        let start = data.len();
        let dtype = match &array.values {
            Values::Floats(values) => {
                data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
                "F32"
            }
            Values::Integers(values) => {
                data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
                "I32"
            }
        };
        let entry = json!({"dtype": dtype, "shape": array.shape, "data_offsets": [start, data.len()]});
        header.insert(name.clone(), entry);
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes(), header.as_slice(), data.as_slice()].concat()
}

/// Writes arrays as a safetensors file, whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, arrays: &Arrays) -> Result<(), EngineError> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let temporary = path.with_file_name(format!(".{name}.part"));
    let written = fs::write(&temporary, image(arrays)).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&temporary);
        EngineError::Golden { file: name, fault: format!("cannot be written: {e}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Arrays {
        let mut arrays = Arrays::new();
        arrays.insert("a".into(), Array::floats(&[2, 2], vec![1.0, -2.5, f32::NAN, 0.0]));
        arrays.insert("b".into(), Array::integers(&[3], vec![1, -7, i32::MAX]));
        arrays
    }

    #[test]
    fn what_is_written_is_read() {
        let read = parse(&image(&sample())).expect("own image");
        assert_eq!(read["b"], sample()["b"]);
        let (got, want) = (read["a"].as_floats().unwrap(), sample()["a"].as_floats().unwrap().to_vec());
        assert!(got.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    #[test]
    fn damaged_files_are_refused_and_never_panic() {
        let whole = image(&sample());
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            for flip in [1, 0x20, 0x80] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let _ = parse(&damaged);
            }
        }
    }
}
