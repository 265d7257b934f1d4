//! Crate `gate` of smoe.
