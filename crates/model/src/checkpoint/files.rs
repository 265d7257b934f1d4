//! Which files of a folder are the checkpoint.
//!
//! With an index, the files that it names. Without one, `model.safetensors`, or a numbered series
//! `model-0000i-of-0000n.safetensors` that must be complete, or else all there are. Other safetensors files are reported
//! and left alone, unless tensors of the model are missing and lie there ([`Selection::with_rest`]); folders inside the
//! folder are not looked into (released copies of the weights lie in `original/` or `metal/`).

use crate::error::CheckpointError;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
const SUFFIX: &str = ".safetensors";
/// Git-LFS pointers are at most this long.
const POINTER_BYTES: u64 = 1024;
const POINTER_START: &[u8] = b"version https://git-lfs";
/// An index has about 100 B a tensor; released ones stay below 30 MB.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// The files that hold the weights.
pub(crate) struct Selection {
    /// Names inside the folder, in order.
    pub(crate) shards: Vec<String>,
    /// The index's bytes, where there is one, to be compared with the headers.
    pub(crate) index: Option<Vec<u8>>,
    /// Safetensors files that are not read.
    pub(crate) ignored: Vec<String>,
}

impl Selection {
    /// All files, where no index says which ones belong to the checkpoint and some were left alone.
    pub(super) fn with_rest(&self) -> Option<Self> {
        if self.index.is_some() || self.ignored.is_empty() {
            return None;
        }
        let shards = self.shards.iter().chain(&self.ignored).cloned().collect();
        Some(Self { shards, index: None, ignored: Vec::new() })
    }
}

/// The index's name, for messages.
pub(crate) fn index_name() -> &'static str {
    INDEX
}

/// Chooses the files.
pub(crate) fn select(folder: &Path) -> Result<Selection, CheckpointError> {
    let present = safetensors_in(folder)?;
    let index = read_small(folder, INDEX, MAX_INDEX_BYTES)?;
    let place = Place { name: folder.display().to_string(), has: &|name| folder.join(name).is_file() };
    choose(&place, present, index)
}

/// A folder, on a drive or in memory.
pub(super) struct Place<'a> {
    /// For messages.
    pub(super) name: String,
    /// Whether it holds a file of this name.
    pub(super) has: &'a dyn Fn(&str) -> bool,
}

/// Chooses among the safetensors files that are present.
pub(super) fn choose(
    place: &Place<'_>,
    present: Vec<String>,
    index: Option<Vec<u8>>,
) -> Result<Selection, CheckpointError> {
    let shards = match &index {
        Some(bytes) => named_by_index(place, bytes)?,
        None => without_index(place, &present)?,
    };
    let ignored: Vec<String> = present.into_iter().filter(|name| !shards.contains(name)).collect();
    if let Some(beyond) = ignored.iter().find(|name| series(name).is_some_and(|(i, n, _)| i > n || i == 0)) {
        let (i, n, _) = series(beyond).unwrap_or_default();
        return Err(CheckpointError::file(
            beyond,
            format!("shard {i} of a series of {n}; remove it, or download again"),
        ));
    }
    Ok(Selection { shards, index, ignored })
}

fn safetensors_in(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let fault = |e: std::io::Error| {
        let text = format!("cannot be read: {e}; give a folder with config.json and safetensors files");
        CheckpointError::file(folder.display().to_string(), text)
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let name = entry.map_err(fault)?.file_name();
        if let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX)) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads a small file whole; `None` where it does not exist.
