//! The conversion pipeline and what surrounds it: `quantize`, `plan`, `synth`, import and export.
//!
//! Every job plans and refuses first, streams with small memory, and gives its output a name when it is whole.
#![forbid(unsafe_code)]

pub mod census;
mod control;
mod disk;
mod error;
pub mod random;
pub mod shards;
pub mod synth;

pub use control::{Control, Progress};
pub use error::{QuantizeError, Result};
