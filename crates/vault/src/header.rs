//! The header: the first 64 bytes of a vault (FORMAT.md, "Header").

use crate::checksum;
use crate::fault::FaultKind;

/// First bytes of a vault of this format.
pub const MAGIC: [u8; 8] = *b"SMOE\xde\xea\x00\x03";

/// The format's version.
pub const VERSION: u32 = 3;

/// Length of the header.
pub const HEADER_BYTES: usize = 64;

/// A manifest is being appended: bytes beyond `file_length` are left over from an interrupted update.
pub const FLAG_UPDATING: u32 = 1;

const KNOWN_FLAGS: u32 = FLAG_UPDATING;

// Magic, version, flags, four u64, a reserved u64, the checksum.
const _: () = assert!(8 + 4 + 4 + 4 * 8 + 8 + 8 == HEADER_BYTES);

/// The header's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bits of `FLAG_*`.
    pub flags: u32,
    /// Where the manifest starts.
    pub manifest_offset: u64,
    /// Its length; it ends where the file ends.
    pub manifest_length: u64,
    /// Length of the vault.
    pub file_length: u64,
    /// Checksum of the manifest.
    pub manifest_checksum: u64,
}

impl Header {
    /// The 64 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.flags.to_le_bytes());
        out[16..24].copy_from_slice(&self.manifest_offset.to_le_bytes());
        out[24..32].copy_from_slice(&self.manifest_length.to_le_bytes());
        out[32..40].copy_from_slice(&self.file_length.to_le_bytes());
        out[40..48].copy_from_slice(&self.manifest_checksum.to_le_bytes());
        let sum = checksum(&out[..56]);
        out[56..64].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads and checks the 64 bytes; nothing in them has been compared with the file's length yet.
    ///
    /// # Errors
    /// Another kind of file, another version, unknown flags, a wrong checksum.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FaultKind> {
        if bytes[0..8] != MAGIC {
            return Err(FaultKind::refused(what_else(bytes)));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(FaultKind::refused(format!(
                "version {version} is unknown; this program reads version {VERSION}: the file is damaged or newer"
            )));
        }
        let (expected, found) = (u64_at(bytes, 56), checksum(&bytes[..56]));
        if expected != found {
            return Err(FaultKind::Damaged { expected, found });
        }
        let flags = u32_at(bytes, 12);
        if flags & !KNOWN_FLAGS != 0 {
            return Err(FaultKind::refused(format!("flags {flags:#x} are unknown; a newer program wrote this vault")));
        }
        if u64_at(bytes, 48) != 0 {
            return Err(FaultKind::NotZero { offset: 48 });
        }
        Ok(Self {
            flags,
            manifest_offset: u64_at(bytes, 16),
            manifest_length: u64_at(bytes, 24),
            file_length: u64_at(bytes, 32),
            manifest_checksum: u64_at(bytes, 40),
        })
    }
}

/// What a file without the magic is, as far as its first bytes tell.
fn what_else(bytes: &[u8; HEADER_BYTES]) -> String {
    let kind = if bytes.starts_with(b"SMOE\xde\xea\x00\x01") {
        "it is an S-MoE version 2 file; `smoe import` makes a vault of it"
    } else if bytes.starts_with(b"version https://git-lfs") {
        "it is a Git LFS pointer; fetch the file itself with `git lfs pull`"
    } else if bytes.starts_with(b"GGUF") {
        "it is a GGUF file"
    } else if bytes.iter().all(|&b| b == 0) {
        "its first bytes are zero: a conversion that has not finished; continue it with `--resume`"
    } else {
        "its first bytes are not `SMOE DE EA 00 03`"
    };
    format!("not a vault: {kind}")
}

/// Little-endian u32; the caller knows the length.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

/// Little-endian u64; the caller knows the length.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { flags: 0, manifest_offset: 1 << 40, manifest_length: 77, file_length: 99, manifest_checksum: 5 };

    #[test]
    fn round_trip_and_every_flip() {
        let bytes = HEADER.to_bytes();
        assert_eq!(Header::parse(&bytes).expect("own header"), HEADER);
        for at in 0..HEADER_BYTES {
            let mut bad = bytes;
            bad[at] ^= 0x10;
            assert!(Header::parse(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn other_files_are_named() {
        let mut bytes = [0; HEADER_BYTES];
        assert!(Header::parse(&bytes).unwrap_err().to_string().contains("--resume"));
        bytes[..8].copy_from_slice(b"SMOE\xde\xea\x00\x01");
        assert!(Header::parse(&bytes).unwrap_err().to_string().contains("smoe import"));
        bytes[..16].copy_from_slice(b"version https://");
        bytes[16..23].copy_from_slice(b"git-lfs");
        assert!(Header::parse(&bytes).unwrap_err().to_string().contains("LFS"));
    }
}
