//! The files that hold a model's text side, and what of them a vault keeps.
//!
//! A checkpoint folder spreads it over `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json` and up to
//! three places for chat templates. [`TextFiles`] is the sum: the tokenizer as released, and [`TextSettings`], one
//! small JSON document with everything else. Both are stored as they are, so a vault and a folder build the same
//! [`TextModel`](super::TextModel).

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::TextError;

/// The tokenizer's file in a checkpoint folder.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// The tokenizer's settings in a checkpoint folder.
const CONFIG_FILE: &str = "tokenizer_config.json";
/// Special tokens by role, in older checkpoints.
const SPECIAL_FILE: &str = "special_tokens_map.json";
/// The chat template as a file of its own.
const JINJA_FILE: &str = "chat_template.jinja";
/// The chat template of a processor, as JSON.
const JSON_FILE: &str = "chat_template.json";
/// Named templates beside the default one, one file each.
const NAMED_FOLDER: &str = "additional_chat_templates";
/// Largest released: 33 MB.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;
/// Largest released: 1 MB (many added tokens).
const MAX_SETTINGS_BYTES: u64 = 32 << 20;
/// Roles of special tokens that templates use as variables.
const SPECIAL_ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// A chat template under its name; the usual one is called `default`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedTemplate {
    /// `default`, `tool_use`, `rag`, ...
    pub name: String,
    /// The Jinja source, as released.
    pub text: String,
}

/// Everything about a model's text that is not in `tokenizer.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextSettings {
    /// Chat templates; none where the model has none.
    pub templates: Vec<NamedTemplate>,
    /// The file that the templates came from, for messages.
    pub template_file: String,
    /// Special tokens by role (`bos_token`, `eos_token`, ...): what a template sees under these names.
    pub special: Map<String, Value>,
    /// Whether a plain prompt starts with the start token; `None` leaves it to `tokenizer.json`.
    pub add_bos_token: Option<bool>,
    /// Added tokens that only `tokenizer_config.json` lists, by id.
    pub added_tokens: Vec<Value>,
}

/// A model's text side as stored: in a checkpoint folder or in two sections of a vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFiles {
    /// `tokenizer.json`, as released.
    pub tokenizer_json: String,
    /// The rest.
    pub settings: TextSettings,
}

/// The bytes of the files of a checkpoint folder that speak of text.
#[derive(Debug, Clone, Default)]
pub struct SourceFiles {
    /// `tokenizer.json`.
    pub tokenizer_json: Vec<u8>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<Vec<u8>>,
    /// `special_tokens_map.json`.
    pub special_tokens_map: Option<Vec<u8>>,
    /// `chat_template.jinja`.
    pub chat_template_jinja: Option<Vec<u8>>,
    /// `chat_template.json`.
    pub chat_template_json: Option<Vec<u8>>,
    /// `additional_chat_templates/NAME.jinja` by name.
    pub named_templates: Vec<(String, Vec<u8>)>,
}

impl TextFiles {
    /// Reads the files of a checkpoint folder; `None` where it has no `tokenizer.json`.
    ///
    /// # Errors
    /// A file that cannot be read, is too large, or is not what its name says.
    pub fn open(folder: &Path) -> Result<Option<Self>, TextError> {
        let Some(tokenizer_json) = read(folder, TOKENIZER_FILE, MAX_TOKENIZER_BYTES)? else { return Ok(None) };
        let small = |name: &str| read(folder, name, MAX_SETTINGS_BYTES);
        Self::from_sources(&SourceFiles {
            tokenizer_json,
            tokenizer_config: small(CONFIG_FILE)?,
            special_tokens_map: small(SPECIAL_FILE)?,
            chat_template_jinja: small(JINJA_FILE)?,
            chat_template_json: small(JSON_FILE)?,
            named_templates: read_named(folder)?,
        })
        .map(Some)
    }

