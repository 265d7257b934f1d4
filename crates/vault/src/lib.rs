//! Crate `vault` of smoe.
