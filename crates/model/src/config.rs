//! `config.json`, read key by key: what no family asks for and none may ignore is an error.

use crate::error::CheckpointError;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The config's file name, for messages.
pub const FILE: &str = "config.json";

/// Keys that describe the file, its training or its serving, and mean nothing to a forward pass. They may be absent.
const IDLE: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "hidden_dropout",
    "hidden_dropout_prob",
    "initializer_range",
    "model_type",
    "pad_token_id",
    "output_router_logits",
    "pretraining_tp",
    "resid_pdrop",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
];

/// A config whose reads are remembered.
pub struct Config {
    map: Map<String, Value>,
    read: RefCell<BTreeSet<String>>,
}

type Read<T> = Result<T, CheckpointError>;

impl Config {
    /// Parses the text.
    ///
    /// # Errors
    /// Anything but a JSON object.
    pub fn parse(text: &str) -> Read<Self> {
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(Self { map, read: RefCell::default() }),
            Ok(_) => Err(CheckpointError::file(FILE, "expected a JSON object")),
            Err(e) => Err(CheckpointError::file(FILE, format!("is not valid JSON: {e}"))),
        }
    }

    /// The value of a key; null counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(key.to_owned());
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// A required or defaulted value.
    fn read<T>(&self, key: &str, expected: &str, parse: impl Fn(&Value) -> Option<T>, default: Option<T>) -> Read<T> {
        match (self.get(key), default) {
            (Some(v), _) => parse(v).ok_or_else(|| wrong(key, expected, v)),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(CheckpointError::item(FILE, key, format!("expected {expected}, found nothing"))
                .hint("this family has no default for it; download the config again")),
        }
    }

    /// A size: 1 or more, below 2^40.
    pub fn size(&self, key: &str) -> Read<usize> {
        self.read(
            key,
            "a positive number",
            |v| v.as_u64().filter(|n| (1..1 << 40).contains(n)).map(|n| n as usize),
            None,
        )
    }

    /// A size or its default.
    pub fn size_or(&self, key: &str, default: usize) -> Read<usize> {
        self.read(
            key,
            "a positive number",
            |v| v.as_u64().filter(|n| (1..1 << 40).contains(n)).map(|n| n as usize),
            Some(default),
        )
    }

    /// A required finite number.
    pub fn number(&self, key: &str) -> Read<f64> {
        self.read(key, "a finite number", |v| v.as_f64().filter(|x| x.is_finite()), None)
    }

    /// A word of a closed list; the default where the key is absent.
    pub fn word_in(&self, key: &str, allowed: &[&str], default: &str) -> Read<String> {
        match self.get(key) {
            None => Ok(default.to_owned()),
            Some(Value::String(word)) if allowed.contains(&word.as_str()) => Ok(word.clone()),
            Some(v) => Err(wrong(key, &format!("one of {}", allowed.join(", ")), v)),
        }
    }

    /// A mechanism that no model of the family uses: absent, null or false.
    pub fn absent_or_false(&self, key: &str) -> Read<()> {
        match self.get(key) {
            None | Some(Value::Bool(false)) => Ok(()),
            Some(v) => Err(wrong(key, "false (the mechanism is not supported for this family)", v)),
        }
    }

    /// A flag that has one value in the whole family, spelt out or not.
    pub fn must_be(&self, key: &str, value: bool) -> Read<()> {
        match self.get(key) {
            None => Ok(()),
            Some(v) if v.as_bool() == Some(value) => Ok(()),
            Some(v) => Err(wrong(key, &format!("{value} (the family has no other)"), v)),
        }
    }

    /// A size whose mechanism no model of the family has: absent, null or 0.
    pub fn absent_or_zero(&self, key: &str) -> Read<()> {
        match self.get(key) {
            None => Ok(()),
            Some(v) if v.as_u64() == Some(0) => Ok(()),
            Some(v) => Err(wrong(key, "0 (the mechanism is not supported for this family)", v)),
        }
    }

    /// A mechanism that is not supported: absent or null.
    pub fn null(&self, key: &str) -> Read<()> {
        match self.get(key) {
            None => Ok(()),
            Some(v) => Err(wrong(key, "null (the mechanism is not supported for this family)", v)),
        }
    }

    /// A list of layer indices, empty where absent.
    pub fn indices(&self, key: &str) -> Read<Vec<usize>> {
        let list = |v: &Value| v.as_array()?.iter().map(|i| i.as_u64().map(|i| i as usize)).collect();
        self.read(key, "a list of layer indices", list, Some(Vec::new()))
    }

    /// The `model_type`.
    pub fn model_type(&self) -> Read<String> {
        self.read("model_type", "the family's name", |v| v.as_str().map(str::to_owned), None)
    }

    /// Refuses a key that nothing read and that is not known to be idle.
    pub fn finish(&self, idle: &[&str], ignored: &[String]) -> Read<()> {
        let read = self.read.borrow();
        let unknown = |k: &&String| {
            !read.contains(*k) && !IDLE.contains(&k.as_str()) && !idle.contains(&k.as_str()) && !ignored.contains(k)
        };
        match self.map.keys().find(unknown) {
            None => Ok(()),
            Some(key) => Err(CheckpointError::item(FILE, key, format!("unknown key with value {}", self.map[key]))
                .hint(format!("it may change what the model computes; --ignore-config {key} goes past it"))),
        }
    }

    /// A flag or its default.
    pub fn flag_or(&self, key: &str, default: bool) -> Read<bool> {
        self.read(key, "true or false", Value::as_bool, Some(default))
    }
}

/// The error for a value of another kind than expected.
pub fn wrong(key: &str, expected: &str, found: &Value) -> CheckpointError {
    CheckpointError::item(FILE, key, format!("expected {expected}, found {found}"))
}