pub(crate) fn read_small(folder: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, CheckpointError> {
    let fault = |e: std::io::Error| CheckpointError::file(name, format!("cannot be read: {e}"));
    let mut file = match File::open(folder.join(name)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(fault)?,
    };
    let len = file.metadata().map_err(fault)?.len();
    if len > limit {
        return Err(CheckpointError::file(name, format!("{len} B, expected at most {limit} B")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    file.by_ref().take(limit).read_to_end(&mut bytes).map_err(fault)?;
    if let Some(text) = pointer(&bytes) {
        return Err(CheckpointError::file(name, text));
    }
    Ok(Some(bytes))
}

/// The text about a Git-LFS pointer, if these are the bytes of one.
pub(crate) fn pointer(bytes: &[u8]) -> Option<String> {
    if bytes.len() as u64 > POINTER_BYTES || !bytes.starts_with(POINTER_START) {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let size = text.lines().find_map(|line| line.strip_prefix("size ")).map_or("?", str::trim);
    Some(format!("a Git-LFS pointer in place of the file, which has {size} B; run `git lfs pull` in the folder"))
}

/// `(i, n, digits)` of `model-0000i-of-0000n.safetensors`.
fn series(name: &str) -> Option<(usize, usize, usize)> {
    let (i, n) = name.strip_prefix("model-")?.strip_suffix(SUFFIX)?.split_once("-of-")?;
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    Some((number(i)?, number(n)?, n.len()))
}

fn without_index(place: &Place<'_>, present: &[String]) -> Result<Vec<String>, CheckpointError> {
    let fault = |fault: String| Err(CheckpointError::file(&*place.name, fault));
    let mut all: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (_, n, digits) in present.iter().filter_map(|name| series(name)) {
        *all.entry((n, digits)).or_default() += 1;
    }
    let single = present.iter().any(|name| name == SINGLE);
    let mut all = all.into_iter();
    match (single, all.next(), all.next()) {
        (true, None, _) => Ok(vec![SINGLE.into()]),
        (true, Some(((n, _), _)), _) => {
            fault(format!("holds both {SINGLE} and a series of {n} shards, and no {INDEX}; remove one of them"))
        }
        (false, Some(((a, _), _)), Some(((b, _), _))) => {
            fault(format!("holds shards of a series of {a} and of one of {b}, and no {INDEX}; remove one of them"))
        }
        (false, Some(((n, digits), found)), None) => {
            let name = |i: usize| format!("model-{i:0digits$}-of-{n:0digits$}{SUFFIX}");
            match (1..=n).find(|i| !present.contains(&name(*i))) {
                Some(i) => Err(CheckpointError::file(
                    name(i),
                    format!("missing: {found} of the {n} shards of its series are here; download it"),
                )),
                None => Ok((1..=n).map(name).collect()),
            }
        }
        // Names by no pattern: the headers say what is in them.
        (false, None, _) if !present.is_empty() => Ok(present.to_vec()),
        (false, None, _) => fault(nothing(place)),
    }
}

/// What to say of a folder without a checkpoint.
fn nothing(place: &Place<'_>) -> String {
    let has = place.has;
    let expected = format!("expected {SINGLE}, or {INDEX} and its shards");
    if has("pytorch_model.bin") || has("pytorch_model.bin.index.json") {
        format!("holds weights as pytorch_model.bin, which is not read; {expected}: convert it to safetensors")
    } else {
        format!("holds no safetensors file; {expected}")
    }
}

fn named_by_index(place: &Place<'_>, bytes: &[u8]) -> Result<Vec<String>, CheckpointError> {
    let mut shards: Vec<String> = Vec::new();
    let mut fault = None;
    each_in_index(bytes, |tensor, file| {
        if fault.is_some() || shards.last().is_some_and(|last| last == file) || shards.iter().any(|s| s == file) {
            return;
        }
        match check_shard(place, tensor, file) {
            Ok(()) => shards.push(file.into()),
            Err(e) => fault = Some(e),
        }
    })?;
    match fault {
        Some(fault) => Err(fault),
        None if shards.is_empty() => Err(CheckpointError::file(INDEX, "names no file; download it again")),
        None => Ok(shards),
    }
}

fn check_shard(place: &Place<'_>, tensor: &str, file: &str) -> Result<(), CheckpointError> {
    let plain = Path::new(file).components().all(|c| matches!(c, Component::Normal(_)));
    if !plain || !file.ends_with(SUFFIX) {
        let text =
            format!("puts tensor `{tensor}` into `{file}`; expected the name of a safetensors file in the folder");
        return Err(CheckpointError::file(INDEX, text));
    }
    if !(place.has)(file) {
        let text = format!(
            "missing; {INDEX} puts tensor `{tensor}` into it: the index does not match the files, download {file}"
        );
        return Err(CheckpointError::file(file, text));
    }
    Ok(())
}

/// Calls `each` with every tensor and file of an index. Nothing of it is kept.
pub(crate) fn each_in_index(bytes: &[u8], each: impl FnMut(&str, &str)) -> Result<(), CheckpointError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let result = serde::de::Deserializer::deserialize_map(&mut reader, walk::Index(each)).and_then(|()| reader.end());
    result.map_err(|e| CheckpointError::file(INDEX, format!("not a valid index: {e}; download it again")))
}

/// Visitors over the index.
mod walk {
    use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
    use std::borrow::Cow;
    use std::fmt;

    pub(super) struct Index<F>(pub(super) F);

    impl<'de, F: FnMut(&str, &str)> Visitor<'de> for Index<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with `weight_map`")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            let mut found = false;
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                if key != "weight_map" {
                    map.next_value::<IgnoredAny>()?;
                } else if std::mem::replace(&mut found, true) {
                    return Err(A::Error::custom("`weight_map` occurs twice"));
                } else {
                    map.next_value_seed(Files(&mut self.0))?;
                }
            }
            if found { Ok(()) } else { Err(A::Error::custom("it has no `weight_map`")) }
        }
    }

    struct Files<'a, F>(&'a mut F);

    impl<'de, F: FnMut(&str, &str)> DeserializeSeed<'de> for Files<'_, F> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
            d.deserialize_map(self)
        }
    }

    impl<'de, F: FnMut(&str, &str)> Visitor<'de> for Files<'_, F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of file names")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some((tensor, file)) = map.next_entry::<Cow<'de, str>, Cow<'de, str>>()? {
                (self.0)(&tensor, &file);
            }
            Ok(())
        }
    }
}
