//! The second tokenizer: the same vocabulary, in which no text that a person can type is a control token.
//!
//! Emptying `added_tokens` is not enough: a control token may also stand in the model's own vocabulary, where a
//! whole-word lookup, a merge or a unigram path reaches it. Here every control token gets another name, between two
//! private-use characters, in `added_tokens`, in the vocabulary and wherever the file refers to it. Ordinary text
//! never has that name, and a prompt with the control tokens of a template renamed is encoded **in one go**, so that
//! strips, prefixes and merges at the seams are those of the released tokenizer.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::error::TextError;
use super::files::TOKENIZER_FILE;

/// Opens and closes the name of a control token. Text that has this character is cut there before it is encoded.
pub(super) const SENTINEL: char = '\u{10FFFD}';

/// A token that only a template may write.
#[derive(Debug, Clone)]
pub(super) struct Control {
    /// As released: `<|im_end|>`.
    pub(super) content: String,
    /// Its name in the second tokenizer.
    pub(super) name: String,
    /// Its id, as the file says.
    pub(super) id: u64,
    /// Matched against normalised text, after the others.
    pub(super) normalized: bool,
    /// Matched only where no word character touches it.
    pub(super) single_word: bool,
}

/// Adds the tokens that only the settings know, where their id is the one that they would get.
pub(super) fn merge_added(tokenizer: &mut Value, extra: &[Value]) {
    let vocabulary = vocabulary(tokenizer);
    let Some(added) = tokenizer.get_mut("added_tokens").and_then(Value::as_array_mut) else { return };
    let mut known: HashSet<String> =
        added.iter().filter_map(|token| token["content"].as_str().map(str::to_owned)).collect();
    let mut next = added.iter().filter_map(|token| token["id"].as_u64()).max().map_or(0, |max| max.saturating_add(1));
    next = next.max(vocabulary.len() as u64);
    for token in extra {
        let (Some(content), Some(id)) = (token["content"].as_str(), token["id"].as_u64()) else { continue };
        let place = vocabulary.get(content).copied();
        if content.is_empty() || !(place == Some(id) || place.is_none() && id == next) {
            continue;
        }
        if known.insert(content.to_owned()) {
            next = next.max(id.saturating_add(1));
            added.push(token.clone());
        }
    }
}

/// The model's own vocabulary, for the kinds that have a map or a list.
fn vocabulary(tokenizer: &Value) -> HashMap<String, u64> {
    match &tokenizer["model"]["vocab"] {
        Value::Object(map) => map.iter().filter_map(|(piece, id)| Some((piece.clone(), id.as_u64()?))).collect(),
        Value::Array(list) => {
            list.iter().enumerate().filter_map(|(id, entry)| Some((entry[0].as_str()?.to_owned(), id as u64))).collect()
        }
        _ => HashMap::new(),
    }
}

/// Lists the control tokens and renames them in `tokenizer`.
pub(super) fn rename_controls(tokenizer: &mut Value) -> Result<Vec<Control>, TextError> {
    let controls = controls(tokenizer)?;
    let names: HashMap<String, String> =
        controls.iter().map(|control| (control.content.clone(), control.name.clone())).collect();
    if let Some(added) = tokenizer.get_mut("added_tokens").and_then(Value::as_array_mut) {
        added.retain(|token| !token["content"].as_str().is_some_and(is_byte));
        for token in added {
            if let Some(name) = token["content"].as_str().and_then(|content| names.get(content)) {
                token["content"] = Value::String(name.clone());
                token["single_word"] = Value::Bool(false); // Decided by `controls::find`, on the text as released.
            }
        }
    }
    // Would add, cut or fill: a prompt is encoded as it is.
    for key in ["post_processor", "truncation", "padding"] {
        if let Some(value) = tokenizer.get_mut(key) {
            *value = Value::Null;
        }
    }
    if let Some(model) = tokenizer.get_mut("model").filter(|model| model.is_object()) {
        rename_in_model(model, &names);
    }
    Ok(controls)
}

fn controls(tokenizer: &Value) -> Result<Vec<Control>, TextError> {
    let fault =
        |index: usize, reason: &str| TextError::file(TOKENIZER_FILE, format!("`added_tokens` entry {index}: {reason}"));
    let added = match &tokenizer["added_tokens"] {
        Value::Null => return Ok(Vec::new()),
        Value::Array(added) => added,
        _ => return Err(TextError::file(TOKENIZER_FILE, "`added_tokens`: expected a list")),
    };
    let mut seen = HashSet::new();
    let mut controls = Vec::new();
    for (index, token) in added.iter().enumerate() {
        let content = token["content"].as_str().ok_or_else(|| fault(index, "expected a string in `content`"))?;
        let id = token["id"].as_u64().ok_or_else(|| fault(index, "expected a number in `id`"))?;
        let flag = |name: &str| token[name].as_bool().unwrap_or(false);
        if content.contains(SENTINEL) {
            return Err(fault(index, "expected no U+10FFFD in a token"));
        }
        if is_text(content, flag("special")) || !seen.insert(content.to_owned()) {
            continue;
        }
        controls.push(Control {
            content: content.to_owned(),
            name: format!("{SENTINEL}{index}{SENTINEL}"),
            id,
            normalized: flag("normalized"),
            single_word: flag("single_word"),
        });
    }
    Ok(controls)
}

/// Added tokens that are text and nothing else: runs of spaces, single letters. The models were trained with them in
/// place of the text, and nobody can do harm with them.
fn is_text(content: &str, special: bool) -> bool {
    let mut chars = content.chars();
    let one_letter = matches!((chars.next(), chars.next()), (Some(c), None) if c.is_alphanumeric());
    content.is_empty() || is_byte(content) || !special && (one_letter || content.chars().all(char::is_whitespace))
}

/// `<0x0A>`: a byte of byte fallback, which the model finds by this name.
fn is_byte(content: &str) -> bool {
    content.len() == 6
        && content.starts_with("<0x")
        && content.ends_with('>')
        && content[3..5].bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn rename_in_model(model: &mut Value, names: &HashMap<String, String>) {
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("").to_owned();
    if let Some(unknown) = model.get_mut("unk_token")
        && let Some(name) = unknown.as_str().and_then(|token| names.get(token))
    {
        *unknown = Value::String(name.clone());
    }
    match model.get_mut("vocab") {
        Some(Value::Object(map)) => {
            let old = std::mem::take(map);
            map.extend(old.into_iter().map(|(piece, id)| (names.get(&piece).cloned().unwrap_or(piece), id)));
        }
        Some(Value::Array(list)) => {
            for entry in list {
                if let Some(piece) = entry.get_mut(0)
                    && let Some(name) = piece.as_str().and_then(|piece| names.get(piece))
                {
                    *piece = Value::String(name.clone());
                }
            }
        }
        _ => {}
    }
    if let Some(merges) = model.get_mut("merges").and_then(Value::as_array_mut) {
        merges.retain(|merge| {
            let Some((left, right)) = merge_parts(merge) else { return true };
            let joined = format!("{left}{}", right.strip_prefix(&prefix).unwrap_or(right));
            ![left, right, joined.as_str()].iter().any(|piece| names.contains_key(*piece))
        });
    }
}

fn merge_parts(merge: &Value) -> Option<(&str, &str)> {
    match merge {
        Value::String(text) => text.split_once(' '),
        Value::Array(pair) => Some((pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
        _ => None,
    }
}
