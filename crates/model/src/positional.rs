//! Positional reads: no shared file position, so that threads may read one file at once.

use std::fs::File;
use std::io;

/// Fills `out` from `offset` on.
///
/// # Errors
/// As the system reports, and when the file ends too early.
#[cfg(unix)]
pub fn read_exact_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Fills `out` from `offset` on.
///
/// # Errors
/// As the system reports, and when the file ends too early.
#[cfg(windows)]
pub fn read_exact_at(file: &File, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                out = &mut out[n..];
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
