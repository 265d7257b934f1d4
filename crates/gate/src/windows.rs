//! [`Windows`]: evaluation text as rows of token ids.

use std::collections::HashMap;
use std::path::Path;

use smoe_engine::{EngineError, tensors};
use smoe_model::text::TextModel;

use crate::documents::{self, Documents};
use crate::error::GateError;

/// The note of a text that has no intervals.
const ONE_DOCUMENT: &str = "one document: no interval can be given";

/// Rows of token ids, each from one document. Every row has at least two ids; there is at least one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// Where they come from, for messages.
    source: String,
    /// All rows, one after the other.
    ids: Vec<u32>,
    /// End of each row in `ids`.
    ends: Vec<usize>,
    /// Document of each row, from 0, numbered by first appearance.
    document: Vec<usize>,
    documents: usize,
    /// What each document is called.
    labels: Vec<String>,
    notes: Vec<String>,
}

impl Windows {
    /// Reads evaluation text.
    ///
    /// - A `.safetensors` file (`ids` `[rows, n]`, `document` `[rows]`, i32) is taken as it is; it needs no tokenizer.
    /// - A `.jsonl` file (a string `text` in each line), a plain text file (one document) or a folder (one document a
    ///   file) is tokenised as text, without special tokens. Each document is cut by itself into consecutive windows of
    ///   `window` ids; a last partial window is dropped, except where it is all that a document has and has two ids.
    ///
    /// # Errors
    /// A file that is none of these, or has no window: the error names it.
    pub fn read(path: &Path, text: Option<&TextModel>, window: usize) -> Result<Self, GateError> {
        let name = path.display().to_string();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            return Self::from_tokens(path, &name);
        }
        if window < 2 {
            return Err(GateError::input(&name, format!("expected a window of at least 2 tokens, found {window}")));
        }
        let Some(text) = text else {
            let reason = "the model has no tokenizer to read text with; give a token-window file (.safetensors)";
            return Err(GateError::input(&name, reason));
        };
        Self::from_documents(documents::read(path)?, &name, text, window)
    }

    /// Rows as given; `document` may have any numbers, one for each row.
    ///
    /// # Errors
    /// No row, a row of fewer than two ids, another number of documents than of rows.
    pub fn from_rows(source: &str, rows: &[Vec<u32>], document: &[i32]) -> Result<Self, GateError> {
        if rows.len() != document.len() {
            let reason = format!("expected a document for each of {} rows, found {}", rows.len(), document.len());
            return Err(GateError::input(source, reason));
        }
        let mut windows = Self::empty(source);
        let mut numbers = HashMap::new();
        for (row, number) in rows.iter().zip(document) {
            if row.len() < 2 {
                return Err(GateError::input(source, format!("expected rows of 2 ids or more, found {}", row.len())));
            }
            windows.push(row, dense(&mut numbers, *number));
        }
        windows.numbered(&numbers);
        windows.checked()
    }

    fn empty(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            ids: Vec::new(),
            ends: Vec::new(),
            document: Vec::new(),
            documents: 0,
            labels: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Documents that had numbers of their own.
    fn numbered(&mut self, numbers: &HashMap<i32, usize>) {
        self.documents = numbers.len();
        self.labels = vec![String::new(); numbers.len()];
        for (number, document) in numbers {
            self.labels[*document] = format!("document {number}");
        }
    }

    fn push(&mut self, row: &[u32], document: usize) {
        self.ids.extend_from_slice(row);
        self.ends.push(self.ids.len());
        self.document.push(document);
    }

    fn checked(mut self) -> Result<Self, GateError> {
        if self.ends.is_empty() {
            return Err(GateError::input(&self.source, "expected at least one window of two tokens, found none"));
        }
        if self.documents == 1 {
            self.notes.push(ONE_DOCUMENT.into());
        }
        Ok(self)
    }

    fn from_tokens(path: &Path, name: &str) -> Result<Self, GateError> {
        if let Err(source) = std::fs::metadata(path) {
            return Err(GateError::Io { file: name.to_owned(), source });
        }
        let fault = |reason: String| GateError::input(name, reason);
        let arrays = tensors::read(path).map_err(|error| match error {
            EngineError::Golden { fault: reason, .. } => fault(reason),
            other => fault(other.to_string()),
        })?;
        let array = |key: &str| arrays.get(key).ok_or_else(|| fault(format!("expected a tensor `{key}`, found none")));
        let integers = |key: &str| {
            let values = array(key)?.as_integers();
            values.ok_or_else(|| fault(format!("`{key}`: expected integers (I32), found floats")))
        };
        let (ids, document) = (array("ids")?, array("document")?);
        let &[rows, width] = ids.shape.as_slice() else {
            return Err(fault(format!("`ids`: expected the shape [rows, n], found {:?}", ids.shape)));
        };
        if document.shape != [rows] {
            return Err(fault(format!("`document`: expected the shape [{rows}], found {:?}", document.shape)));
        }
        if rows == 0 || width < 2 {
            return Err(fault(format!("`ids`: expected rows of 2 ids or more, found the shape [{rows}, {width}]")));
        }
        let (mut windows, mut numbers) = (Self::empty(name), HashMap::new());
        let mut row = Vec::with_capacity(width);
        for (number, (ids, document)) in integers("ids")?.chunks_exact(width).zip(integers("document")?).enumerate() {
            row.clear();
            for (place, id) in ids.iter().enumerate() {
                let id = u32::try_from(*id);
                row.push(id.map_err(|_| {
                    fault(format!("`ids` row {number}, position {place}: expected an id, found a negative number"))
                })?);
            }
            windows.push(&row, dense(&mut numbers, *document));
        }
        windows.numbered(&numbers);
        windows.checked()
    }

    fn from_documents(documents: Documents, name: &str, text: &TextModel, window: usize) -> Result<Self, GateError> {
        let mut windows = Self::empty(name);
        windows.notes = documents.notes;
        let (mut skipped, mut dropped) = (0, 0);
        for (place, document) in documents.list {
            let label = short(&place);
            let ids = text.encode_plain(&document).map_err(|source| GateError::Text { file: place, source })?;
            drop(document);
            let number = windows.documents;
            if ids.len() < 2 {
                skipped += 1;
                continue;
            }
            windows.documents += 1;
            windows.labels.push(label);
            if ids.len() < window {
                windows.push(&ids, number);
                continue;
            }
            let rows = ids.chunks_exact(window);
            dropped += rows.remainder().len();
            rows.for_each(|row| windows.push(row, number));
        }
        if skipped > 0 {
            windows.notes.push(format!("{skipped} documents have fewer than 2 tokens and are left out"));
        }
        if dropped > 0 {
            windows.notes.push(format!("{dropped} tokens after the last whole window of their document are left out"));
        }
        windows.checked()
    }

    /// Where the rows come from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// How many rows there are, at least one.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// The ids of a row, at least two.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[u32] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.ids[start..self.ends[row]]
    }

    /// The document of a row, from 0.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn document(&self, row: usize) -> usize {
        self.document[row]
    }

    /// How many documents have a row.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// Ids of the longest row.
    #[must_use]
    pub fn longest(&self) -> usize {
        (0..self.rows()).map(|row| self.row(row).len()).max().unwrap_or(0)
    }

    /// Predicted tokens of all rows: each row's ids less one.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.ids.len() - self.rows()
    }

    /// What a reader should know of how the rows came about.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// XXH3-64 of all ids and of where rows end, as 16 hexadecimal digits: tells one text from another.
    #[must_use]
    pub fn checksum(&self) -> String {
        let ids = self.ids.iter().flat_map(|id| id.to_le_bytes());
        let ends = self.ends.iter().flat_map(|end| (*end as u64).to_le_bytes());
        format!("{:016x}", smoe_vault::checksum(&ids.chain(ends).collect::<Vec<u8>>()))
    }

    /// Keeps the first rows only.
    #[must_use]
    pub fn first(&self, rows: usize) -> Self {
        let rows = rows.clamp(1, self.rows());
        let documents = self.document[..rows].iter().max().map_or(0, |last| last + 1);
        let mut first = Self { documents, ..Self::empty(&self.source) };
        (first.document, first.ends) = (self.document[..rows].to_vec(), self.ends[..rows].to_vec());
        first.ids = self.ids[..self.ends[rows - 1]].to_vec();
        first.labels = self.labels[..documents].to_vec();
        first.notes.clone_from(&self.notes);
        first
    }

    /// What a document is called: its file and line, or its number in a token-window file.
    ///
    /// # Panics
    /// If there is no such document.
    #[must_use]
    pub fn label(&self, document: usize) -> &str {
        &self.labels[document]
    }

    /// The rows of the documents for which `keep` is true; `None` where there are none.
    ///
    /// # Panics
    /// If `keep` has not one answer for each document.
    #[must_use]
    pub fn of_documents(&self, keep: &[bool]) -> Option<Self> {
        assert_eq!(keep.len(), self.documents, "one answer for each document");
        let kept = || (0..self.documents).filter(|document| keep[*document]);
        let numbers: HashMap<usize, usize> = kept().zip(0..).collect();
        let mut windows = Self { documents: numbers.len(), ..Self::empty(&self.source) };
        windows.notes = self.notes.iter().filter(|note| *note != ONE_DOCUMENT).cloned().collect();
        windows.labels = kept().map(|document| self.labels[document].clone()).collect();
        for row in 0..self.rows() {
            if let Some(document) = numbers.get(&self.document[row]) {
                windows.push(self.row(row), *document);
            }
        }
        windows.checked().ok()
    }

    /// Refuses ids that a model does not know, before anything is computed.
    pub(crate) fn check_ids(&self, vocab: usize) -> Result<(), GateError> {
        for row in 0..self.rows() {
            let outside = self.row(row).iter().enumerate().find(|(_, id)| **id as usize >= vocab);
            if let Some((place, id)) = outside {
                let reason = format!(
                    "row {row}, position {place}: found the id {id}, the model's vocabulary has {vocab}; was this text \
                     made with another tokenizer?"
                );
                return Err(GateError::input(&self.source, reason));
            }
        }
        Ok(())
    }
}

/// A document's name without the folders that lead to it.
fn short(place: &str) -> String {
    place.rsplit(['/', '\\']).next().unwrap_or(place).to_owned()
}

/// Numbers documents by first appearance.
fn dense(numbers: &mut HashMap<i32, usize>, number: i32) -> usize {
    let next = numbers.len();
    *numbers.entry(number).or_insert(next)
}
