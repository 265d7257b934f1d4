//! The header of a safetensors file: parsed and held against the file's length before any data is read.

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::fmt;

/// The largest header that the format allows.
pub const MAX_HEADER: u64 = 100_000_000;

/// One tensor of a header: element type as written, shape, and byte range within the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTensor {
    /// Name.
    pub name: String,
    /// Element type as written ("BF16", "F8_E4M3").
    pub dtype: String,
    /// Shape.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What is wrong with a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFault {
    /// The tensor, where one is at fault.
    pub tensor: Option<String>,
    /// Expected, found.
    pub what: String,
}

impl HeaderFault {
    fn of(tensor: &str, what: String) -> Self {
        Self { tensor: Some(tensor.to_owned()), what }
    }

    fn file(what: impl Into<String>) -> Self {
        Self { tensor: None, what: what.into() }
    }
}

/// Length of the JSON text, from the first eight bytes and the file's length.
///
/// # Errors
/// When it is larger than the file or than the format allows.
pub fn json_len(prefix: [u8; 8], file_len: u64) -> Result<u64, HeaderFault> {
    let len = u64::from_le_bytes(prefix);
    if len > MAX_HEADER || len > file_len.saturating_sub(8) {
        return Err(HeaderFault::file(format!(
            "not a safetensors file: it announces a header of {len} B, the file has {file_len} B"
        )));
    }
    Ok(len)
}

/// Parses the JSON text of a header. Tensors come back in the order of their data, which they cover without gap.
///
/// # Errors
/// Bad JSON, a duplicate name, sizes that overflow or contradict shape and type, holes, overlaps, a short file.
pub fn parse(json: &[u8], file_len: u64) -> Result<Vec<RawTensor>, HeaderFault> {
    let Entries(entries) =
        serde_json::from_slice(json).map_err(|e| HeaderFault::file(format!("header is not valid: {e}")))?;
    let data_at = 8 + json.len() as u64;
    let data_len = file_len - data_at;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let [begin, end] = entry.data_offsets;
        if begin > end {
            return Err(HeaderFault::of(&name, format!("data ends at {end}, before it begins at {begin}")));
        }
        if end > data_len {
            return Err(HeaderFault::of(
                &name,
                format!(
                    "expected at least {} B in the file, found {file_len} B; download this shard again",
                    data_at.saturating_add(end)
                ),
            ));
        }
        check_size(&name, &entry, end - begin)?;
        tensors.push(RawTensor {
            name,
            dtype: entry.dtype,
            shape: entry.shape,
            offset: data_at + begin,
            len: end - begin,
        });
    }
    tensors.sort_by_key(|t| (t.offset, t.len));
    let mut at = data_at;
    for t in &tensors {
        if t.offset != at {
            let what = if t.offset < at { "overlaps the tensor before it" } else { "leaves a hole before it" };
            return Err(HeaderFault::of(
                &t.name,
                format!("its data {what} (expected offset {at}, found {})", t.offset),
            ));
        }
        at += t.len;
    }
    if at != file_len {
        return Err(HeaderFault::file(format!(
            "expected {at} B by its header, found {file_len} B; download this shard again"
        )));
    }
    Ok(tensors)
}

/// Bits of an element of a type that the format knows.
pub fn dtype_bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        _ => return None,
    })
}

fn check_size(name: &str, entry: &Entry, len: u64) -> Result<(), HeaderFault> {
    let Some(bits) = dtype_bits(&entry.dtype) else { return Ok(()) };
    let bytes = entry
        .shape
        .iter()
        .try_fold(bits, |n, &d| n.checked_mul(d as u64))
        .ok_or_else(|| HeaderFault::of(name, format!("its shape {:?} overflows", entry.shape)))?
        .div_ceil(8);
    if bytes != len {
        return Err(HeaderFault::of(
            name,
            format!("expected {bytes} B for {} {:?}, found {len} B", entry.dtype, entry.shape),
        ));
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

/// All entries but `__metadata__`; a map type of serde would keep the last of two equal names.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut seen = std::collections::HashSet::new();
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(de::Error::custom(format!("the name `{name}` occurs twice")));
                    }
                    if name == "__metadata__" {
                        map.next_value::<std::collections::BTreeMap<String, String>>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Entries(entries))
            }
        }
        d.deserialize_map(V)
    }
}
