//! [`Direct`]: a file that is read past the page cache where that is possible.

use smoe_vault::Drive;
use std::fs::File;
use std::io;
use std::path::Path;

/// What offsets, lengths and memory of direct reads are multiples of. Drives ask for 512 or 4096.
pub const ALIGN: usize = 4096;

/// How blobs are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reads {
    /// Past the page cache.
    Direct,
    /// Through the page cache, which is told to forget what was read; with the reason.
    Buffered(String),
}

impl Reads {
    /// In a line, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Direct => "direct reads".into(),
            Self::Buffered(why) => format!("buffered reads ({why})"),
        }
    }
}

/// A file open twice: reads that are aligned go past the page cache, others through it.
pub struct Direct {
    plain: File,
    direct: Option<File>,
    reads: Reads,
}

impl Direct {
    /// Opens a file, and tries a direct read of its beginning.
    ///
    /// # Errors
    /// A file that cannot be opened. That it cannot be read directly is no error: [`Direct::reads`] says why.
    pub fn open(path: &Path) -> io::Result<Self> {
        let plain = File::open(path)?;
        let (direct, reads) = match probe(path) {
            Ok(file) => (Some(file), Reads::Direct),
            Err(why) => (None, Reads::Buffered(why)),
        };
        Ok(Self { plain, direct, reads })
    }

    /// Opens a file to be read through the page cache.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn buffered(path: &Path) -> io::Result<Self> {
        Ok(Self { plain: File::open(path)?, direct: None, reads: Reads::Buffered("asked for".into()) })
    }

    /// How blobs are read.
    #[must_use]
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// What the page cache holds of a range is not needed again: a budget is for experts, not for copies of them.
    #[cfg(target_os = "linux")]
    fn forget(&self, offset: u64, len: usize) {
        // Advice: a system that does not take it has its own way.
        let len = std::num::NonZeroU64::new(len as u64);
        let _ = rustix::fs::fadvise(&self.plain, offset, len, rustix::fs::Advice::DontNeed);
    }

    #[cfg(not(target_os = "linux"))]
    fn forget(&self, _: u64, _: usize) {}
}

/// Opens for direct reads and makes one.
#[cfg(target_os = "linux")]
fn probe(path: &Path) -> Result<File, String> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|e| format!("the file system opens no file so: {e}"))?;
    let mut page = memmap2::MmapMut::map_anon(ALIGN).map_err(|e| format!("no memory for a trial read: {e}"))?;
    Drive::read_at(&file, 0, &mut page).map_err(|e| format!("a trial read failed: {e}"))?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn probe(_: &Path) -> Result<File, String> {
    Err("not tried on this system".into())
}

impl Drive for Direct {
    fn len_bytes(&self) -> io::Result<u64> {
        self.plain.len_bytes()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let whole = out.len() / ALIGN * ALIGN;
        let aligned = offset.is_multiple_of(ALIGN as u64) && out.as_ptr().addr().is_multiple_of(ALIGN) && whole > 0;
        match &self.direct {
            Some(direct) if aligned => Drive::read_at(direct, offset, &mut out[..whole]),
            _ => {
                let read = Drive::read_at(&self.plain, offset, out)?;
                if aligned {
                    self.forget(offset, read);
                }
                Ok(read)
            }
        }
    }
}
