//! Memory for one blob.

use memmap2::MmapMut;
use std::io;

/// Pages of its own, filled by a reader and then read by everyone.
pub(crate) struct Slot(MmapMut);

impl Slot {
    /// Anonymous memory, in huge pages where the system gives them.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let memory = MmapMut::map_anon(len)?;
        // Advice: without huge pages it is the same memory.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Self(memory))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
