//! Models: what a checkpoint holds ([`ModelSpec`], [`Bindings`]), read and refused from headers. Knows nothing of how
//! anything is computed.
#![forbid(unsafe_code)]

pub mod bind;
pub mod checkpoint;
pub mod config;
pub mod counts;
mod error;
pub mod families;
pub mod formats;
pub mod needs;
pub mod positional;
pub mod resolve;
pub mod role;
pub mod spec;
pub mod store;
pub mod text;

pub use checkpoint::{Checkpoint, OpenOptions, Report};
pub use error::CheckpointError;
pub use role::{Bindings, Role};
pub use spec::ModelSpec;
