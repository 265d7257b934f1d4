//! S-MoE version 2: files of the public engine become vaults and vaults become such files, requantising nothing.

mod config;
mod export;
mod import;
mod trunk;

pub use export::to_smoe_v2;
pub use import::{ImportOptions, ImportReport, import};

/// Section that keeps the JSON header of the imported trunk file, so that an export can write the same bytes.
const TRUNK_HEADER: &str = "s-moe-v2-trunk-header";
/// What stands in a trunk file's name for `.smoe`.
const TRUNK_SUFFIX: &str = ".scout.safetensors";
