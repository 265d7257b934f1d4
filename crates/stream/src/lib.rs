//! Experts from a drive, under a memory budget.
//!
//! [`Streamed`] is an `ExpertSource` that holds as many experts as fit in its budget and reads the rest when the router
//! asks for them: each blob with one aligned read past the page cache ([`Direct`]) into memory of its own, by a few
//! threads, while the engine computes with what is there. Which experts stay is a pure [`Policy`].
//!
//! What it computes does not depend on the budget, the threads or the drive: the same bytes reach the same products. A
//! read that fails, is damaged or does not end is an error that names the expert.

#![forbid(unsafe_code)]

mod budget;
mod direct;
mod policy;
mod readers;
mod slot;
mod streamed;

pub use budget::{Budget, Needs, PROGRAM_BYTES};
pub use direct::{ALIGN, Direct, Reads};
pub use policy::{Key, Policy};
pub use streamed::{StreamOptions, Streamed, Traffic};
