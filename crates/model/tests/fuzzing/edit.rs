//! Edits of a checkpoint, and the bytes of the edited one.

use super::seeds::{Seed, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use smoe_model::checkpoint::described::{Folder, Headed};
use std::fmt::Write;

/// One change. Paths lead through a JSON document, numbers being places in lists. A place that is not there makes an
/// edit do nothing; positions in bytes are taken modulo the length.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Edit {
    /// A value of the config.
    Set(Vec<String>, Value),
    /// A value of the config becomes a list of so many of these.
    Fill(Vec<String>, Value, usize),
    /// A value of the config inside so many lists.
    Deep(Vec<String>, usize),
    /// A key of the config goes.
    Remove(Vec<String>),
    /// A key of the config has another name.
    Rename(Vec<String>, String),
    /// A key occurs once more at the config's beginning.
    Twice(String, Value),
    /// The config becomes the text part of a wrapper.
    Wrap,
    /// `generation_config.json`.
    Generation(Value),
    /// A tensor's shape, with an offset that fits.
    Shape(String, Vec<u64>),
    /// A tensor's type, with an offset that fits.
    Dtype(String, String),
    /// A tensor's name.
    Name(String, String),
    /// A tensor goes.
    Drop(String),
    /// A tensor more.
    Add(String, String, Vec<u64>),
    /// So many empty tensors more.
    Many(usize),
    /// The tensors lie in another order.
    Rotate(usize),
    /// A field of a tensor's description, whatever it does to the rest.
    Field(String, String, Value),
    /// A description occurs twice.
    Again(String),
    /// `__metadata__`.
    Metadata(Value),
    /// Spaces after the header.
    Pad(usize),
    /// So many files with an index.
    Shards(usize),
    /// The index goes.
    NoIndex,
    /// A value of the index.
    Index(Vec<String>, Value),
    /// A file goes, by its place.
    Lose(usize),
    /// The length before the first file's header.
    Prefix(u64),
    /// A byte of the first file is changed by exclusive or.
    Byte(usize, u8),
    /// The first file ends here.
    Cut(usize),
    /// Text within the first file, so many times.
    Insert(usize, String, usize),
    /// Bytes more or fewer at the end of the first file.
    Len(i64),
    /// A byte of the config is changed by exclusive or.
    ConfigByte(usize, u8),
    /// Text within the config, so many times.
    ConfigInsert(usize, String, usize),
    /// The config ends here.
    ConfigCut(usize),
}

/// What the edits have made so far.
struct Draft {
    config: Value,
    twice: Option<(String, Value)>,
    generation: Option<Value>,
    tensors: Vec<Tensor>,
    fields: Vec<(String, String, Value)>,
    again: Vec<String>,
    metadata: Option<Value>,
    pad: usize,
    shards: usize,
    index: bool,
    in_index: Vec<(Vec<String>, Value)>,
    lost: Option<usize>,
}

/// The edited checkpoint.
pub(crate) fn folder(seed: &Seed, edits: &[Edit]) -> Folder {
    let mut draft = Draft {
        config: seed.config.clone(),
        twice: None,
        generation: None,
        tensors: seed.tensors.clone(),
        fields: Vec::new(),
        again: Vec::new(),
        metadata: None,
        pad: 0,
        shards: 1,
        index: false,
        in_index: Vec::new(),
        lost: None,
    };
    edits.iter().for_each(|edit| draft.apply(edit));
    let mut folder = draft.folder();
    edits.iter().for_each(|edit| patch(&mut folder, edit));
    folder
}

