//! Where control tokens stand in a rendered prompt.

use std::collections::HashMap;
use std::ops::Range;

use super::plain::Control;

/// The control tokens of a tokenizer, by first character.
#[derive(Debug)]
pub(super) struct Controls {
    list: Vec<Control>,
    /// Positions in `list`, longest token first.
    by_first: HashMap<char, Vec<usize>>,
}

/// One control token in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes of the text.
    pub(super) bytes: Range<usize>,
    /// Which one, as [`Controls::get`] takes it.
    pub(super) control: usize,
}

impl Controls {
    pub(super) fn new(list: Vec<Control>) -> Self {
        let mut by_first: HashMap<char, Vec<usize>> = HashMap::new();
        for (index, control) in list.iter().enumerate() {
            if let Some(first) = control.content.chars().next() {
                by_first.entry(first).or_default().push(index);
            }
        }
        for places in by_first.values_mut() {
            places.sort_by_key(|index| std::cmp::Reverse(list[*index].content.len()));
        }
        Self { list, by_first }
    }

    pub(super) fn get(&self, index: usize) -> &Control {
        &self.list[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Control> {
        self.list.iter()
    }

    /// The control tokens of `text` whose bytes all pass `allowed`, leftmost first and the longest at each place; as
    /// in the tokenizer library, those that are matched before normalisation go before the others.
    pub(super) fn find(&self, text: &str, allowed: &dyn Fn(&Range<usize>) -> bool) -> Vec<Found> {
        let first = self.find_kind(text, 0..text.len(), false, allowed);
        let mut all = Vec::with_capacity(first.len());
        let mut start = 0;
        for found in first {
            all.extend(self.find_kind(text, start..found.bytes.start, true, allowed));
            start = found.bytes.end;
            all.push(found);
        }
        all.extend(self.find_kind(text, start..text.len(), true, allowed));
        all
    }

    /// Any control token at all, wherever it stands.
    pub(super) fn contained_in(&self, text: &str) -> bool {
        text.char_indices().any(|(start, c)| {
            let places = self.by_first.get(&c).map_or(&[][..], Vec::as_slice);
            places.iter().any(|index| text[start..].starts_with(&self.list[*index].content))
        })
    }

    fn find_kind(
        &self,
        text: &str,
        part: Range<usize>,
        normalized: bool,
        allowed: &dyn Fn(&Range<usize>) -> bool,
    ) -> Vec<Found> {
        let mut found = Vec::new();
        let mut free = part.start;
        for (offset, c) in text[part.clone()].char_indices() {
            let start = part.start + offset;
            if start < free {
                continue;
            }
            let Some(places) = self.by_first.get(&c) else { continue };
            let hit = places.iter().copied().find(|index| {
                let control = &self.list[*index];
                let bytes = start..start + control.content.len();
                control.normalized == normalized
                    && bytes.end <= part.end
                    && text[start..].starts_with(&control.content)
                    && (!control.single_word || stands_alone(text, &bytes))
                    && allowed(&bytes)
            });
            if let Some(control) = hit {
                free = start + self.list[control].content.len();
                found.push(Found { bytes: start..free, control });
            }
        }
        found
    }
}

fn stands_alone(text: &str, bytes: &Range<usize>) -> bool {
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    !word(text[..bytes.start].chars().next_back()) && !word(text[bytes.end..].chars().next())
}
