//! How long work is watched and stopped: one value that the caller passes down.

use crate::error::QuantizeError;
use std::sync::atomic::{AtomicBool, Ordering};

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, for people ("experts", "trunk").
    pub phase: &'static str,
    /// Bytes done, all phases together.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A job's line to its caller.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Called often, from any thread; must be quick.
    pub progress: &'a (dyn Fn(Progress) + Sync),
    /// What the user should read before or during the work, a line each.
    pub say: &'a (dyn Fn(&str) + Sync),
    /// Set by the caller to stop the job.
    pub cancel: &'a AtomicBool,
}

/// Never set.
static NEVER: AtomicBool = AtomicBool::new(false);

impl Control<'static> {
    /// Reports to nobody and is never cancelled.
    #[must_use]
    pub fn silent() -> Self {
        Self { progress: &|_| {}, say: &|_| {}, cancel: &NEVER }
    }
}

impl Control<'_> {
    /// The error of a cancelled job, once it is cancelled.
    ///
    /// # Errors
    /// [`QuantizeError::Cancelled`].
    pub fn check(&self) -> Result<(), QuantizeError> {
        if self.cancel.load(Ordering::Relaxed) { Err(QuantizeError::Cancelled) } else { Ok(()) }
    }
}
