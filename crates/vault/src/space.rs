//! Room on the drive, asked for before hours of work, and folders made durable.

use std::fs::File;
use std::io;
use std::path::Path;

/// Bytes that this user may still write on the drive of `folder`; `None` where the system does not say.
pub(crate) fn free_bytes(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let stat = rustix::fs::statvfs(folder).ok()?;
        stat.f_bavail.checked_mul(stat.f_frsize)
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// Bytes of the drive that a file takes now (a sparse or preallocated file differs from its length).
pub(crate) fn allocated_bytes(file: &File) -> u64 {
    #[cfg(unix)]
    {
        file.metadata().map_or(0, |meta| std::os::unix::fs::MetadataExt::blocks(&meta).saturating_mul(512))
    }
    #[cfg(not(unix))]
    {
        file.metadata().map_or(0, |meta| meta.len())
    }
}

/// Makes the file `length` bytes long, with its blocks reserved where the file system can.
///
/// # Errors
/// No room, or a length that the file system cannot have.
pub(crate) fn reserve(file: &File, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if length > 0 {
        use rustix::io::Errno;
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, length) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    file.set_len(length)
}

/// Makes a rename in `folder` durable.
///
/// # Errors
/// Those of the operating system; a system that cannot sync folders is no error.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    match File::open(folder)?.sync_all() {
        Err(e) if !matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => return Err(e),
        _ => {}
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// A size for people: `1.5 GiB`.
pub(crate) fn readable(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = "B";
    for next in units {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}
