//! The forward pass of a mixture-of-experts model from its `ModelSpec`: the traits [`Backend`] and [`ExpertSource`],
//! a CPU backend, KV caches, sampling and generation, and the comparison with golden files.
//!
//! Activations are f32. Results do not depend on the number of threads, on the chunks of a prefill, or on which
//! experts happen to be in memory.
#![forbid(unsafe_code)]

pub mod backend;
mod check;
pub mod compare;
pub mod cpu;
mod engine;
mod error;
pub mod experts;
mod forward;
pub mod generate;
mod layerwise;
mod machine;
mod math;
mod memory;
pub mod observer;
mod open;
mod route;
pub mod sampler;
mod session;
pub mod sources;
pub mod tensors;
mod vault_store;
pub mod weights;

pub use backend::Backend;
pub use engine::{Engine, EngineOptions};
pub use error::EngineError;
pub use experts::ExpertSource;
pub use forward::Want;
pub use generate::{Control, GenerateParams, Generation, Stop, generate};
pub use layerwise::{Layerwise, LoadedLayer};
pub use machine::machine_memory;
pub use memory::{MemoryEstimate, peak_rss_bytes, rss_bytes};
pub use observer::{Observer, Recording, Routes, Silent};
pub use sampler::{Sampler, SamplerParams};
pub use session::{Batch, Session};
pub use vault_store::VaultStore;
