//! Ids to text as they come, never half a character.

use super::error::TextError;
use super::tokenizer::Pair;

/// A character has at most four bytes; more ids than this without text are bytes that never become one.
const MAX_PENDING: usize = 8;

/// Text of a growing list of ids; made by [`TextModel::decode_stream`](super::TextModel::decode_stream).
///
/// The pieces, joined, are the decoded text of all ids. A piece is withheld while it ends within a character.
#[derive(Debug)]
pub struct DecodeStream<'a> {
    pair: &'a Pair,
    skip_special: bool,
    /// Ids that still matter: the last that gave text (decoders look back at it), then those that have not.
    ids: Vec<u32>,
    /// How many of `ids` have given their text.
    given: usize,
    /// Bytes of text that they gave.
    given_text: String,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(pair: &'a Pair, skip_special: bool) -> Self {
        Self { pair, skip_special, ids: Vec::new(), given: 0, given_text: String::new() }
    }

    /// Takes one id and returns the text that is complete now, often empty.
    ///
    /// # Errors
    /// When the tokenizer's decoder fails.
    pub fn push(&mut self, id: u32) -> Result<String, TextError> {
        if self.skip_special && self.pair.is_special(id) || self.pair.token(id).is_none() {
            return Ok(String::new()); // Also ids of a padded vocabulary that no token has.
        }
        self.ids.push(id);
        let text = self.pair.decode(&self.ids, self.skip_special)?;
        if text.ends_with('\u{FFFD}') && self.ids.len() - self.given <= MAX_PENDING {
            return Ok(String::new());
        }
        self.advance(&text)
    }

    /// The text that is still withheld, with replacement characters for what never became one.
    ///
    /// # Errors
    /// When the tokenizer's decoder fails.
    pub fn finish(&mut self) -> Result<String, TextError> {
        let text = self.pair.decode(&self.ids, self.skip_special)?;
        let rest = after(&text, &self.given_text).to_owned();
        (self.ids, self.given) = (Vec::new(), 0);
        self.given_text.clear();
        Ok(rest)
    }

    fn advance(&mut self, text: &str) -> Result<String, TextError> {
        let piece = after(text, &self.given_text).to_owned();
        self.ids.drain(..self.given);
        self.given = self.ids.len();
        self.given_text = self.pair.decode(&self.ids, self.skip_special)?;
        Ok(piece)
    }
}

/// `text` without what it shares with `given` at its start: all of `given`, unless a decoder rewrites its past.
fn after<'t>(text: &'t str, given: &str) -> &'t str {
    let same = text.chars().zip(given.chars()).take_while(|(a, b)| a == b);
    &text[same.map(|(c, _)| c.len_utf8()).sum()..]
}
