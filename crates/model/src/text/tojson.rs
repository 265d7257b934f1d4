//! The filter `tojson` as chat templates expect it: Python's `json.dumps`, not the HTML-safe one of Jinja.

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

struct Style {
    indent: Option<String>,
    item: String,
    key: String,
    ascii: bool,
    sorted: bool,
}

/// `value | tojson(indent=None, ensure_ascii=False, separators=None, sort_keys=False)`.
pub(super) fn tojson(value: &Value, kwargs: &Kwargs) -> Result<Value, Error> {
    let bad = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
    if value.is_undefined() {
        return Err(bad("tojson: the value is undefined".into()));
    }
    let json = serde_json::to_value(value).map_err(|error| bad(format!("tojson: {error}")))?;
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(match (value.as_str(), value.as_usize()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(count)) if count <= 64 => " ".repeat(count),
            _ => return Err(bad("tojson: indent: expected a number up to 64 or a string".into())),
        }),
    };
    let separators = kwargs.get::<Option<Vec<String>>>("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(bad("tojson: separators: expected two strings".into())),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sorted = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let mut out = String::new();
    Style { indent, item, key, ascii, sorted }.write(&json, 0, &mut out);
    Ok(Value::from(out))
}

impl Style {
    fn write(&self, json: &Json, depth: usize, out: &mut String) {
        match json {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(float) => out.push_str(&python_float(float)),
                None => out.push_str(&number.to_string()),
            },
            Json::String(text) => self.quote(text, out),
            Json::Array(items) => self.list(('[', ']'), items.len(), depth, out, |index, out| {
                self.write(&items[index], depth + 1, out);
            }),
            Json::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sorted {
                    entries.sort_by_key(|(key, _)| *key);
                }
                self.list(('{', '}'), entries.len(), depth, out, |index, out| {
                    let (key, value) = entries[index];
                    self.quote(key, out);
                    out.push_str(&self.key);
                    self.write(value, depth + 1, out);
                });
            }
        }
    }

    fn list(
        &self,
        (open, close): (char, char),
        count: usize,
        depth: usize,
        out: &mut String,
        mut each: impl FnMut(usize, &mut String),
    ) {
        out.push(open);
        for index in 0..count {
            if index > 0 {
                out.push_str(&self.item);
            }
            self.line(depth + 1, out);
            each(index, out);
        }
        if count > 0 {
            self.line(depth, out);
        }
        out.push(close);
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn quote(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if u32::from(c) < 0x20 || self.ascii && !c.is_ascii() => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// `repr` of a Python float: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn python_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{value:?}")
}
