//! Where experts come from.

mod checkpoint;
mod vault;

pub use checkpoint::CheckpointExperts;
pub use vault::{BlobExperts, ExpertPlace, VaultExperts, expert_places};
