//! Which control tokens of a rendered prompt come from the template, and which from what a person wrote.
//!
//! The prompt is rendered with the real content, so templates that test or split it (`startswith`, `split('</think>')`)
//! behave as released. Then it is rendered again with stand-ins, and the two are compared character by character:
//!
//! 1. Every visible character of the content is replaced by a private-use stand-in. If the outputs have one shape, the
//!    stand-ins tell content from template exactly: a control token with a character of the content is no control token.
//! 2. A template that looks for its own words in the content takes another path then. So the same again, with those
//!    words (the string literals of the template) left alone in the content. That leaves open only tokens that such a
//!    word could form.
//! 3. What is open is decided from the other side: the control tokens in the template's *source* are replaced by
//!    stand-ins where that leaves the shape of the output alone. A token counts if its stand-in comes out.
//!
//! What no step proves is text: a doubt costs a control token, never the boundary between a person and the system.

use std::ops::Range;

use minijinja::Value as Jinja;
use minijinja::value::Serde;
use serde_json::{Map, Value};

use super::chat::{Chat, ROLES};
use super::controls::{Controls, Found};
use super::error::TextError;
use super::literals;
use super::template::Template;

/// Single trials of step 3; templates have some twenty tokens.
const MAX_TRIALS: usize = 256;

/// A prompt and the control tokens in it.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) text: String,
    pub(super) found: Vec<Found>,
}

/// One conversation with one template.
pub(super) struct Renderer<'a> {
    pub(super) template: &'a Template,
    pub(super) chat: &'a Chat,
    /// `bos_token` and the like, as the template sees them.
    pub(super) special: &'a Map<String, Value>,
    pub(super) controls: &'a Controls,
    pub(super) now: i64,
}

/// How content is replaced.
#[derive(Clone, Copy)]
enum Mask<'a> {
    None,
    /// All but these words of the template (whole strings or, with `within`, anywhere).
    Content {
        words: &'a [String],
        within: bool,
    },
}

impl Renderer<'_> {
    pub(super) fn render(&self) -> Result<Rendered, TextError> {
        let source = self.template.source.as_str();
        let text = self.template.render(source, &self.context(Mask::None, self.special), self.now)?;
        if self.controls.find(&text, &|_| true).is_empty() {
            return Ok(Rendered { text, found: Vec::new() });
        }
        let words = literals::words(source);
        let harmless: Vec<String> = words.iter().filter(|word| !self.touches_any(word)).cloned().collect();
        if let Some(tainted) = self.tainted(&text, Mask::Content { words: &harmless, within: false }) {
            let found = self.controls.find(&text, &|bytes| !tainted[bytes.clone()].contains(&true));
            return Ok(Rendered { text, found });
        }
        let tainted = self.tainted(&text, Mask::Content { words: &words, within: true });
        let open = self.open_words(&words, tainted.is_some());
        let proved = self.proved(&text);
        let found = self.controls.find(&text, &|bytes| {
            let clean = tainted.as_ref().is_none_or(|tainted| !tainted[bytes.clone()].contains(&true));
            clean && (proved[bytes.start] || !open.iter().any(|word| touches(word, &text[bytes.clone()])))
        });
        Ok(Rendered { text, found })
    }

    fn context(&self, mask: Mask, special: &Map<String, Value>) -> Jinja {
        let list = |values: &[Value]| values.iter().map(|value| self.masked(value, mask)).collect::<Vec<_>>();
        let mut map = special.clone();
        map.insert("messages".into(), list(&self.chat.messages).into());
        map.insert(
            "tools".into(),
            if self.chat.tools.is_empty() { Value::Null } else { list(&self.chat.tools).into() },
        );
        map.insert("documents".into(), Value::Null);
        map.insert("add_generation_prompt".into(), self.chat.add_generation_prompt.into());
        for (name, value) in &self.chat.variables {
            map.insert(name.clone(), self.masked(value, mask));
        }
        Jinja::from(Serde(&map))
    }

    /// `value` with the strings in it replaced, keys only where they spell a control token.
    fn masked(&self, value: &Value, mask: Mask) -> Value {
        let Mask::Content { words, within } = mask else { return value.clone() };
        match value {
            Value::String(text) => Value::String(mask_text(text, words, within)),
            Value::Array(items) => items.iter().map(|item| self.masked(item, mask)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, item)| {
                    let hostile = self.controls.contained_in(key) || self.at_an_edge(key);
                    let key_out = if hostile { mask_text(key, &[], false) } else { key.clone() };
                    let known_role = key == "role" && item.as_str().is_some_and(|role| ROLES.contains(&role));
                    (key_out, if known_role { item.clone() } else { self.masked(item, mask) })
                })
                .collect(),
            other => other.clone(),
        }
    }

    /// Whether `key` could end or begin a control token with its neighbours: part of one that is no plain word.
    fn at_an_edge(&self, key: &str) -> bool {
        !key.chars().all(|c| c.is_alphanumeric() || "_-. $".contains(c)) && self.touches_any(key)
    }

    fn touches_any(&self, word: &str) -> bool {
        self.controls.iter().any(|control| touches(word, &control.content))
    }

    /// For each byte of `text`, whether it comes from the content; `None` where the masked output has another shape.
    fn tainted(&self, text: &str, mask: Mask) -> Option<Vec<bool>> {
        let context = self.context(mask, self.special);
        let masked = self.template.render(&self.template.source, &context, self.now).ok()?;
        changed(text, &masked)
    }

    /// Strings of the content that no stand-in covers: words of the template in it, or, where not even that gave a
    /// comparison, everything.
    fn open_words(&self, words: &[String], compared: bool) -> Vec<String> {
        let mut texts = Vec::new();
        for value in self.chat.messages.iter().chain(&self.chat.tools).chain(self.chat.variables.values()) {
            collect(value, &mut texts);
        }
        if compared {
            return words
                .iter()
                .filter(|word| texts.iter().any(|text| text.contains(word.as_str())))
                .cloned()
                .collect();
        }
        // Anything of a token but its letters, in any content, opens the token.
        let mut open: Vec<String> = Vec::new();
        for c in texts.iter().flat_map(|text| text.chars()).filter(|c| !c.is_alphanumeric() && !c.is_whitespace()) {
            let c = c.to_string();
            if !open.contains(&c) {
                open.push(c);
            }
        }
        // A token of letters only has no such character: it is open to all content.
        open.extend(self.controls.iter().map(|control| &control.content).filter(|token| plain_word(token)).cloned());
        open
    }

    /// For each byte of `text`, whether a stand-in of the template's source comes out there.
    fn proved(&self, text: &str) -> Vec<bool> {
        let source = self.template.source.as_str();
        let spots = self.controls.find(source, &|_| true);
        let roles: Vec<&String> = self.special.keys().collect();
        let count = spots.len() + roles.len();
        let try_marks = |chosen: &[bool]| {
            let marks: Vec<Range<usize>> =
                spots.iter().zip(chosen).filter(|(_, chosen)| **chosen).map(|(spot, _)| spot.bytes.clone()).collect();
            let mut special = self.special.clone();
            for (role, _) in roles.iter().zip(&chosen[spots.len()..]).filter(|(_, chosen)| **chosen) {
                if let Some(Value::String(token)) = special.get_mut(role.as_str()) {
                    *token = mask_first(token);
                }
            }
            let masked = self.template.render(&mark(source, &marks), &self.context(Mask::None, &special), self.now);
            masked.ok().and_then(|masked| changed(text, &masked))
        };
        if let Some(proved) = try_marks(&vec![true; count]) {
            return proved;
        }
        let mut chosen = vec![false; count];
        for index in 0..count.min(MAX_TRIALS) {
            let mut alone = vec![false; count];
            alone[index] = true;
            chosen[index] = try_marks(&alone).is_some();
        }
        try_marks(&chosen).unwrap_or_else(|| vec![false; text.len()])
    }
}

