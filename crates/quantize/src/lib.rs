//! The conversion pipeline and what surrounds it: `quantize`, `plan`, `synth`, import and export.
//!
//! Every job plans and refuses first, streams with small memory, and gives its output a name when it is whole.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod capture;
mod control;
pub mod convert;
pub mod diagnose;
mod disk;
mod error;
pub mod export;
mod opened;
pub mod plan;
pub mod random;
pub mod sections;
pub mod shards;
pub mod smoe_v2;
pub mod synth;

#[cfg(test)]
mod tests;

pub use control::{Control, Progress};
pub use error::{QuantizeError, Result};
