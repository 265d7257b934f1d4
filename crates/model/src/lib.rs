//! Models: what a checkpoint holds ([`ModelSpec`], [`Bindings`]), read and refused from headers. Knows nothing of how
//! anything is computed.
#![forbid(unsafe_code)]

pub mod checkpoint;
mod config;
pub mod counts;
mod error;
pub mod families;
pub mod formats;
mod json;
pub mod needs;
mod plan;
pub mod positional;
pub mod role;
pub mod spec;
pub mod store;
pub mod text;

pub use checkpoint::{Checkpoint, Report, Shard};

pub use error::CheckpointError;
pub use plan::{ConfigPlan, OpenOptions, spec_from_config};
pub use role::{Bindings, Role};

pub use spec::ModelSpec;