/// Whether text that holds `word` could be part of `token`: one is within the other, or they overlap at an end.
fn touches(word: &str, token: &str) -> bool {
    if word.is_empty() {
        return false;
    }
    let overlap = |head: &str, tail: &str| {
        head.char_indices().any(|(start, _)| tail.starts_with(&head[start..])) // A suffix of one opens the other.
    };
    token.contains(word) || word.contains(token) || overlap(word, token) || overlap(token, word)
}

fn plain_word(token: &str) -> bool {
    token.chars().all(|c| c.is_alphanumeric() || c.is_whitespace())
}

/// All strings of `value`, keys too.
fn collect<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(map) => {
            for (key, item) in map {
                texts.push(key);
                collect(item, texts);
            }
        }
        _ => {}
    }
}

/// The stand-in of a character; `None` for white space and what JSON escapes, whose treatment would differ.
fn stand_in(c: char) -> Option<char> {
    if c.is_whitespace() || c.is_control() || c == '"' || c == '\\' {
        return None;
    }
    match u32::from(c) {
        code @ ..0xFFFC => char::from_u32(0x10_0000 + code),
        _ => Some('\u{10FFFC}'), // Rare: all further planes share one.
    }
}

fn mask_text(text: &str, words: &[String], within: bool) -> String {
    if !within && words.iter().any(|word| word == text) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word = words.iter().filter(|word| within && rest.starts_with(word.as_str())).map(String::len).max();
        let length = word.unwrap_or(c.len_utf8());
        match word {
            Some(_) => out.push_str(&rest[..length]),
            None => out.push(stand_in(c).unwrap_or(c)),
        }
        rest = &rest[length..];
    }
    out
}

fn mask_first(token: &str) -> String {
    let mut chars = token.chars();
    let first = chars.next().and_then(stand_in);
    first.into_iter().chain(chars).collect()
}

/// `source` with a stand-in for the first character of each mark.
fn mark(source: &str, marks: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(source.len() + marks.len() * 4);
    let mut start = 0;
    for bytes in marks {
        out.push_str(&source[start..bytes.start]);
        out.push_str(&mask_first(&source[bytes.clone()]));
        start = bytes.end;
    }
    out + &source[start..]
}

/// For each byte of `text`, whether `masked` has a stand-in in its place; `None` where they differ otherwise.
fn changed(text: &str, masked: &str) -> Option<Vec<bool>> {
    let mut out = Vec::with_capacity(text.len());
    let mut other = masked.chars();
    for c in text.chars() {
        let there = other.next()?;
        let is_changed = there != c;
        if is_changed && stand_in(c) != Some(there) {
            return None;
        }
        out.extend(std::iter::repeat_n(is_changed, c.len_utf8()));
    }
    other.next().is_none().then_some(out)
}
