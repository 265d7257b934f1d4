//! S-MoE version 2: `.smoe` files of the public engine, read and written byte for byte (FORMAT.md, "S-MoE version 2").
//!
//! One `.smoe` file holds the routed experts; the trunk is a safetensors file beside it. Groups of 64 run over the
//! *flattened* tensor, so a tensor means the same as a vault's only where its rows are whole groups
//! ([`Index::rows_are_whole_groups`]).

mod file;
mod header;
mod index;
mod write;

pub use file::{Expert, SmoeFile};
pub use header::{ARCH_BYTES, ArchBlock, HEADER_BYTES, Header, MAGIC, VERSION};
pub use index::{ENTRY_BYTES, Index, IndexReader, Part, Step, TENSOR_BYTES, Tensor};
pub use write::{ExpertShape, SmoeWriter, new_header};

/// Weights that share a scale; runs over the flattened tensor.
pub const GROUP: u32 = 64;

/// Blobs start on a multiple of it and are padded to one.
pub const BLOB_ALIGN: u64 = 16 * 1024;
