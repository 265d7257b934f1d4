//! [`Values`]: a config's fields, each with the key that it came from.

use super::{Absent, Field, Key};
use crate::error::CheckpointError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Sizes above it are no model's; products of two stay far below 2^64.
const MAX_SIZE: u64 = 1 << 28;

/// Fields by meaning.
#[derive(Debug, Default)]
pub(crate) struct Values {
    found: BTreeMap<Field, Entry>,
    /// Keys that are not there, for messages.
    absent: BTreeMap<Field, String>,
}

#[derive(Debug)]
struct Entry {
    key: String,
    value: Value,
}

impl Values {
    pub(super) fn set(&mut self, field: Field, key: String, value: Value) -> Result<(), CheckpointError> {
        match self.found.get(&field) {
            Some(old) if old.value != value => {
                let text = format!(
                    "is {value}, and `{}`, another name of it, is {}; remove the wrong one",
                    old.key, old.value
                );
                Err(CheckpointError::key(key, text))
            }
            Some(_) => Ok(()),
            None => {
                self.found.insert(field, Entry { key, value });
                Ok(())
            }
        }
    }

    /// Applies what the table says about a key that is not there, or is `null`.
    pub(super) fn complete(
        &mut self,
        key: &Key,
        null: bool,
        path: &dyn Fn(&str) -> String,
    ) -> Result<(), CheckpointError> {
        if self.found.contains_key(&key.field) {
            return Ok(());
        }
        match key.absent {
            Absent::Off | Absent::OffUnlessNull => {
                self.absent.insert(key.field, path(key.names[0]));
                Ok(())
            }
            Absent::MeansOrOff(..) if null => {
                self.absent.insert(key.field, path(key.names[0]));
                Ok(())
            }
            Absent::Unless(other) if self.found.contains_key(&other) => Ok(()),
            Absent::Means(value, source) | Absent::MeansOrOff(value, source) => {
                let name = format!("{} (absent: {source})", path(key.names[0]));
                self.set(key.field, name, value.value())
            }
            Absent::Required | Absent::Unless(_) => {
                let others = match &key.names[1..] {
                    [] => String::new(),
                    others => format!(" (also known as {})", others.join(", ")),
                };
                Err(CheckpointError::key(
                    path(key.names[0]),
                    format!("missing{others}; this family has no default for it"),
                ))
            }
        }
    }

    /// The key that gave a field, for messages.
    pub(crate) fn key(&self, field: Field) -> &str {
        let absent = || self.absent.get(&field).map_or("a key of this family", String::as_str);
        self.found.get(&field).map_or_else(absent, |entry| entry.key.as_str())
    }

    /// An error about a field.
    pub(crate) fn fault(&self, field: Field, text: impl Into<String>) -> CheckpointError {
        match self.found.get(&field) {
            Some(entry) => CheckpointError::key(&entry.key, text),
            None => CheckpointError::key(self.key(field), format!("missing: {}", text.into())),
        }
    }

    fn wrong(&self, field: Field, expected: &str) -> CheckpointError {
        let found = self.found.get(&field).map_or(Value::Null, |entry| entry.value.clone());
        self.fault(field, format!("expected {expected}, found {found}"))
    }

    pub(crate) fn get(&self, field: Field) -> Option<&Value> {
        self.found.get(&field).map(|entry| &entry.value)
    }

    /// A count, 0 included; `None` where the field is off.
    pub(crate) fn count(&self, field: Field) -> Result<Option<usize>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        whole(value).map(Some).ok_or_else(|| self.wrong(field, "a whole number from 0 to 2^28"))
    }

    /// A size of at least 1; `None` where the field is off. 0 is no other word for off: the reference takes it as it is.
    pub(crate) fn size_or_off(&self, field: Field) -> Result<Option<usize>, CheckpointError> {
        match self.count(field)? {
            Some(0) => Err(self.wrong(field, "a whole number from 1 to 2^28, or null")),
            size => Ok(size),
        }
    }

    /// A size of at least 1.
    pub(crate) fn size(&self, field: Field) -> Result<usize, CheckpointError> {
        self.size_or_off(field)?.ok_or_else(|| self.wrong(field, "a whole number from 1 to 2^28"))
    }

    /// A count of one layer, from a number or from a list with one number a layer; `None` where the field is off.
    pub(crate) fn of_layer(&self, field: Field, layer: usize, layers: usize) -> Result<Option<usize>, CheckpointError> {
        let Some(Value::Array(list)) = self.get(field) else { return self.count(field) };
        if list.len() != layers {
            return Err(self
                .fault(field, format!("a list of {} numbers, expected one for each of {layers} layers", list.len())));
        }
        whole(&list[layer]).map(Some).ok_or_else(|| self.wrong(field, "whole numbers from 0 to 2^28"))
    }

    /// A list of whole numbers; empty where the field is off.
    pub(crate) fn counts(&self, field: Field) -> Result<Vec<usize>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(Vec::new()) };
        let counts = value.as_array().and_then(|list| list.iter().map(whole).collect());
        counts.ok_or_else(|| self.wrong(field, "a list of whole numbers"))
    }

    /// Words, one for each of `n` layers; `None` where the field is off.
    pub(crate) fn words(&self, field: Field, n: usize) -> Result<Option<Vec<&str>>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let words: Option<Vec<&str>> = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        let words = words.ok_or_else(|| self.wrong(field, "a list of words"))?;
        if words.len() != n {
            return Err(
                self.fault(field, format!("a list of {} words, expected one for each of {n} layers", words.len()))
            );
        }
        Ok(Some(words))
    }

    /// A finite number; `None` where the field is off.
    pub(crate) fn number_or_off(&self, field: Field) -> Result<Option<f64>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = value.as_f64().filter(|n| n.is_finite() && (*n as f32).is_finite());
        number.map(Some).ok_or_else(|| self.wrong(field, "a number"))
    }

    /// A finite number.
    pub(crate) fn number(&self, field: Field) -> Result<f64, CheckpointError> {
        self.number_or_off(field)?.ok_or_else(|| self.wrong(field, "a number"))
    }

    /// A finite number above 0.
    pub(crate) fn positive(&self, field: Field) -> Result<f64, CheckpointError> {
        let number = self.number(field)?;
        if number > 0.0 { Ok(number) } else { Err(self.wrong(field, "a number above 0")) }
    }

    /// A yes or no; no where the field is off.
    pub(crate) fn flag(&self, field: Field) -> Result<bool, CheckpointError> {
        match self.get(field) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(field, "true or false")),
        }
    }

    /// An object; `None` where the field is off.
    pub(crate) fn object(&self, field: Field) -> Result<Option<&Map<String, Value>>, CheckpointError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value.as_object().map(Some).ok_or_else(|| self.wrong(field, "an object")),
        }
    }

    /// A word; `None` where the field is off.
    pub(crate) fn word(&self, field: Field) -> Result<Option<&str>, CheckpointError> {
        match self.get(field) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| self.wrong(field, "a word")),
        }
    }
}

/// A whole number within the limit; 8.0 is one.
fn whole(value: &Value) -> Option<usize> {
    let n = value.as_u64().or_else(|| {
        value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n <= MAX_SIZE as f64).map(|n| n as u64)
    })?;
    usize::try_from(n).ok().filter(|_| n <= MAX_SIZE)
}
