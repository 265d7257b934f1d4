//! Crate `engine` of smoe.
