//! JSON in which a key may occur once: the last of two would win silently elsewhere.

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// Values of a document: some thousands in released configs. One takes up to 150 B of memory and 2 B of a file.
const MAX_VALUES: usize = 100_000;

/// Parses a document; a key that occurs twice in an object is an error.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let left = Cell::new(MAX_VALUES);
    let value = Strict(&left).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Carries how many more values may come.
struct Strict<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        match self.0.get().checked_sub(1) {
            None => return Err(D::Error::custom(format!("more than {MAX_VALUES} values"))),
            Some(left) => self.0.set(left),
        }
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(Strict(self.0))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("key `{key}` occurs twice")));
            }
            object.insert(key, map.next_value_seed(Strict(self.0))?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_VALUES, parse};
    use serde_json::json;

    #[test]
    fn values_come_as_they_are_and_repeated_keys_are_refused() {
        let text = br#"{"a": [1, -2, 1.5, "x", null, true], "b": {"c": 1e-6}}"#;
        let want = json!({"a": [1, -2, 1.5, "x", null, true], "b": {"c": 1e-6}});
        assert_eq!(parse(text).expect("valid"), want);
        for (text, fault) in [
            (&br#"{"a": 1, "a": 1}"#[..], "key `a` occurs twice"),
            (br#"{"a": {"b": 1, "\u0062": 2}}"#, "key `b` occurs twice"),
            (br#"{"a": 1} x"#, "trailing characters"),
            (b"", "EOF"),
            (format!("[{}0]", "0,".repeat(MAX_VALUES)).as_bytes(), "more than 100000 values"),
        ] {
            let error = parse(text).expect_err("refused").to_string();
            assert!(error.contains(fault), "{error}");
        }
        // Nesting beyond the parser's limit is an error, not a stack overflow.
        assert!(parse(&b"[".repeat(1 << 20)).is_err());
    }
}
