//! Text: from words to ids and back, and from a conversation to a prompt.
//!
//! [`TextFiles`] is what a checkpoint folder or a vault stores; [`TextModel`] is built from it. Two rules hold in
//! every method:
//!
//! - Control tokens come only from the chat template. Text of a person that spells one (`<|im_end|>`, `<think>`, any
//!   entry of `added_tokens`) becomes ordinary tokens, in plain prompts and in messages alike.
//! - Nothing is added to a rendered template, and a plain prompt gets at most one start token.
//!
//! ```no_run
//! use std::path::Path;
//! use smoe_model::text::{Chat, TextFiles, TextModel};
//!
//! # fn main() -> Result<(), smoe_model::text::TextError> {
//! let files = TextFiles::open(Path::new("checkpoint"))?.expect("a folder with a tokenizer");
//! let text = TextModel::new(&files)?;
//! let prompt = text.encode_chat(&Chat::user("Tell me of the sea."))?;
//! let mut stream = text.decode_stream();
//! for id in prompt.ids {
//!     print!("{}", stream.push(id)?);
//! }
//! # Ok(())
//! # }
//! ```

mod chat;
mod clock;
mod controls;
mod error;
mod files;
mod guard;
mod literals;
mod pieces;
mod plain;
mod provenance;
mod stream;
mod template;
#[cfg(test)]
mod tests;
mod tojson;
mod tokenizer;

use serde_json::{Map, Value};

pub use chat::Chat;
pub use clock::{Clock, system_clock};
pub use error::TextError;
pub use files::{NamedTemplate, SourceFiles, TOKENIZER_FILE, TextFiles, TextSettings};
pub use stream::DecodeStream;

use provenance::Renderer;
use template::Template;
use tokenizer::Pair;

/// A conversation as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Token ids, control tokens of the template included.
    pub ids: Vec<u32>,
    /// The rendered template, for people.
    pub text: String,
}

/// The tokenizer and the chat templates of a model.
#[derive(Debug)]
pub struct TextModel {
    pair: Pair,
    templates: Vec<Template>,
    template_file: String,
    special: Map<String, Value>,
    prefix: Vec<u32>,
    clock: Clock,
}

impl TextModel {
    /// Builds the text side of a model.
    ///
    /// # Errors
    /// A tokenizer that cannot be read, added tokens whose ids are not what the file says, a template that is not
    /// Jinja: each names its file.
    pub fn new(files: &TextFiles) -> Result<Self, TextError> {
        let settings = &files.settings;
        let pair = Pair::new(files)?;
        let templates = settings
            .templates
            .iter()
            .map(|template| Template::new(&template.name, &template.text, &settings.template_file))
            .collect::<Result<_, _>>()?;
        let bos = settings.special.get("bos_token").and_then(Value::as_str).and_then(|token| pair.token_id(token));
        let prefix = match (settings.add_bos_token, bos) {
            (Some(true), Some(bos)) if !pair.prefix().contains(&bos) => vec![bos],
            (Some(false), Some(bos)) => pair.prefix().iter().copied().filter(|id| *id != bos).collect(),
            _ => pair.prefix().to_vec(),
        };
        let template_file = settings.template_file.clone();
        Ok(Self { pair, templates, template_file, special: settings.special.clone(), prefix, clock: system_clock })
    }

    /// Replaces the clock that `strftime_now` asks.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Encodes text as text: no control token, nothing added.
    ///
    /// # Errors
    /// When the tokenizer fails on the text.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.pair.encode(text, &[])
    }

    /// Encodes a prompt that no template frames: the model's start token where it has one, then the text as text.
    ///
    /// # Errors
    /// When the tokenizer fails on the text.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = self.prefix.clone();
        ids.extend(self.encode_plain(text)?);
        Ok(ids)
    }

    /// Renders a conversation with the chat template and encodes it.
    ///
    /// # Errors
    /// No template, a message that is not one, a template that refuses the conversation or fails.
    pub fn encode_chat(&self, chat: &Chat) -> Result<Prompt, TextError> {
        chat.check()?;
        let renderer = Renderer {
            template: self.template(chat)?,
            chat,
            special: &self.special,
            controls: &self.pair.controls,
            now: (self.clock)(),
        };
        let rendered = renderer.render()?;
        let mut ids = self.pair.encode(&rendered.text, &rendered.found)?;
        if let [first, second, ..] = ids[..]
            && first == second
            && Some(first) == self.bos()
        {
            ids.remove(0);
        }
        Ok(Prompt { ids, text: rendered.text })
    }

    /// The template for this conversation: the one it names, `tool_use` where there are tools, else `default`.
    fn template(&self, chat: &Chat) -> Result<&Template, TextError> {
        let find = |name: &str| self.templates.iter().find(|template| template.name == name);
        let found = match &chat.template {
            Some(name) => find(name),
            None => (!chat.tools.is_empty()).then(|| find("tool_use")).flatten().or_else(|| find("default")),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = self.templates.iter().map(|template| template.name.as_str()).collect();
            let wanted = chat.template.as_deref().unwrap_or("default");
            let reason = if names.is_empty() {
                "the model has no chat template; use a raw prompt".to_owned()
            } else {
                format!("{}: no chat template `{wanted}`, only: {}", self.template_file, names.join(", "))
            };
            TextError::NoTemplate(reason)
        })
    }

    /// Whether there is a chat template for plain conversations.
    #[must_use]
    pub fn has_template(&self) -> bool {
        self.templates.iter().any(|template| template.name == "default")
    }

    /// Names of the chat templates.
    pub fn template_names(&self) -> impl Iterator<Item = &str> {
        self.templates.iter().map(|template| template.name.as_str())
    }

    /// Text of ids, without special tokens. Ids that no token has give nothing.
    ///
    /// # Errors
    /// When the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TextError> {
        self.pair.decode(ids, true)
    }

    /// Text of ids with special tokens in it, for diagnosis.
    ///
    /// # Errors
    /// When the tokenizer's decoder fails.
    pub fn decode_all(&self, ids: &[u32]) -> Result<String, TextError> {
        self.pair.decode(ids, false)
    }

    /// Text of ids as they come, without special tokens.
    #[must_use]
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(&self.pair, true)
    }

    /// The id of a token, control tokens included.
    #[must_use]
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.pair.token_id(token)
    }

    /// The token of an id as the vocabulary spells it.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.pair.token(id)
    }

    /// Whether an id is left out of decoded text.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.pair.is_special(id)
    }

    /// The start token of `tokenizer_config.json`.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.role_id("bos_token")
    }

    /// The end token of `tokenizer_config.json`. Where generation stops is the business of the generation config.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.role_id("eos_token")
    }

    fn role_id(&self, role: &str) -> Option<u32> {
        self.special.get(role).and_then(Value::as_str).and_then(|token| self.token_id(token))
    }

    /// One more than the largest id; a model's vocabulary is at least as large.
    #[must_use]
    pub fn id_limit(&self) -> u32 {
        self.pair.id_limit()
    }
}
