//! [`Drive`]: positional reads (and writes), so that files and their hostile doubles are read by the same code.

use crate::fault::FaultKind;
use std::fs::File;
use std::io;

/// Interrupts in a row after which a read or write is given up.
const MOST_INTERRUPTS: usize = 1000;

/// Something with positional reads. Reads may be short and may be interrupted, as the kernel's.
pub trait Drive: Send + Sync {
    /// Length now.
    ///
    /// # Errors
    /// Those of the operating system.
    fn len_bytes(&self) -> io::Result<u64>;
    /// Reads some bytes from `offset` on; 0 at the end.
    ///
    /// # Errors
    /// Those of the operating system.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;
}

/// A [`Drive`] that can be written.
pub trait DriveMut: Drive {
    /// Writes some bytes at `offset`.
    ///
    /// # Errors
    /// Those of the operating system.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts or extends with zeros.
    ///
    /// # Errors
    /// Those of the operating system.
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Returns when everything written is on the medium.
    ///
    /// # Errors
    /// Those of the operating system.
    fn sync(&self) -> io::Result<()>;
}

impl Drive for File {
    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, out, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, out, offset)
    }

    #[cfg(not(any(unix, windows)))]
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        use std::io::{Read, Seek, SeekFrom};
        let _alone = SEEK.lock().map_err(|_| io::Error::other("a reader panicked"))?;
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        file.read(out)
    }
}

/// Without positional reads the seek and the read must not be parted.
#[cfg(not(any(unix, windows)))]
static SEEK: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl DriveMut for File {
    #[cfg(unix)]
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(self, bytes, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(self, bytes, offset)
    }

    #[cfg(not(any(unix, windows)))]
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        use std::io::{Seek, SeekFrom, Write};
        let _alone = SEEK.lock().map_err(|_| io::Error::other("a writer panicked"))?;
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        file.write(bytes)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Fills `out` from `offset` on.
///
/// # Errors
/// [`FaultKind::Truncated`] when the drive ends early, [`FaultKind::Io`] when it refuses.
pub fn read_full(drive: &dyn Drive, offset: u64, out: &mut [u8]) -> Result<(), FaultKind> {
    let (mut done, mut interrupts) = (0, 0);
    while done < out.len() {
        match drive.read_at(offset + done as u64, &mut out[done..]) {
            Ok(0) => {
                return Err(FaultKind::Truncated { expected: offset + out.len() as u64, found: offset + done as u64 });
            }
            Ok(n) => (done, interrupts) = (done + n, 0),
            Err(e) if e.kind() == io::ErrorKind::Interrupted && interrupts < MOST_INTERRUPTS => interrupts += 1,
            Err(e) => return Err(FaultKind::io("read", &e)),
        }
    }
    Ok(())
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// [`FaultKind::Io`] when the drive refuses or accepts nothing.
pub fn write_full(drive: &dyn DriveMut, offset: u64, bytes: &[u8]) -> Result<(), FaultKind> {
    let (mut done, mut interrupts) = (0, 0);
    while done < bytes.len() {
        match drive.write_at(offset + done as u64, &bytes[done..]) {
            Ok(0) => return Err(FaultKind::io("write", &io::ErrorKind::WriteZero.into())),
            Ok(n) => (done, interrupts) = (done + n, 0),
            Err(e) if e.kind() == io::ErrorKind::Interrupted && interrupts < MOST_INTERRUPTS => interrupts += 1,
            Err(e) => return Err(FaultKind::io("write", &e)),
        }
    }
    Ok(())
}
