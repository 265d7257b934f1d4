//! Crate `kernels` of smoe.
