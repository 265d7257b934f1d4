//! The parts of `smoe chat`: what is typed, what it means, what was said.

pub(crate) mod conversation;
pub(crate) mod editor;
pub(crate) mod input;
