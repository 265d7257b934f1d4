//! Questions to the file system that are asked before long work.

use crate::error::{QuantizeError, Result};
use std::path::{Path, PathBuf};

/// Kept free beside the output: journals, directory blocks, other writers.
const SPARE: u64 = 16 << 20;

/// The folder that holds `path`.
#[must_use]
pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Refuses when the file system of `folder` has less than `needed` bytes free for this user.
pub(crate) fn require_space(folder: &Path, needed: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(folder).map_err(|e| QuantizeError::io(folder, "ask for free space")(e.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < needed.saturating_add(SPARE) {
        return Err(QuantizeError::NoSpace { path: folder.to_owned(), needed: needed.saturating_add(SPARE), free });
    }
    Ok(())
}

/// Refuses when a file cannot be made in `folder`.
pub(crate) fn require_writable(folder: &Path) -> Result<()> {
    tempfile::tempfile_in(folder).map(drop).map_err(QuantizeError::io(folder, "write into it"))
}

/// A temporary file is its owner's alone; a finished one is as any other.
#[cfg(unix)]
pub(crate) fn open_to_readers(file: &std::fs::File, path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(QuantizeError::io(path, "set its mode"))
}

/// A finished file is as any other.
#[cfg(not(unix))]
pub(crate) fn open_to_readers(_: &std::fs::File, _: &Path) -> Result<()> {
    Ok(())
}
