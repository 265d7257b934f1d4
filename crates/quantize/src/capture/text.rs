//! Calibration text: which rows of token ids are used.

use crate::error::{QuantizeError, Result};
use crate::random::SplitMix64;
use serde_json::{Value, json};
use smoe_model::spec::ModelSpec;

/// Tokens of a window that a text is cut into.
pub const WINDOW: usize = 512;

/// The random stream of the sampling.
const SAMPLING: u64 = 0x7E87;

/// How rows came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// Rows of a token-window file: taken from the first on.
    Windows,
    /// Windows of documents: sampled across their whole length.
    Documents,
    /// Written by the model itself: taken from the first on.
    Own,
}

impl TextKind {
    /// The name in the provenance.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Windows => "windows",
            Self::Documents => "documents",
            Self::Own => "self",
        }
    }
}

/// Text to calibrate on, as token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalibrationText {
    /// Where it comes from: a file's name, never its path.
    pub name: String,
    /// How its rows came about.
    pub kind: TextKind,
    /// The rows, each a text that starts from nothing.
    pub rows: Vec<Vec<u32>>,
}

/// The rows that calibrate.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) rows: Vec<Vec<u32>>,
    pub(crate) tokens: usize,
    /// The first token of the rows that are held out for the reported gain.
    pub(crate) held_from: usize,
    /// Of the text that they come from.
    pub(crate) available: usize,
    /// Name, kind, size and hash, for the provenance.
    pub(crate) description: Value,
}

impl CalibrationText {
    /// Tokens of all rows.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Refuses what no model can be calibrated on.
    pub(crate) fn check(&self, spec: &ModelSpec) -> Result<()> {
        let refuse = |text: String| Err(QuantizeError::Refused(format!("calibration text {}: {text}", self.name)));
        let (tokens, window) = (self.tokens(), WINDOW.min(spec.context));
        if tokens == 0 {
            return refuse("it is empty; give a text of some thousand words".into());
        }
        if self.kind == TextKind::Documents && tokens < window {
            return refuse(format!("expected at least one window of {window} tokens, found {tokens}; give more text"));
        }
        for (number, row) in self.rows.iter().enumerate() {
            if row.len() > spec.context {
                let context = spec.context;
                return refuse(format!("row {number}: expected at most the context of {context}, found {}", row.len()));
            }
            if let Some(id) = row.iter().find(|&&id| id as usize >= spec.vocab) {
                return refuse(format!(
                    "row {number}: found the id {id}, the model's vocabulary has {}; was it made with another tokenizer?",
                    spec.vocab
                ));
            }
        }
        Ok(())
    }

    /// Chooses rows of at most `wanted` tokens.
    pub(crate) fn choose(&self, wanted: usize, seed: u64) -> Result<Chosen> {
        let mut rows = match self.kind {
            TextKind::Documents => self.sample(wanted, seed),
            TextKind::Windows | TextKind::Own => self.rows.clone(),
        };
        let mut tokens = 0;
        let fits = rows.iter().take_while(|row| {
            tokens += row.len();
            tokens <= wanted
        });
        rows.truncate(fits.count());
        let tokens = rows.iter().map(Vec::len).sum();
        if tokens == 0 {
            let least = self.rows.iter().map(Vec::len).next().unwrap_or(0);
            return Err(QuantizeError::Refused(format!(
                "--tokens {wanted}: expected room for a window at least, which has {least} tokens in {}",
                self.name
            )));
        }
        let held: usize = rows.iter().rev().take(held_out(rows.len())).map(Vec::len).sum();
        let description = json!({
            "name": self.name,
            "kind": self.kind.name(),
            "rows": rows.len(),
            "tokens": tokens,
            "blake3": hash(&rows),
        });
        Ok(Chosen { rows, tokens, held_from: tokens - held, available: self.tokens(), description })
    }

    /// One row of each of as many equal stretches as make `wanted` tokens.
    fn sample(&self, wanted: usize, seed: u64) -> Vec<Vec<u32>> {
        let (tokens, count) = (self.tokens(), self.rows.len());
        if tokens <= wanted {
            return self.rows.clone();
        }
        let stretches = (wanted as u128 * count as u128 / tokens.max(1) as u128) as usize;
        let mut random = SplitMix64::new(seed, SAMPLING, 0);
        let chosen = (0..stretches).map(|i| {
            let (first, end) = (i * count / stretches, (i + 1) * count / stretches);
            self.rows[first + (random.next_u64() % (end - first) as u64) as usize].clone()
        });
        chosen.collect()
    }
}

/// The last sixteenth of the rows, one at least, where there are two.
fn held_out(rows: usize) -> usize {
    if rows < 2 { 0 } else { rows.div_ceil(16) }
}

/// BLAKE3 over each row's length and ids, as u32.
fn hash(rows: &[Vec<u32>]) -> String {
    let mut hasher = blake3::Hasher::new();
    for row in rows {
        hasher.update(&(row.len() as u32).to_le_bytes());
        row.iter().for_each(|id| {
            hasher.update(&id.to_le_bytes());
        });
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: TextKind, rows: usize, len: usize) -> CalibrationText {
        let row = |r: usize| (0..len).map(|i| (r * len + i) as u32).collect();
        CalibrationText { name: "t".into(), kind, rows: (0..rows).map(row).collect() }
    }

    fn firsts(chosen: &Chosen) -> Vec<u32> {
        chosen.rows.iter().map(|row| row[0] / row.len() as u32).collect()
    }

    #[test]
    fn windows_are_taken_from_the_first_on() {
        let chosen = text(TextKind::Windows, 9, 10).choose(45, 7).expect("rows");
        assert_eq!(
            (firsts(&chosen), chosen.tokens, chosen.held_from, chosen.available),
            (vec![0, 1, 2, 3], 40, 30, 90)
        );
        let all = text(TextKind::Windows, 32, 10).choose(1000, 7).expect("rows");
        assert_eq!((all.tokens, all.held_from), (320, 300));
        assert_eq!(text(TextKind::Own, 1, 10).choose(10, 0).expect("a row").held_from, 10);
    }

    #[test]
    fn documents_are_sampled_across_their_whole_length() {
        let text = text(TextKind::Documents, 100, 10);
        let chosen = text.choose(100, 1).expect("rows");
        let rows = firsts(&chosen);
        assert_eq!(rows.len(), 10);
        for (i, row) in rows.iter().enumerate() {
            assert_eq!(*row as usize / 10, i, "one of each tenth: {rows:?}");
        }
        assert_eq!(rows, firsts(&text.choose(100, 1).expect("rows")));
        assert_ne!(rows, firsts(&text.choose(100, 2).expect("rows")));
        assert_eq!(text.choose(5000, 1).expect("rows").rows, text.rows);
    }

    #[test]
    fn less_than_a_window_is_refused() {
        let spec = ModelSpec { vocab: 200, context: 64, ..crate::tests::spec() };
        let refusal = |text: CalibrationText| text.check(&spec).expect_err("unusable").to_string();
        assert!(refusal(text(TextKind::Documents, 0, 0)).contains("empty"));
        assert!(refusal(text(TextKind::Documents, 3, 20)).contains("one window of 64 tokens, found 60"));
        assert!(refusal(text(TextKind::Windows, 1, 65)).contains("the context of 64"));
        assert!(refusal(text(TextKind::Windows, 5, 50)).contains("another tokenizer"));
        assert!(text(TextKind::Windows, 4, 50).check(&spec).is_ok());
        let error = text(TextKind::Windows, 4, 50).choose(49, 0).expect_err("no room");
        assert!(error.to_string().contains("--tokens 49"), "{error}");
    }
}
