//! [`Session`]: what the model remembers of one text.

use crate::backend::State;

/// One text's memory: keys and values or recurrent states of every layer. Several sessions of one engine are
/// independent of each other.
pub struct Session {
    pub(crate) states: Vec<State>,
    pub(crate) len: usize,
    context: usize,
    /// A pass failed half way: some layers hold its tokens, some do not.
    pub(crate) torn: bool,
    /// Tokens that one pass of a prefill takes; results do not depend on it.
    pub chunk: usize,
}

impl Session {
    pub(crate) fn new(states: Vec<State>, context: usize, chunk: usize) -> Self {
        Self { states, len: 0, context, torn: false, chunk: chunk.max(1) }
    }

    /// Tokens taken in so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether a pass failed half way through the layers: the session answers no more, and a new one must take the
    /// text in again.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// Whether nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions that there are.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Positions left.
    pub fn room(&self) -> usize {
        self.context - self.len
    }
}

/// Several texts of the same length that are decoded in step ([`Engine::step`](crate::Engine::step)).
pub struct Batch {
    /// By layer, then by text.
    pub(crate) states: Vec<Vec<State>>,
    pub(crate) texts: usize,
    pub(crate) len: usize,
    pub(crate) torn: bool,
}

impl Batch {
    /// Tokens of each text taken in so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Texts.
    pub fn texts(&self) -> usize {
        self.texts
    }
}
