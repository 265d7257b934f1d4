//! [`Manifest`]: the JSON at the end of a vault (FORMAT.md, "Manifest").

use crate::fault::FaultKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smoe_codec::{Codec, GROUP};

/// Names of the sections that this program knows.
pub mod section {
    /// The tokenizer as released.
    pub const TOKENIZER: &str = "tokenizer.json";
    /// The chat template's text.
    pub const CHAT_TEMPLATE: &str = "chat_template.jinja";
    /// Generation defaults as released.
    pub const GENERATION_CONFIG: &str = "generation_config.json";
    /// The model's configuration as released.
    pub const CONFIG: &str = "config.json";
    /// The tokenizer's configuration as released.
    pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
}

/// Longest name of a section or a trunk tensor.
pub(crate) const MAX_NAME_BYTES: usize = 1024;

/// Most axes of a trunk tensor.
pub(crate) const MAX_AXES: usize = 8;

/// Memory that parsing a manifest may take beyond the file's length.
const PARSE_ROOM: u64 = 48 << 20;

/// Everything about a vault but its bulk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The resolved model (`smoe_model::ModelSpec`).
    pub spec: Value,
    /// Which stored tensor plays which role (`smoe_model::Bindings`).
    pub bindings: Value,
    /// The codecs that the experts use.
    pub codecs: Vec<CodecEntry>,
    /// The expert table.
    pub experts: Region,
    /// Small files that travel along.
    pub sections: Vec<Section>,
    /// Trunk tensors in file order.
    pub trunk: Vec<TrunkTensor>,
    /// How the vault was made.
    pub provenance: Value,
    /// What the gate said of it.
    pub verdict: Option<Value>,
    /// Manifests that later ones replaced, oldest first; they stay where they were, so each byte has a checksum.
    pub retired: Vec<Region>,
}

/// A codec, described enough that a reader can tell whether it knows the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecEntry {
    /// Its number in the expert table.
    pub id: u8,
    /// Its full name (`smoe-q4`).
    pub name: String,
    /// Bits of a code.
    pub bits: u8,
    /// Weights that share a scale.
    pub group: u32,
    /// Type of a scale (`F16`).
    pub scale: String,
}

impl CodecEntry {
    /// The entry of a codec.
    #[must_use]
    pub fn of(codec: Codec) -> Self {
        Self {
            id: codec.id(),
            name: format!("smoe-{}", codec.name()),
            bits: codec.bits() as u8,
            group: GROUP as u32,
            scale: "F16".into(),
        }
    }
}

/// A stretch of the file and the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// XXH3-64; 16 hexadecimal digits in JSON.
    #[serde(with = "hex")]
    pub checksum: u64,
}

/// A small file in the vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// XXH3-64; 16 hexadecimal digits in JSON.
    #[serde(with = "hex")]
    pub checksum: u64,
}

impl Section {
    /// Its region of the file.
    #[must_use]
    pub fn region(&self) -> Region {
        Region { offset: self.offset, length: self.length, checksum: self.checksum }
    }
}

/// How a trunk tensor's elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dtype {
    /// bfloat16, little-endian.
    #[serde(rename = "BF16")]
    Bf16,
    /// IEEE half, little-endian.
    #[serde(rename = "F16")]
    F16,
    /// IEEE single, little-endian.
    #[serde(rename = "F32")]
    F32,
    /// The codec `q8`: all codes, zero bytes up to a multiple of 64, all scales as f16.
    #[serde(rename = "Q8")]
    Q8,
}

impl Dtype {
    /// Bytes of a tensor; `None` where a product overflows or the shape has no elements.
    #[must_use]
    pub fn bytes(self, shape: &[u64]) -> Option<u64> {
        let cols = shape.last().copied().unwrap_or(1);
        let rows = shape.iter().rev().skip(1).try_fold(1_u64, |product, &axis| product.checked_mul(axis))?;
        let elements = rows.checked_mul(cols).filter(|&n| n > 0)?;
        match self {
            Self::Bf16 | Self::F16 => elements.checked_mul(2),
            Self::F32 => elements.checked_mul(4),
            Self::Q8 => {
                let scales = rows.checked_mul(cols.div_ceil(GROUP as u64))?.checked_mul(2)?;
                elements.checked_next_multiple_of(64)?.checked_add(scales)
            }
        }
    }