/// The value at a path.
pub(crate) fn at<'a>(mut value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    for part in path {
        value = match value {
            Value::Object(map) => map.get_mut(part)?,
            Value::Array(list) => list.get_mut(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Puts a value at a path whose parent is there.
fn put(root: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    match at(root, parents) {
        Some(Value::Object(map)) => drop(map.insert(last.clone(), value)),
        Some(Value::Array(list)) => {
            if let Some(place) = last.parse().ok().and_then(|i: usize| list.get_mut(i)) {
                *place = value;
            }
        }
        _ => {}
    }
}

fn take(root: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    match at(root, parents)? {
        Value::Object(map) => map.shift_remove(last),
        Value::Array(list) => last.parse().ok().filter(|i: &usize| *i < list.len()).map(|i: usize| list.remove(i)),
        _ => None,
    }
}

impl Draft {
    fn apply(&mut self, edit: &Edit) {
        match edit {
            Edit::Set(path, value) => put(&mut self.config, path, value.clone()),
            Edit::Fill(path, value, n) => put(&mut self.config, path, Value::Array(vec![value.clone(); *n])),
            Edit::Deep(path, n) => put(&mut self.config, path, (0..*n).fold(json!(0), |inner, _| json!([inner]))),
            Edit::Remove(path) => drop(take(&mut self.config, path)),
            Edit::Rename(path, to) => {
                if let (Some((_, parents)), Some(value)) = (path.split_last(), take(&mut self.config, path)) {
                    put(&mut self.config, &[parents, std::slice::from_ref(to)].concat(), value);
                }
            }
            Edit::Twice(key, value) => self.twice = Some((key.clone(), value.clone())),
            Edit::Wrap => {
                let inner = self.config.take();
                self.config = json!({"model_type": inner["model_type"], "text_config": inner});
            }
            Edit::Generation(value) => self.generation = Some(value.clone()),
            Edit::Metadata(value) => self.metadata = Some(value.clone()),
            Edit::Pad(n) => self.pad = *n,
            Edit::Shards(n) => (self.shards, self.index) = ((*n).clamp(1, 9), true),
            Edit::NoIndex => self.index = false,
            Edit::Index(path, value) => self.in_index.push((path.clone(), value.clone())),
            Edit::Lose(i) => self.lost = Some(*i),
            Edit::Field(name, key, value) => self.fields.push((name.clone(), key.clone(), value.clone())),
            Edit::Again(name) => self.again.push(name.clone()),
            other => self.apply_to_tensors(other),
        }
    }

    fn apply_to_tensors(&mut self, edit: &Edit) {
        let tensors = &mut self.tensors;
        let mut change = |name: &String, to: &dyn Fn(&mut Tensor)| {
            tensors.iter_mut().filter(|t| t.name == *name).for_each(to);
        };
        match edit {
            Edit::Shape(name, shape) => change(name, &|t| t.shape.clone_from(shape)),
            Edit::Dtype(name, dtype) => change(name, &|t| t.dtype.clone_from(dtype)),
            Edit::Name(name, to) => change(name, &|t| t.name.clone_from(to)),
            Edit::Drop(name) => tensors.retain(|t| t.name != *name),
            Edit::Add(name, dtype, shape) => {
                tensors.push(Tensor { name: name.clone(), dtype: dtype.clone(), shape: shape.clone() });
            }
            Edit::Many(n) => {
                let empty = |i| Tensor { name: format!("{i}"), dtype: "U8".into(), shape: vec![0] };
                tensors.extend((0..*n).map(empty));
            }
            Edit::Rotate(n) if !tensors.is_empty() => {
                let by = n % tensors.len();
                tensors.rotate_left(by);
            }
            _ => {}
        }
    }

    fn folder(&self) -> Folder {
        let name = |i: usize| match (self.shards, self.index) {
            (1, false) => "model.safetensors".to_owned(),
            (n, _) => format!("model-{:05}-of-{n:05}.safetensors", i + 1),
        };
        let mut files: Vec<Headed> = (0..self.shards).map(|i| self.file(name(i), i)).collect();
        if let Some(lost) = self.lost {
            files.remove(lost % files.len());
        }
        let index = self.index.then(|| {
            let place = |(i, t): (usize, &Tensor)| (t.name.clone(), name(i % self.shards).into());
            let map: Map<String, Value> = self.tensors.iter().enumerate().map(place).collect();
            let mut index = json!({"metadata": {"total_size": 0}, "weight_map": map});
            self.in_index.iter().for_each(|(path, value)| put(&mut index, path, value.clone()));
            index.to_string().into_bytes()
        });
        let mut config = self.config.to_string();
        if let Some((key, value)) = &self.twice
            && config.starts_with('{')
        {
            config.insert_str(1, &format!("{}:{value},", json!(key)));
        }
        let generation = self.generation.as_ref().map(|value| value.to_string().into_bytes());
        Folder { config: config.into_bytes(), generation, index, files }
    }

    fn file(&self, name: String, shard: usize) -> Headed {
        let mut header = String::with_capacity(96 * self.tensors.len());
        header.push('{');
        let mut comma = "";
        if let Some(metadata) = self.metadata.as_ref().filter(|_| shard == 0) {
            _ = write!(header, "\"__metadata__\":{metadata}");
            comma = ",";
        }
        let mut offset = 0_u64;
        for (_, tensor) in self.tensors.iter().enumerate().filter(|(i, _)| i % self.shards == shard) {
            let end = offset.saturating_add(bytes(tensor));
            let times = 1 + self.again.iter().filter(|name| **name == tensor.name).count();
            for _ in 0..times {
                header.push_str(comma);
                self.describe(tensor, [offset, end], &mut header);
                comma = ",";
            }
            offset = end;
        }
        header.push('}');
        header.extend(std::iter::repeat_n(' ', self.pad));
        let start = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        let len = offset.saturating_add(start.len() as u64);
        Headed { name, start, len }
    }

    fn describe(&self, tensor: &Tensor, offsets: [u64; 2], out: &mut String) {
        let quote = |text: &str| Value::from(text).to_string();
        let plain = |text: &String| text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
        match plain(&tensor.name) {
            true => _ = write!(out, "\"{}\":{{", tensor.name),
            false => _ = write!(out, "{}:{{", quote(&tensor.name)),
        }
        let own: Vec<&(String, String, Value)> = self.fields.iter().filter(|(name, ..)| *name == tensor.name).collect();
        if own.is_empty() && plain(&tensor.dtype) {
            let Tensor { dtype, shape, .. } = tensor;
            _ = write!(out, "\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":{offsets:?}}}");
            return;
        }
        let mut fields = vec![("dtype", json!(tensor.dtype)), ("shape", json!(tensor.shape))];
        fields.push(("data_offsets", json!(offsets)));
        for (_, key, value) in own {
            match fields.iter_mut().find(|(known, _)| known == key) {
                // A word of its own for a field that is missing.
                Some(field) if *value == json!("gone") => field.0 = "gone",
                Some(field) => field.1 = value.clone(),
                None => fields.push((key, value.clone())),
            }
        }
        let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{}:{value}", quote(key))).collect();
        _ = write!(out, "{}}}", fields.join(","));
    }
}

fn bytes(tensor: &Tensor) -> u64 {
    let size = match tensor.dtype.as_str() {
        "F32" | "I32" | "U32" => 4,
        "F64" | "I64" | "U64" => 8,
        "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "U8" | "I8" | "BOOL" => 1,
        _ => 2,
    };
    tensor.shape.iter().fold(size, |n: u64, axis| n.saturating_mul(*axis))
}

/// Text within bytes, so many times.
fn insert(bytes: &mut Vec<u8>, at: usize, text: &str, times: usize) {
    let at = at % (bytes.len() + 1);
    bytes.splice(at..at, text.repeat(times).into_bytes());
}

/// Edits of finished bytes.
fn patch(folder: &mut Folder, edit: &Edit) {
    let config = &mut folder.config;
    match edit {
        Edit::ConfigByte(at, bits) if !config.is_empty() => {
            let at = at % config.len();
            config[at] ^= bits;
        }
        Edit::ConfigInsert(at, text, times) => insert(config, *at, text, *times),
        Edit::ConfigCut(at) => config.truncate(at % (config.len() + 1)),
        _ => {}
    }
    let Some(file) = folder.files.first_mut() else { return };
    let before = file.start.len();
    match edit {
        Edit::Prefix(n) if before >= 8 => file.start[..8].copy_from_slice(&n.to_le_bytes()),
        Edit::Byte(at, bits) if before > 0 => file.start[at % before] ^= bits,
        Edit::Cut(at) => {
            file.start.truncate(at % (before + 1));
            file.len = file.start.len() as u64;
        }
        Edit::Insert(at, text, times) => {
            insert(&mut file.start, *at, text, *times);
            file.len = file.len.saturating_add((file.start.len() - before) as u64);
        }
        // What is there of the file is its beginning.
        Edit::Len(by) => file.len = file.len.saturating_add_signed(*by),
        _ => {}
    }
    if file.len < file.start.len() as u64 {
        file.start.truncate(file.len as usize);
    }
}