    /// Joins the files of a checkpoint. `chat_template.jinja` goes before `tokenizer_config.json`, and that before
    /// `chat_template.json`, as in the reference implementation.
    ///
    /// # Errors
    /// A file that is not UTF-8 or not JSON of the expected form.
    pub fn from_sources(files: &SourceFiles) -> Result<Self, TextError> {
        let tokenizer_json = utf8(&files.tokenizer_json, TOKENIZER_FILE)?.to_owned();
        let config = object(files.tokenizer_config.as_deref(), CONFIG_FILE)?;
        let map = object(files.special_tokens_map.as_deref(), SPECIAL_FILE)?;
        let mut settings = TextSettings {
            special: special_tokens(&config, &map)?,
            add_bos_token: config.get("add_bos_token").and_then(Value::as_bool),
            added_tokens: added_tokens(&config)?,
            ..TextSettings::default()
        };
        (settings.templates, settings.template_file) = templates(files, &config)?;
        Ok(Self { tokenizer_json, settings })
    }

    /// Rebuilds what [`TextFiles::settings_json`] and the tokenizer's section hold.
    ///
    /// # Errors
    /// Sections that are not UTF-8 or not the expected JSON.
    pub fn from_sections(tokenizer_json: &[u8], settings_json: &[u8]) -> Result<Self, TextError> {
        let settings = serde_json::from_slice(settings_json)
            .map_err(|error| TextError::file("text settings", format!("not the expected JSON: {error}")))?;
        Ok(Self { tokenizer_json: utf8(tokenizer_json, TOKENIZER_FILE)?.to_owned(), settings })
    }

    /// The settings as the bytes of a vault section.
    #[must_use]
    pub fn settings_json(&self) -> Vec<u8> {
        serde_json::json!(self.settings).to_string().into_bytes()
    }
}

fn read(folder: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, TextError> {
    let path = folder.join(name);
    let io = |source| TextError::Io { file: path.display().to_string(), source };
    let length = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return Err(TextError::file(name, "expected a file, found something else")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if length > limit {
        return Err(TextError::file(name, format!("expected at most {limit} B, found {length} B")));
    }
    fs::read(&path).map(Some).map_err(io)
}

fn read_named(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, TextError> {
    let Ok(entries) = fs::read_dir(folder.join(NAMED_FOLDER)) else { return Ok(Vec::new()) };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.ends_with(".jinja"))
        .collect();
    names.sort();
    let mut named = Vec::new();
    for name in names {
        if let Some(bytes) = read(folder, &format!("{NAMED_FOLDER}/{name}"), MAX_SETTINGS_BYTES)? {
            named.push((name.trim_end_matches(".jinja").to_owned(), bytes));
        }
    }
    Ok(named)
}

fn utf8<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, TextError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        TextError::file(file, format!("expected UTF-8, found a bad byte at {}", error.valid_up_to()))
    })?;
    if text.starts_with("version https://git-lfs") {
        return Err(TextError::file(file, "expected the file, found a Git LFS pointer; fetch it with `git lfs pull`"));
    }
    Ok(text)
}

fn object(bytes: Option<&[u8]>, file: &str) -> Result<Map<String, Value>, TextError> {
    let Some(bytes) = bytes else { return Ok(Map::new()) };
    match serde_json::from_str(utf8(bytes, file)?) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(TextError::file(file, "expected a JSON object, found another JSON value")),
        Err(error) => Err(TextError::file(file, format!("not JSON: {error}"))),
    }
}

/// A special token is a string or an object with `content`.
fn special_tokens(config: &Map<String, Value>, map: &Map<String, Value>) -> Result<Map<String, Value>, TextError> {
    let mut special = Map::new();
    for role in SPECIAL_ROLES {
        let (value, file) = match (config.get(role), map.get(role)) {
            (Some(value), _) => (value, CONFIG_FILE),
            (None, Some(value)) => (value, SPECIAL_FILE),
            (None, None) => continue,
        };
        let content = match value {
            Value::Null => continue,
            Value::Object(token) => token.get("content").unwrap_or(&Value::Null),
            other => other,
        };
        let Value::String(content) = content else {
            return Err(TextError::file(file, format!("`{role}`: expected a string or an object with `content`")));
        };
        special.insert(role.to_owned(), Value::String(content.clone()));
    }
    Ok(special)
}

