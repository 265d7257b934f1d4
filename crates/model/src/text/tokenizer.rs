//! Two tokenizers from one file: the released one for decoding, and its twin without control tokens for encoding.

use std::collections::HashSet;

use serde_json::Value;
use tokenizers::Tokenizer;

use super::controls::{Controls, Found};
use super::error::{TextError, brief};
use super::files::{TOKENIZER_FILE, TextFiles};
use super::guard;
use super::pieces;
use super::plain::{self, SENTINEL};

/// The pair. Encoding never yields a control token that the caller did not ask for by position.
#[derive(Debug)]
pub(super) struct Pair {
    /// As released; decodes.
    full: Tokenizer,
    /// Control tokens renamed (see [`plain`]); encodes.
    plain: Tokenizer,
    pub(super) controls: Controls,
    /// Ids of special tokens: left out of text for people.
    special: HashSet<u32>,
    /// Whether a long text may be encoded in pieces.
    splits: bool,
    /// What the released tokenizer puts before a plain prompt.
    prefix: Vec<u32>,
}

impl Pair {
    pub(super) fn new(files: &TextFiles) -> Result<Self, TextError> {
        let mut json: Value = serde_json::from_str(&files.tokenizer_json)
            .map_err(|error| TextError::file(TOKENIZER_FILE, format!("not JSON: {error}")))?;
        if !json["model"].is_object() {
            return Err(TextError::file(TOKENIZER_FILE, "expected an object `model`, found none"));
        }
        plain::merge_added(&mut json, &files.settings.added_tokens);
        for key in ["truncation", "padding"] {
            if let Some(value) = json.get_mut(key) {
                *value = Value::Null;
            }
        }
        if let Some(dropout) = json["model"].get_mut("dropout") {
            *dropout = Value::Null; // Encoding is not a game of chance.
        }
        let full = load(&json)?;
        let controls = Controls::new(plain::rename_controls(&mut json)?);
        let plain = load(&json)?;
        let splits = pieces::splits_by_pattern(&json);
        drop(json);
        for control in controls.iter() {
            for (tokenizer, content) in [(&full, &control.content), (&plain, &control.name)] {
                let found = tokenizer.token_to_id(content);
                if found.map(u64::from) != Some(control.id) {
                    let found = found.map_or_else(|| "none".to_owned(), |id| id.to_string());
                    let token = &control.content;
                    let reason = format!("added token `{token}`: expected id {}, found {found}", control.id);
                    return Err(TextError::file(TOKENIZER_FILE, reason));
                }
            }
        }
        let special =
            full.get_added_tokens_decoder().into_iter().filter_map(|(id, token)| token.special.then_some(id)).collect();
        let mut pair = Self { full, plain, controls, special, splits, prefix: Vec::new() };
        pair.prefix = pair.released_prefix()?;
        Ok(pair)
    }

    /// The ids that the post-processor of the released tokenizer puts before a text.
    fn released_prefix(&self) -> Result<Vec<u32>, TextError> {
        let ids = |special| encode(&self.full, "a", special);
        let (bare, whole) = (ids(false)?, ids(true)?);
        let start = whole.windows(bare.len().max(1)).position(|window| window == bare);
        Ok(start.map_or_else(Vec::new, |start| whole[..start].to_vec()))
    }

    pub(super) fn prefix(&self) -> &[u32] {
        &self.prefix
    }

    pub(super) fn token_id(&self, token: &str) -> Option<u32> {
        self.full.token_to_id(token)
    }

    pub(super) fn token(&self, id: u32) -> Option<String> {
        self.full.id_to_token(id)
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.special.contains(&id)
    }

    /// One more than the largest id.
    pub(super) fn id_limit(&self) -> u32 {
        self.full.get_vocab(true).into_values().max().map_or(0, |max| max.saturating_add(1))
    }

    /// Encodes at once, for comparison.
    #[cfg(test)]
    pub(super) fn encode_whole(&self, text: &str) -> Result<Vec<u32>, TextError> {
        encode(&self.plain, text, false)
    }

    /// Encodes `text`, in which only what `found` lists is a control token.
    pub(super) fn encode(&self, text: &str, found: &[Found]) -> Result<Vec<u32>, TextError> {
        let mut renamed = String::with_capacity(text.len() + found.len() * 4);
        let mut ids = Vec::new();
        let mut start = 0;
        for Found { bytes, control } in found {
            self.push_text(&text[start..bytes.start], &mut renamed, &mut ids)?;
            renamed.push_str(&self.controls.get(*control).name);
            start = bytes.end;
        }
        self.push_text(&text[start..], &mut renamed, &mut ids)?;
        ids.extend(self.encode_renamed(&renamed)?);
        Ok(ids)
    }

    /// Encodes with the second tokenizer, a long text in pieces.
    fn encode_renamed(&self, text: &str) -> Result<Vec<u32>, TextError> {
        if !self.splits {
            return encode(&self.plain, text, false);
        }
        let part = |text: &str| encode(&self.plain, text, false);
        let pieces = pieces::cut(text, &mut |left, right| {
            Ok::<_, TextError>(part(&format!("{left}{right}"))? == [part(left)?, part(right)?].concat())
        })?;
        let mut ids = Vec::new();
        for piece in pieces {
            ids.extend(part(piece)?);
        }
        Ok(ids)
    }

    /// Appends ordinary text; a sentinel in it is encoded apart from its neighbours, so that it cannot open a name.
    fn push_text(&self, text: &str, renamed: &mut String, ids: &mut Vec<u32>) -> Result<(), TextError> {
        let mut pieces = text.split(SENTINEL);
        renamed.push_str(pieces.next().unwrap_or(""));
        for piece in pieces {
            ids.extend(self.encode_renamed(renamed)?);
            ids.extend(encode(&self.plain, SENTINEL.encode_utf8(&mut [0; 4]), false)?);
            renamed.clear();
            renamed.push_str(piece);
        }
        Ok(())
    }

    pub(super) fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        guard::catch(|| self.full.decode(ids, skip_special))
            .map_err(|reason| TextError::Decode(brief(&reason)))?
            .map_err(|error| TextError::Decode(brief(&error.to_string())))
    }
}

fn load(json: &Value) -> Result<Tokenizer, TextError> {
    // By way of text: the library's reader borrows strings, which a value cannot lend.
    let text = json.to_string();
    guard::catch(|| text.parse::<Tokenizer>())
        .map_err(|reason| TextError::file(TOKENIZER_FILE, reason))?
        .map_err(|error| TextError::file(TOKENIZER_FILE, format!("not a tokenizer that this version reads: {error}")))
}

fn encode(tokenizer: &Tokenizer, text: &str, special: bool) -> Result<Vec<u32>, TextError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    guard::catch(|| tokenizer.encode_fast(text, special))
        .map_err(|reason| TextError::Encode(brief(&reason)))?
        .map(|encoding| encoding.get_ids().to_vec())
        .map_err(|error| TextError::Encode(brief(&error.to_string())))
}
