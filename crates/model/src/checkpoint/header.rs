//! The header of a safetensors file: 8 bytes of length, then JSON. Bytes in, tensors or a fault out; no file is read
//! here.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// Bytes before the JSON: its length, u64 little-endian.
pub(super) const PREFIX: u64 = 8;
/// The format's own limit on the JSON.
const MAX_HEADER: u64 = 100_000_000;
/// What a tensor's description may cost in memory here, generously.
const ENTRY_BYTES: u64 = 256;
/// Descriptions may take this much more memory than the file has bytes.
const SLACK: u64 = 32 << 20;

/// An element type of the format. Types that nothing here reads are kept as they are spelt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDtype {
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// 8-bit float of 4 exponent bits, without infinities.
    F8E4m3,
    /// Bytes.
    U8,
    /// 32-bit integers.
    I32,
    /// Any other, with its bytes an element where they are known.
    Other(Box<str>, Option<u64>),
}

impl FileDtype {
    fn parse(name: &str) -> Self {
        let other = |bytes| Self::Other(name.into(), bytes);
        match name {
            "BF16" => Self::Bf16,
            "F16" => Self::F16,
            "F32" => Self::F32,
            "F8_E4M3" => Self::F8E4m3,
            "U8" => Self::U8,
            "I32" => Self::I32,
            "BOOL" | "I8" | "F8_E5M2" | "F8_E8M0" => other(Some(1)),
            "I16" | "U16" => other(Some(2)),
            "U32" => other(Some(4)),
            "F64" | "I64" | "U64" => other(Some(8)),
            _ => other(None),
        }
    }

    /// Bytes of an element; `None` for types of unknown or broken size.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::F8E4m3 | Self::U8 => Some(1),
            Self::Bf16 | Self::F16 => Some(2),
            Self::F32 | Self::I32 => Some(4),
            Self::Other(_, bytes) => *bytes,
        }
    }

    /// The type as headers spell it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
            Self::F8E4m3 => "F8_E4M3",
            Self::U8 => "U8",
            Self::I32 => "I32",
            Self::Other(name, _) => name,
        }
    }
}

/// A tensor as a header describes it, its bytes counted from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTensor {
    /// Name.
    pub name: Box<str>,
    /// Element type.
    pub dtype: FileDtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl RawTensor {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// What is wrong with a header: of one tensor, or of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFault {
    /// The tensor, where one is at fault.
    pub tensor: Option<String>,
    /// Expected, found, what to do.
    pub what: String,
}

impl HeaderFault {
    fn file(text: impl Into<String>) -> Self {
        Self { tensor: None, what: text.into() }
    }

    fn tensor(name: &str, text: impl Into<String>) -> Self {
        Self { tensor: Some(name.into()), what: text.into() }
    }
}

/// Length of the JSON, from the file's first 8 bytes.
///
/// # Errors
/// When it is larger than the file or than the format allows.
pub fn json_len(prefix: [u8; 8], file_len: u64) -> Result<u64, HeaderFault> {
    let len = u64::from_le_bytes(prefix);
    let room = file_len.saturating_sub(PREFIX);
    if len > MAX_HEADER {
        return Err(HeaderFault::file(format!(
            "not a safetensors file: its header would be {len} B, the limit is {MAX_HEADER} B; download it again"
        )));
    }
    if len > room {
        return Err(HeaderFault::file(format!(
            "the header takes {len} B and the file has only {room} B after its prefix; download it again"
        )));
    }
    Ok(len)
}

