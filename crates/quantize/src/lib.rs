//! Crate `quantize` of smoe.
