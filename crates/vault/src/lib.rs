//! The vault: one file that holds a model with quantised experts (FORMAT.md), read, checked and written.
//!
//! The parts that know bytes do no I/O: [`IndexReader`] asks for ranges and ends in a [`VaultIndex`], [`Layout`] fixes
//! every offset before any data is known, [`Assembly`] says what to write and when to sync. [`VaultFile`],
//! [`VaultWriter`] and [`verify`] are thin shells around them, over a [`Drive`]. [`smoe_v2`] is the public S-MoE
//! version 2 layout.
//!
//! Nothing here trusts a file: every size is checked against the file's length before memory is taken, and every byte of
//! a vault is covered by a checksum or required to be zero.
#![forbid(unsafe_code)]

mod assembly;
mod blob;
mod create;
pub mod drive;
mod fault;
mod file;
mod header;
mod journal;
mod layout;
mod manifest;
mod reader;
mod record;
pub mod smoe_v2;
mod space;
mod update;
mod verify;

pub use assembly::{Assembly, Contents, Unit, WriteStep};
pub use blob::{BLOB_ALIGN, BLOB_PAD, BlobLayout, PART_ALIGN};
pub use create::{Existing, Finished, Start, TrunkSink, VaultWriter, WriteOptions};
pub use drive::{Drive, DriveMut};
pub use fault::{Fault, FaultKind, Place, VaultError};
pub use file::VaultFile;
pub use header::{FLAG_UPDATING, HEADER_BYTES, Header, MAGIC, VERSION};
pub use layout::{ExpertShape, Layout, LayoutBuilder};
pub use manifest::{CodecEntry, Dtype, Manifest, Region, Section, TrunkTensor, section};
pub use reader::{IndexReader, Need, Step, VaultIndex};
pub use record::{ExpertRecord, RECORD_BYTES};
pub use update::{record_verdict, record_verdict_on, run_steps};
pub use verify::{verify, verify_drive};

/// XXH3-64 with seed 0: the checksum of every part of a vault.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