/// The tensors of a header in the order of their data. Sizes and offsets are checked against each other and against
/// the file's length: the data is covered exactly once.
///
/// # Errors
/// Bad JSON, a name that occurs twice, sizes that overflow or contradict shape and type, holes, overlaps, a short file.
pub fn parse(json: &[u8], file_len: u64) -> Result<Vec<RawTensor>, HeaderFault> {
    let data_start = PREFIX + json.len() as u64;
    let limit = file_len.saturating_sub(data_start).saturating_add(SLACK) / ENTRY_BYTES;
    let mut reader = serde_json::Deserializer::from_slice(json);
    let parsed = reader.deserialize_map(Entries { limit }).and_then(|entries| reader.end().map(|()| entries));
    let entries = parsed.map_err(|e| HeaderFault::file(format!("the header is not valid: {e}; download it again")))?;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, raw) in entries {
        tensors.push(raw.place(name, data_start)?);
    }
    tensors.sort_unstable_by_key(|t| (t.offset, t.len));
    check_cover(&tensors, data_start, file_len)?;
    let mut names: Vec<&str> = tensors.iter().map(|t| &*t.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(HeaderFault::tensor(pair[0], "occurs twice in the header; the file is damaged")),
        None => Ok(tensors),
    }
}

fn check_size(tensor: &RawTensor) -> Result<(), HeaderFault> {
    let RawTensor { name, dtype, shape, len, .. } = tensor;
    let elements = shape.iter().try_fold(1_u64, |n, axis| n.checked_mul(*axis as u64));
    let Some(bytes) = dtype.bytes() else { return Ok(()) };
    let Some(want) = elements.and_then(|n| n.checked_mul(bytes)) else {
        return Err(HeaderFault::tensor(name, format!("a shape of {shape:?} overflows; the header is damaged")));
    };
    if want != *len {
        let text = format!("{dtype} {shape:?} is {want} B, the header gives it {len} B; the header is damaged");
        return Err(HeaderFault::tensor(name, text));
    }
    Ok(())
}

/// Tensors in the order of their offsets follow each other without gaps and end where the file ends.
fn check_cover(tensors: &[RawTensor], data_start: u64, file_len: u64) -> Result<(), HeaderFault> {
    if let Some(last) = tensors.iter().max_by_key(|t| t.end()).filter(|last| last.end() > file_len) {
        let want = last.end();
        let text = format!("expected at least {want} B in the file, found {file_len} B; download this shard again");
        return Err(HeaderFault::tensor(&last.name, text));
    }
    let mut at = data_start;
    for tensor in tensors {
        if tensor.offset != at {
            let what = if tensor.offset < at { "overlaps the one before it" } else { "leaves a hole before it" };
            let text = format!("{what}: expected offset {at}, found {}; the header is damaged", tensor.offset);
            return Err(HeaderFault::tensor(&tensor.name, text));
        }
        at = tensor.end();
    }
    if at < file_len {
        let text = format!("{} B follow the last tensor; the file is damaged, download it again", file_len - at);
        return Err(HeaderFault::file(text));
    }
    Ok(())
}

/// Collects entries; nothing else of the header is kept.
struct Entries {
    limit: u64,
}

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<(Box<str>, RawEntry)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut metadata) = (Vec::new(), false);
        while let Some(name) = map.next_key::<Box<str>>()? {
            if &*name == "__metadata__" {
                if std::mem::replace(&mut metadata, true) {
                    return Err(A::Error::custom("`__metadata__` occurs twice"));
                }
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if entries.len() as u64 >= self.limit {
                return Err(A::Error::custom(format!("more than {} tensors in a file of this size", self.limit)));
            }
            let entry = map.next_value().map_err(|e| A::Error::custom(format!("`{name}`: {e}")))?;
            entries.push((name, entry));
        }
        Ok(entries)
    }
}

#[derive(Deserialize)]
#[serde(expecting = "an object of dtype, shape and data_offsets")]
struct RawEntry {
    dtype: FileDtype,
    shape: Shape,
    data_offsets: [u64; 2],
}

impl RawEntry {
    fn place(self, name: Box<str>, data_start: u64) -> Result<RawTensor, HeaderFault> {
        let [begin, end] = self.data_offsets;
        let Some(len) = end.checked_sub(begin) else {
            let text = format!("begins at {begin} and ends at {end}; the header is damaged");
            return Err(HeaderFault::tensor(&name, text));
        };
        let offset = data_start.saturating_add(begin);
        let tensor = RawTensor { name, dtype: self.dtype, shape: self.shape.0, offset, len };
        check_size(&tensor).map(|()| tensor)
    }
}

