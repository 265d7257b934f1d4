//! A conversation, as the interfaces give it.

use serde_json::{Map, Value, json};

use super::error::TextError;

/// Roles that a template may see as they are; any other is treated as text of the user.
pub(super) const ROLES: [&str; 8] =
    ["system", "user", "assistant", "tool", "developer", "function", "ipython", "environment"];

/// A conversation to be rendered by a chat template.
#[derive(Debug, Clone, PartialEq)]
pub struct Chat {
    /// Objects with `role` and mostly `content` (text, or a list of parts), as the common chat API has them.
    pub messages: Vec<Value>,
    /// Descriptions of functions; empty for none.
    pub tools: Vec<Value>,
    /// Whether the prompt ends with the opening of an answer.
    pub add_generation_prompt: bool,
    /// Further variables of the template, such as `enable_thinking`.
    pub variables: Map<String, Value>,
    /// A template other than the one for the occasion.
    pub template: Option<String>,
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: Vec::new(),
            add_generation_prompt: true,
            variables: Map::new(),
            template: None,
        }
    }
}

impl Chat {
    /// A conversation that one message of the user opens.
    #[must_use]
    pub fn user(text: &str) -> Self {
        let mut chat = Self::default();
        chat.push("user", text);
        chat
    }

    /// Appends a message.
    pub fn push(&mut self, role: &str, text: &str) -> &mut Self {
        self.messages.push(json!({ "role": role, "content": text }));
        self
    }

    /// Sets a variable of the template.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// Checks what no template can: that each message is an object with a role.
    pub(super) fn check(&self) -> Result<(), TextError> {
        for (index, message) in self.messages.iter().enumerate() {
            let fault = |reason: &str| TextError::Message { index, reason: reason.to_owned() };
            let object = message.as_object().ok_or_else(|| fault("expected an object with `role` and `content`"))?;
            if !object.get("role").is_some_and(Value::is_string) {
                return Err(fault("expected a string in `role`"));
            }
        }
        Ok(())
    }
}
