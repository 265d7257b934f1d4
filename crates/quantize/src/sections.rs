//! The small files that travel in a vault: as released, plus the text settings that they add up to.

use crate::error::{QuantizeError, Result};
use smoe_model::Checkpoint;
use smoe_model::text::{TOKENIZER_FILE, TextFiles};
use std::path::Path;

/// Section with `smoe_model::text::TextSettings`: what all text files but the tokenizer's add up to.
pub const TEXT_SETTINGS: &str = "text_settings.json";

/// Files of a checkpoint folder that a vault keeps as they are, so that an export can write them again.
const KEPT: [&str; 6] = [
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];
/// The largest file that is kept.
const MAX_BYTES: u64 = 256 << 20;

/// Name and bytes of each section.
pub(crate) type Sections = Vec<(String, Vec<u8>)>;

/// The sections of a checkpoint, and what the user should know about them.
pub(crate) fn of_checkpoint(checkpoint: &Checkpoint) -> Result<(Sections, Vec<String>)> {
    let mut sections = vec![("config.json".to_owned(), checkpoint.config_json().as_bytes().to_vec())];
    let notes = text(checkpoint.folder(), &mut sections)?;
    Ok((sections, notes))
}

/// Adds the text files of a folder; without a tokenizer only generation defaults.
pub(crate) fn text(folder: &Path, sections: &mut Sections) -> Result<Vec<String>> {
    let files = TextFiles::open(folder)?;
    for name in KEPT {
        let path = folder.join(name);
        if !path.is_file() || (files.is_none() && name != "generation_config.json") {
            continue;
        }
        let len = std::fs::metadata(&path).map_err(QuantizeError::io(&path, "read"))?.len();
        if len > MAX_BYTES {
            return Err(QuantizeError::Refused(format!("{name}: expected at most {MAX_BYTES} B, found {len} B")));
        }
        sections.push((name.to_owned(), std::fs::read(&path).map_err(QuantizeError::io(&path, "read"))?));
    }
    match files {
        Some(files) => {
            sections.push((TEXT_SETTINGS.to_owned(), files.settings_json()));
            Ok(Vec::new())
        }
        None => Ok(vec![format!("no {TOKENIZER_FILE}: the vault runs with --ids only")]),
    }
}

/// Whether an export writes the section into a checkpoint folder as it is.
pub(crate) fn is_released_file(name: &str) -> bool {
    KEPT.contains(&name)
}