    /// The name in the manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
            Self::Q8 => "Q8",
        }
    }

    /// The dtype of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Bf16, Self::F16, Self::F32, Self::Q8].into_iter().find(|d| d.name() == name)
    }
}

/// A trunk tensor: everything but routed experts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrunkTensor {
    /// The name that it came with.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape, row-major; the last axis is the columns, all before it the rows.
    pub shape: Vec<u64>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// XXH3-64; 16 hexadecimal digits in JSON.
    #[serde(with = "hex")]
    pub checksum: u64,
}

impl TrunkTensor {
    /// Its region of the file.
    #[must_use]
    pub fn region(&self) -> Region {
        Region { offset: self.offset, length: self.length, checksum: self.checksum }
    }
}

impl Manifest {
    /// The manifest's bytes: compact JSON, keys in the order of the fields.
    ///
    /// # Panics
    /// Never: strings, integers and `Value`s always serialise.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("JSON values serialise")
    }

    /// Reads a manifest of a file of `file_length` bytes. Offsets are not checked here.
    ///
    /// # Errors
    /// Bytes that are no manifest, or that would take more memory than the file's length and 48 MiB.
    pub fn parse(bytes: &[u8], file_length: u64) -> Result<Self, FaultKind> {
        let cost = parse_cost_bytes(bytes).saturating_add(bytes.len() as u64);
        if cost > file_length.saturating_add(PARSE_ROOM) {
            return Err(FaultKind::refused(format!(
                "its {} B of JSON would take {cost} B of memory in a file of {file_length} B",
                bytes.len()
            )));
        }
        serde_json::from_slice(bytes).map_err(|e| FaultKind::refused(format!("it is not the JSON of a manifest: {e}")))
    }
}

/// Upper bound of the memory that the parsed form of JSON takes: a value in an array may take three times its 72
/// bytes while the array grows, a key its map entry and its text.
fn parse_cost_bytes(json: &[u8]) -> u64 {
    let (mut in_string, mut escaped, mut cost) = (false, false, 256_u64);
    for &byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => cost += 240,
            b':' if !in_string => cost += 160,
            _ => {}
        }
    }
    cost
}

/// Checksums are 16 hexadecimal digits: a JSON number does not hold 64 bits everywhere.
mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{value:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let text = String::deserialize(d)?;
        let plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let value = plain.then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        value.ok_or_else(|| D::Error::custom(format!("checksum `{text}` is not 16 hexadecimal digits")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_tensors() {
        assert_eq!(Dtype::Bf16.bytes(&[3, 5]), Some(30));
        assert_eq!(Dtype::F32.bytes(&[7]), Some(28));
        assert_eq!(Dtype::F32.bytes(&[]), Some(4));
        // 3 x 40 codes are 120 bytes, padded to 128; 3 scales.
        assert_eq!(Dtype::Q8.bytes(&[3, 40]), Some(128 + 6));
        assert_eq!(Dtype::Q8.bytes(&[2, 1, 65]), Some(192 + 8));
        assert_eq!(Dtype::F16.bytes(&[0, 4]), None);
        assert_eq!(Dtype::F16.bytes(&[u64::MAX, 2]), None);
        assert_eq!(Dtype::Q8.bytes(&[u64::MAX]), None);
    }

    #[test]
    fn a_bomb_of_json_is_refused_before_it_is_parsed() {
        let bomb = format!("[{}0]", "0,".repeat(1 << 20));
        let message = Manifest::parse(bomb.as_bytes(), bomb.len() as u64).unwrap_err().to_string();
        assert!(message.contains("of memory"), "{message}");
        let quoted = format!("\"{}\"", ",".repeat(1 << 20));
        let message = Manifest::parse(quoted.as_bytes(), quoted.len() as u64).unwrap_err().to_string();
        assert!(message.contains("not the JSON"), "{message}");
    }

    #[test]
    fn checksums_are_sixteen_digits() {
        let region = Region { offset: 1, length: 2, checksum: 0xab };
        let json = serde_json::to_string(&region).expect("a region");
        assert_eq!(json, r#"{"offset":1,"length":2,"checksum":"00000000000000ab"}"#);
        assert_eq!(serde_json::from_str::<Region>(&json).expect("own JSON"), region);
        for bad in ["ab", "00000000000000AB", "+0000000000000ab", "g000000000000000"] {
            assert!(serde_json::from_str::<Region>(&json.replace("00000000000000ab", bad)).is_err(), "{bad}");
        }
    }
}
