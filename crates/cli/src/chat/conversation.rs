//! A conversation: its messages, and the session that has taken them in.

use crate::commands::generation::Answer;
use crate::model::Opened;
use anyhow::Context;
use serde_json::{Value, json};
use smoe_engine::{GenerateParams, Session};
use smoe_model::text::Chat;

/// Messages so far, and what the model has taken in of them.
pub(crate) struct Conversation<'a> {
    pub(crate) opened: &'a Opened,
    system: Option<String>,
    chat: Chat,
    session: Session,
    /// The ids that `session` holds.
    taken: Vec<u32>,
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(opened: &'a Opened, system: Option<String>) -> Self {
        let session = opened.engine.session();
        let mut it = Self { opened, system, chat: Chat::default(), session, taken: Vec::new() };
        it.clear();
        it
    }

    /// Forgets everything but the system message.
    pub(crate) fn clear(&mut self) {
        self.chat = Chat::default();
        if let Some(system) = &self.system {
            self.chat.push("system", system);
        }
    }

    /// Another system message, or none; the conversation starts anew.
    pub(crate) fn set_system(&mut self, system: Option<String>) {
        self.system = system;
        self.clear();
    }

    /// Adds a message of the user.
    pub(crate) fn say(&mut self, text: &str) {
        self.chat.push("user", text);
    }

    /// Drops the last message.
    pub(crate) fn take_back_message(&mut self) {
        self.chat.messages.pop();
    }

    /// Drops the last answer; `false` where there is none.
    pub(crate) fn take_back_answer(&mut self) -> bool {
        let is_answer = self.chat.messages.last().is_some_and(|m| m["role"] == "assistant");
        if is_answer {
            self.take_back_message();
        }
        is_answer
    }

    /// The ids that the session has yet to take in, and the session.
    ///
    /// Where the rendered conversation goes on from what the session holds, only the rest is computed. Some templates
    /// rewrite earlier turns (they drop the thinking), and a repetition penalty counts the whole prompt: then it starts
    /// from nothing.
    pub(crate) fn prompt(&mut self, params: &GenerateParams) -> anyhow::Result<(Vec<u32>, &mut Session)> {
        let text = self.opened.text.as_ref().context("no tokenizer")?;
        let ids = text.encode_chat(&self.chat)?.ids;
        let context = self.opened.engine.context();
        if ids.len() >= context {
            anyhow::bail!("{} tokens do not fit the context of {context}; /clear starts anew", ids.len());
        }
        let goes_on = ids.len() > self.taken.len() && ids.starts_with(&self.taken);
        if !goes_on || self.session.is_torn() || params.sampler.repeat_penalty != 1.0 {
            self.session = self.opened.engine.session();
            self.taken.clear();
        }
        Ok((ids[self.taken.len()..].to_vec(), &mut self.session))
    }

    /// Keeps the answer to `prompt`.
    pub(crate) fn answered(&mut self, answer: &Answer, prompt: &[u32]) {
        self.chat.push("assistant", &answer.text);
        self.taken.extend_from_slice(prompt);
        self.taken.extend_from_slice(&answer.generation.ids);
        // The last id is made but not taken in; after an interruption perhaps not even all of the prompt.
        self.taken.truncate(self.session.len());
    }

    /// The messages, as the common chat API has them.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "messages": self.chat.messages })
    }
}
