//! Models: what a checkpoint holds ([`ModelSpec`], [`Bindings`]), read and refused from headers. Knows nothing of how
//! anything is computed.
#![forbid(unsafe_code)]

pub mod role;
pub mod spec;
pub mod store;
pub mod text;

pub use role::{Bindings, Role};
pub use spec::ModelSpec;
