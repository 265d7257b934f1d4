//! A config file as it came, and which part of it describes the text model.

use super::{Absent, Fixed, IDLE, Key, Lit, Values};
use crate::error::CheckpointError;
use crate::families::Family;
use crate::json;
use serde_json::{Map, Value};

/// A parsed `config.json`: the outer object and, in a wrapper, the text model's.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) outer: Map<String, Value>,
    /// The key of the text model's object, where it has one of its own.
    pub(crate) inner: Option<&'static str>,
}

/// The key under which wrappers keep the text model's config.
const TEXT: &str = "text_config";

/// Parses a config.
pub(crate) fn parse_config(bytes: &[u8]) -> Result<Source, CheckpointError> {
    let value = json::parse(bytes)
        .map_err(|e| CheckpointError::file("config.json", format!("not valid JSON: {e}; download it again")))?;
    match value {
        Value::Object(outer) => {
            let inner = outer.get(TEXT).is_some_and(Value::is_object).then_some(TEXT);
            Ok(Source { outer, inner })
        }
        _ => Err(CheckpointError::file("config.json", "expected a JSON object")),
    }
}

impl Source {
    /// The object that describes the text model.
    pub(crate) fn text(&self) -> &Map<String, Value> {
        self.inner.and_then(|key| self.outer.get(key)).and_then(Value::as_object).unwrap_or(&self.outer)
    }

    /// `model_type` of the outer object.
    pub(crate) fn model_type(&self) -> Result<&str, CheckpointError> {
        let found = self.outer.get("model_type").unwrap_or(&Value::Null);
        found
            .as_str()
            .ok_or_else(|| CheckpointError::key("model_type", format!("expected a family's name, found {found}")))
    }

    /// Parents of a key, for messages.
    pub(crate) fn path(&self, key: &str) -> String {
        self.inner.map_or_else(|| key.to_owned(), |inner| format!("{inner}.{key}"))
    }

    /// Reads the text model's config by the family's table. Keys in `ignore` are not looked at.
    pub(crate) fn read(&self, family: &Family, ignore: &[String]) -> Result<Values, CheckpointError> {
        if let Some(inner) = self.inner {
            let Some(wrapper) = &family.wrapper else {
                return Err(CheckpointError::key(inner, format!("not expected in a config of {}", family.name)));
            };
            for key in self.outer.keys() {
                let known = key == inner || [IDLE, wrapper].iter().any(|list| list.contains(&key.as_str()));
                if !known && !ignore.contains(key) {
                    return Err(unknown(key, family.name));
                }
            }
        }
        let table = Table { keys: family.keys, fixed: family.fixed, idle: family.idle };
        let path = |key: &str| self.path(key);
        let mut values = table.read(self.text(), &path, family.name, ignore)?;
        // A wrapper's quantisation is stated for all of it.
        let quantization = self.inner.and_then(|_| self.outer.get("quantization_config")).filter(|v| !v.is_null());
        if let Some(quantization) = quantization {
            values.set(super::Field::Quantization, "quantization_config".into(), quantization.clone())?;
        }
        Ok(values)
    }
}

/// Reads an object by a table of its own, with all its keys known (quantisation, rotary scaling). Unknown keys with the
/// value null say nothing.
pub(crate) fn read_flat(object: &Map<String, Value>, parent: &str, known: &[&str]) -> Result<(), CheckpointError> {
    match object.iter().find(|(key, value)| !value.is_null() && !known.contains(&key.as_str())) {
        None => Ok(()),
        Some((key, _)) => Err(unknown(&format!("{parent}.{key}"), "this part of a config")),
    }
}

struct Table {
    keys: &'static [&'static [Key]],
    fixed: &'static [Fixed],
    idle: &'static [&'static [&'static str]],
}

impl Table {
    fn read(
        &self,
        object: &Map<String, Value>,
        path: &dyn Fn(&str) -> String,
        family: &str,
        ignore: &[String],
    ) -> Result<Values, CheckpointError> {
        let ignored = |name: &str| ignore.iter().any(|key| key == name || *key == path(name));
        let mut values = Values::default();
        for (name, value) in object.iter().filter(|(name, _)| !ignored(name)) {
            let name = name.as_str();
            if value.is_null() {
                self.null(name, path)?;
            } else if let Some(key) = self.keys.iter().copied().flatten().find(|key| key.names.contains(&name)) {
                values.set(key.field, path(name), value.clone())?;
            } else if let Some(fixed) = self.fixed.iter().find(|fixed| fixed.name == name) {
                if !fixed.values.iter().any(|lit| lit.equals(value)) {
                    let text = format!("{value} is not supported in {family}; expected {}", fixed.expected());
                    return Err(CheckpointError::key(path(name), text));
                }
            } else if !IDLE.contains(&name) && !self.idle.iter().any(|list| list.contains(&name)) {
                return Err(unknown(&path(name), family));
            }
        }
        for key in self.keys.iter().copied().flatten() {
            let null = key.names.iter().any(|name| object.get(*name).is_some_and(Value::is_null));
            values.complete(key, null, path)?;
        }
        Ok(values)
    }

    /// Null replaces the default of a key in the reference, where it then counts as false: it is refused unless that is
    /// what the default says too. Unknown keys with the value null say nothing.
    fn null(&self, name: &str, path: &dyn Fn(&str) -> String) -> Result<(), CheckpointError> {
        let key = self.keys.iter().copied().flatten().find(|key| key.names.contains(&name));
        let fixed = self.fixed.iter().find(|fixed| fixed.name == name);
        let text = match (key.map(|key| key.absent), fixed) {
            (Some(Absent::Means(Lit::Bool(false) | Lit::Empty, _)), _) => return Ok(()),
            (Some(Absent::Means(value, _)), _) => format!("null is not what a missing key means ({value}); state it"),
            (Some(Absent::OffUnlessNull), _) => {
                "null is not what a missing key means; state it, or remove it".to_owned()
            }
            (_, Some(fixed)) if !fixed.idle_null => format!("null is not supported; expected {}", fixed.expected()),
            _ => return Ok(()),
        };
        Err(CheckpointError::key(path(name), text))
    }
}

fn unknown(key: &str, family: &str) -> CheckpointError {
    CheckpointError::key(key, format!("not known in {family}, and it could change results"))
        .hint(format!("if you know that it does not, pass --ignore-config {key}"))
}

impl Fixed {
    fn expected(&self) -> String {
        self.values.iter().map(Lit::to_string).collect::<Vec<_>>().join(" or ")
    }
}

impl Lit {
    /// The constant as JSON.
    pub(crate) fn value(self) -> Value {
        match self {
            Self::Int(n) => n.into(),
            Self::Num(n) => n.into(),
            Self::Bool(b) => b.into(),
            Self::Str(s) => s.into(),
            Self::Empty => Value::Array(Vec::new()),
        }
    }

    /// Whether a value of a config is this constant; 1 and 1.0 are one number.
    pub(crate) fn equals(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Int(n), Value::Number(_)) => value.as_f64() == Some(n as f64),
            (Self::Num(n), Value::Number(_)) => value.as_f64() == Some(n),
            _ => self.value() == *value,
        }
    }
}

impl std::fmt::Display for Lit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.value())
    }
}
