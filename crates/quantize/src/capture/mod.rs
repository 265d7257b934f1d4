//! Capture: the engine itself runs over the checkpoint, one layer in memory at a time, and what the experts of each
//! layer see is kept for their calibration.
//!
//! Two streams of hidden states: one behind the layers that are quantised already, one behind the original ones (only
//! where the recipe asks for it). Both are kept between layers, in memory or, past a bound, in a temporary file.

mod own;
mod plan;
mod rows;
mod source;
mod streams;
mod text;
mod watch;

pub use own::{OwnText, own_text};
pub use plan::{CapturePlan, hour_of_tokens};
pub use text::{CalibrationText, TextKind, WINDOW};

pub(crate) use plan::Given;
pub(crate) use source::CheckpointLayer;
pub(crate) use streams::{Room, Streams};
pub(crate) use text::Chosen;
