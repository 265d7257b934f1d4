//! Where experts come from.

mod checkpoint;

pub use checkpoint::CheckpointExperts;
