//! What can be wrong with a tokenizer, a chat template or a conversation.

use thiserror::Error;

/// A fault in the text side of a model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file of the model cannot be understood.
    #[error("{file}: {reason}")]
    File {
        /// The file, as the model folder names it.
        file: String,
        /// What is wrong with it, and what was expected.
        reason: String,
    },
    /// A file cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The model has no chat template of this name.
    #[error("{0}")]
    NoTemplate(String),
    /// The template itself refuses the conversation (`raise_exception`): a mistake of the caller, not of the model.
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template stopped with an error.
    #[error("{file}:{} {reason}", if *line == 0 { String::new() } else { format!(" line {line}:") })]
    Template {
        /// The file that holds the template.
        file: String,
        /// The line of the template, 0 when unknown.
        line: usize,
        /// What went wrong.
        reason: String,
    },
    /// The messages are not a conversation.
    #[error("message {index}: {reason}")]
    Message {
        /// Position in the list of messages, from 0.
        index: usize,
        /// What was expected.
        reason: String,
    },
    /// The tokenizer failed on a text.
    #[error("tokenizer.json: the tokenizer failed on this text: {0}")]
    Encode(String),
    /// The tokenizer failed on ids.
    #[error("tokenizer.json: the tokenizer failed on these ids: {0}")]
    Decode(String),
}

impl TextError {
    /// A [`TextError::File`].
    pub(crate) fn file(file: &str, reason: impl Into<String>) -> Self {
        Self::File { file: file.to_owned(), reason: brief(&reason.into()) }
    }
}

/// A reason that quotes a stranger's file stays readable.
pub(crate) fn brief(reason: &str) -> String {
    const LONGEST: usize = 400;
    match reason.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &reason[..end]),
        None => reason.to_owned(),
    }
}
