//! Documents of a text file, a `.jsonl` file or a folder.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::error::GateError;

/// The documents of one source.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Where each comes from ("eval.jsonl line 3"), and its text.
    pub(crate) list: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
}

/// Reads documents: a folder has one a file, a `.jsonl` file one a line, any other file is one.
pub(crate) fn read(path: &Path) -> Result<Documents, GateError> {
    let name = path.display().to_string();
    if fs::metadata(path).map_err(|source| GateError::Io { file: name.clone(), source })?.is_dir() {
        return folder(path, &name);
    }
    let text = utf8(path)?;
    if text.trim().is_empty() {
        return Err(GateError::input(&name, "expected text, found an empty file"));
    }
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl")) {
        return lines(&text, &name);
    }
    Ok(Documents { list: vec![(name, text)], notes: Vec::new() })
}

fn utf8(path: &Path) -> Result<String, GateError> {
    let file = path.display().to_string();
    let bytes = fs::read(path).map_err(|source| GateError::Io { file: file.clone(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        GateError::input(&file, format!("expected UTF-8 text, found a byte that is not at offset {offset}"))
    })
}

fn lines(text: &str, name: &str) -> Result<Documents, GateError> {
    let mut documents = Documents::default();
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{name} line {number}");
        let value: Value = serde_json::from_str(line).map_err(|error| {
            GateError::input(&place, format!("expected a JSON object, found something else: {error}"))
        })?;
        let Some(text) = value.get("text").and_then(Value::as_str) else {
            return Err(GateError::input(&place, "expected an object with a string `text`, found none"));
        };
        documents.list.push((place, text.to_owned()));
    }
    Ok(documents)
}

fn folder(path: &Path, name: &str) -> Result<Documents, GateError> {
    let io = |source| GateError::Io { file: name.to_owned(), source };
    let mut files = Vec::new();
    let mut documents = Documents::default();
    for entry in fs::read_dir(path).map_err(io)? {
        let entry = entry.map_err(io)?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        match fs::metadata(&path).map_err(io)? {
            metadata if metadata.is_file() => files.push(path),
            _ => documents.notes.push(format!("{}: not a file, ignored", path.display())),
        }
    }
    files.sort();
    documents.notes.sort();
    if files.is_empty() {
        return Err(GateError::input(name, "expected a folder with text files, found none"));
    }
    for file in files {
        documents.list.push((file.display().to_string(), utf8(&file)?));
    }
    Ok(documents)
}
