//! Long texts in pieces: the tokenizer library needs some hundred bytes of memory for each byte of text that it
//! encodes at once.

use std::ops::Range;

use serde_json::Value;

/// Shorter texts are encoded at once.
const PIECE: usize = 64 << 10;
/// Bytes on each side of a cut that must encode alike, together and apart.
const AROUND: usize = 256;

/// Whether the tokenizer splits text by a pattern before it merges: only then what lies far from a cut cannot matter.
pub(super) fn splits_by_pattern(tokenizer: &Value) -> bool {
    fn pattern(pre: &Value) -> bool {
        match pre["type"].as_str() {
            Some("Sequence") => pre["pretokenizers"].as_array().is_some_and(|list| list.iter().any(pattern)),
            Some("Split") => pre["pattern"]["Regex"].is_string(),
            Some("ByteLevel") => pre["use_regex"].as_bool().unwrap_or(true),
            _ => false,
        }
    }
    tokenizer["model"]["type"] == "BPE" && pattern(&tokenizer["pre_tokenizer"])
}

/// Cuts `text` between a line's end and a letter, where `agrees` finds that the two sides around it encode alike
/// together and apart. The pieces, joined, are the text.
pub(super) fn cut<'t, E>(
    text: &'t str,
    agrees: &mut dyn FnMut(&str, &str) -> Result<bool, E>,
) -> Result<Vec<&'t str>, E> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut from = PIECE;
    while let Some(place) = line_start(text, from) {
        let (left, right) = (around(text, start..place, true), around(text, place..text.len(), false));
        if agrees(left, right)? {
            pieces.push(&text[start..place]);
            start = place;
            from = place + PIECE;
        } else {
            from = place + 1;
        }
    }
    pieces.push(&text[start..]);
    Ok(pieces)
}

/// The first place from `from` on that a letter follows and a line's end precedes.
fn line_start(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut place = from;
    loop {
        place += bytes.get(place..)?.iter().position(|byte| *byte == b'\n')? + 1;
        if text[place..].chars().next()?.is_alphabetic() {
            return Some(place);
        }
    }
}

/// The end, or the start, of a part.
fn around(text: &str, part: Range<usize>, end: bool) -> &str {
    let part = &text[part];
    if part.len() <= AROUND {
        return part;
    }
    if end { &part[part.ceil_char_boundary(part.len() - AROUND)..] } else { &part[..part.floor_char_boundary(AROUND)] }
}