impl<'de> Deserialize<'de> for FileDtype {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d).map(|name| Self::parse(&name))
    }
}

impl fmt::Display for FileDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A shape; its length is limited, so that a file of commas is no gigabyte of axes.
struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Axes;
        impl<'de> Visitor<'de> for Axes {
            type Value = Vec<usize>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of sizes")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<usize>, A::Error> {
                let mut axes = Vec::new();
                while let Some(axis) = seq.next_element::<usize>()? {
                    if axes.len() == 8 {
                        return Err(A::Error::custom("a shape of more than 8 axes"));
                    }
                    axes.push(axis);
                }
                axes.shrink_to_fit();
                Ok(axes)
            }
        }
        d.deserialize_seq(Axes).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, data: u64) -> Result<Vec<RawTensor>, HeaderFault> {
        parse(json.as_bytes(), PREFIX + json.len() as u64 + data)
    }

    #[test]
    fn a_plain_header_gives_its_tensors_by_name() {
        let json = r#"{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},
            "a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"c":{"dtype":"F4","shape":[9],"data_offsets":[28,30]}}  "#;
        let entries = check(json, 30).expect("valid");
        let start = 8 + json.len() as u64;
        let seen: Vec<_> = entries.iter().map(|e| (&*e.name, e.dtype.name(), e.offset - start, e.len)).collect();
        assert_eq!(seen, [("a", "BF16", 0, 4), ("b", "F32", 4, 24), ("c", "F4", 28, 2)]);
    }

    #[test]
    fn faults_name_the_tensor_and_both_sizes() {
        let one = |fields: &str| format!("{{\"x\":{{{fields}}}}}");
        let f32_at = |shape: &str, at: &str| one(&format!(r#""dtype":"F32","shape":[{shape}],"data_offsets":[{at}]"#));
        let two = |a: &str, b: &str| {
            let entry = |n: &str, at: &str| format!(r#""{n}":{{"dtype":"U8","shape":[4],"data_offsets":[{at}]}}"#);
            format!("{{{},{}}}", entry("x", a), entry("y", b))
        };
        let cases = [
            (f32_at("2", "0,8"), 7, "expected at least 70 B in the file, found 69 B"),
            (f32_at("2", "0,8"), 9, "1 B follow the last tensor"),
            (f32_at("2", "0,4"), 4, "F32 [2] is 8 B, the header gives it 4 B"),
            (f32_at("2", "8,0"), 8, "begins at 8 and ends at 0"),
            (f32_at("4294967296,4294967296,2", "0,8"), 8, "overflows"),
            (f32_at("2", "4,12"), 12, "leaves a hole before it: expected offset"),
            (two("0,4", "2,6"), 6, "overlaps the one before it"),
            (two("0,4", "6,10"), 10, "leaves a hole"),
            (one(r#""dtype":"F32","shape":[2]"#), 8, "missing field `data_offsets`"),
            (r#"{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#.into(), 0, "occurs twice"),
            (r#"{"x":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#.into(), 0, "duplicate field `dtype`"),
            (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), 0, "`__metadata__` occurs twice"),
            (f32_at("1,1,1,1,1,1,1,1,1", "0,4"), 4, "more than 8 axes"),
            (f32_at("-1", "0,4"), 4, "invalid value"),
            ("[]".into(), 0, "not valid"),
            (String::new(), 0, "not valid"),
        ];
        for (json, data, fault) in cases {
            let found = check(&json, data).expect_err(&json);
            assert!(found.what.contains(fault), "{json}: {found:?}");
        }
        assert!(json_len([255; 8], 1 << 40).is_err());
        assert!(json_len(9_u64.to_le_bytes(), 16).is_err());
        assert_eq!(json_len(8_u64.to_le_bytes(), 16), Ok(8));
    }
}