/// `added_tokens_decoder`, as a list in the form of `tokenizer.json`, sorted by id.
fn added_tokens(config: &Map<String, Value>) -> Result<Vec<Value>, TextError> {
    let Some(decoder) = config.get("added_tokens_decoder").filter(|value| !value.is_null()) else {
        return Ok(Vec::new());
    };
    let fault = |reason: &str| TextError::file(CONFIG_FILE, format!("`added_tokens_decoder`: {reason}"));
    let decoder = decoder.as_object().ok_or_else(|| fault("expected an object"))?;
    let mut tokens = Vec::new();
    for (key, token) in decoder {
        let id: u32 = key.parse().map_err(|_| fault(&format!("expected an id, found `{key}`")))?;
        let content = token.get("content").and_then(Value::as_str);
        let content = content.ok_or_else(|| fault(&format!("token {id}: expected a string in `content`")))?;
        let flag = |name: &str| token.get(name).and_then(Value::as_bool).unwrap_or(false);
        tokens.push((
            id,
            serde_json::json!({
                "id": id, "content": content, "single_word": flag("single_word"), "lstrip": flag("lstrip"),
                "rstrip": flag("rstrip"), "normalized": flag("normalized"), "special": flag("special"),
            }),
        ));
    }
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens.into_iter().map(|(_, token)| token).collect())
}

fn templates(files: &SourceFiles, config: &Map<String, Value>) -> Result<(Vec<NamedTemplate>, String), TextError> {
    let (mut list, file) = main_templates(files, config)?;
    for (name, bytes) in &files.named_templates {
        let text = utf8(bytes, &format!("{NAMED_FOLDER}/{name}.jinja"))?.to_owned();
        list.retain(|template: &NamedTemplate| template.name != *name);
        list.push(NamedTemplate { name: name.clone(), text });
    }
    Ok((list, file))
}

fn main_templates(files: &SourceFiles, config: &Map<String, Value>) -> Result<(Vec<NamedTemplate>, String), TextError> {
    if let Some(bytes) = &files.chat_template_jinja {
        let text = utf8(bytes, JINJA_FILE)?.to_owned();
        return Ok((vec![NamedTemplate { name: "default".into(), text }], JINJA_FILE.into()));
    }
    if let Some(value) = config.get("chat_template").filter(|value| !value.is_null()) {
        return Ok((template_value(value, CONFIG_FILE)?, CONFIG_FILE.into()));
    }
    if let Some(bytes) = files.chat_template_json.as_deref() {
        let map = object(Some(bytes), JSON_FILE)?;
        let value = map
            .get("chat_template")
            .ok_or_else(|| TextError::file(JSON_FILE, "expected the key `chat_template`, found none"))?;
        return Ok((template_value(value, JSON_FILE)?, JSON_FILE.into()));
    }
    Ok((Vec::new(), CONFIG_FILE.into()))
}

/// A template is a string, a list of `{name, template}`, or an object from names to templates.
fn template_value(value: &Value, file: &str) -> Result<Vec<NamedTemplate>, TextError> {
    let fault = || {
        TextError::file(
            file,
            "`chat_template`: expected a string, a list of objects with `name` and `template`, or an object of strings",
        )
    };
    let named = |name: &str, text: &Value| {
        let text = text.as_str().ok_or_else(fault)?.to_owned();
        Ok(NamedTemplate { name: name.to_owned(), text })
    };
    match value {
        Value::String(text) => Ok(vec![NamedTemplate { name: "default".into(), text: text.clone() }]),
        Value::Array(list) => list
            .iter()
            .map(|item| {
                let name = item.get("name").and_then(Value::as_str).ok_or_else(fault)?;
                named(name, item.get("template").ok_or_else(fault)?)
            })
            .collect(),
        Value::Object(map) => map.iter().map(|(name, text)| named(name, text)).collect(),
        _ => Err(fault()),
    }
}
