//! [`ExpertRecord`]: one entry of the expert table (FORMAT.md, "Expert table").

use crate::blob::{BLOB_ALIGN, BlobLayout};
use crate::fault::{Fault, FaultKind, Place};
use crate::header::{u32_at, u64_at};
use crate::manifest::Region;
use smoe_codec::Codec;

/// Length of a record.
pub const RECORD_BYTES: usize = 48;

// layer, expert; offset, length, checksum; three codecs and the flags; hidden, width; four reserved bytes.
const _: () = assert!(2 * 4 + 3 * 8 + 4 + 2 * 4 + 4 == RECORD_BYTES);

const FLAG_BIASES: u8 = 1;

/// Where an expert's blob lies and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertRecord {
    /// Decoder layer.
    pub layer: u32,
    /// Expert within the layer.
    pub expert: u32,
    /// Start of the blob, a multiple of 16 KiB.
    pub offset: u64,
    /// Length of the blob with its padding, a multiple of 4 KiB.
    pub length: u64,
    /// Checksum of the blob with its padding.
    pub checksum: u64,
    /// Codecs of gate, up and down.
    pub codecs: [Codec; 3],
    /// Columns of gate and up, rows of down.
    pub hidden: u32,
    /// Rows of gate and up, columns of down.
    pub width: u32,
    /// Whether three f32 biases follow the weights.
    pub biases: bool,
}

impl ExpertRecord {
    /// Where the parts lie within the blob.
    ///
    /// # Errors
    /// Sizes beyond the address space; never for a record from a [`crate::VaultIndex`] or a [`crate::Layout`].
    pub fn layout(&self) -> Result<BlobLayout, FaultKind> {
        BlobLayout::new(self.codecs, self.hidden, self.width, self.biases)
    }

    /// The expert's name in messages.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Expert { layer: self.layer, expert: self.expert }
    }

    /// The blob's region of the file.
    #[must_use]
    pub fn region(&self) -> Region {
        Region { offset: self.offset, length: self.length, checksum: self.checksum }
    }

    /// The record's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        out[0..4].copy_from_slice(&self.layer.to_le_bytes());
        out[4..8].copy_from_slice(&self.expert.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..24].copy_from_slice(&self.length.to_le_bytes());
        out[24..32].copy_from_slice(&self.checksum.to_le_bytes());
        for (id, codec) in out[32..35].iter_mut().zip(self.codecs) {
            *id = codec.id();
        }
        out[35] = if self.biases { FLAG_BIASES } else { 0 };
        out[36..40].copy_from_slice(&self.hidden.to_le_bytes());
        out[40..44].copy_from_slice(&self.width.to_le_bytes());
        out
    }

    /// Reads a record and checks what it says by itself: codecs, flags, and the length against the shape.
    ///
    /// # Errors
    /// Any of these wrong, named with layer and expert.
    pub fn parse(bytes: &[u8; RECORD_BYTES]) -> Result<Self, Fault> {
        let place = Place::Expert { layer: u32_at(bytes, 0), expert: u32_at(bytes, 4) };
        Self::parse_fields(bytes).map_err(|kind| kind.at(place))
    }

    fn parse_fields(bytes: &[u8; RECORD_BYTES]) -> Result<Self, FaultKind> {
        let mut codecs = [Codec::Q2; 3];
        for (codec, &id) in codecs.iter_mut().zip(&bytes[32..35]) {
            *codec = expert_codec(id)?;
        }
        if bytes[35] & !FLAG_BIASES != 0 || bytes[44..48] != [0; 4] {
            return Err(FaultKind::refused("its record has unknown flags; a newer program wrote this vault"));
        }
        let record = Self {
            layer: u32_at(bytes, 0),
            expert: u32_at(bytes, 4),
            offset: u64_at(bytes, 8),
            length: u64_at(bytes, 16),
            checksum: u64_at(bytes, 24),
            codecs,
            hidden: u32_at(bytes, 36),
            width: u32_at(bytes, 40),
            biases: bytes[35] & FLAG_BIASES != 0,
        };
        let expected = record.layout()?.len_bytes() as u64;
        if record.length != expected {
            return Err(FaultKind::refused(format!(
                "its blob has {} B, expected {expected} B for width {} and hidden {}",
                record.length, record.width, record.hidden
            )));
        }
        if !record.offset.is_multiple_of(BLOB_ALIGN) {
            return Err(FaultKind::refused(format!(
                "its blob starts at {}, not on a multiple of {BLOB_ALIGN}",
                record.offset
            )));
        }
        Ok(record)
    }
}

/// The codec of an id in the table: those made for experts.
pub(crate) fn expert_codec(id: u8) -> Result<Codec, FaultKind> {
    match Codec::from_id(id) {
        Some(codec) if codec != Codec::Q8 => Ok(codec),
        Some(codec) => Err(FaultKind::refused(format!("codec {} is for the trunk only", codec.name()))),
        None => Err(FaultKind::refused(format!("codec {id} is unknown; a newer program wrote this vault"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ExpertRecord {
        let codecs = [Codec::Q2, Codec::Q4, Codec::Q4];
        let length = BlobLayout::new(codecs, 128, 64, true).expect("a small expert").len_bytes() as u64;
        ExpertRecord {
            layer: 3,
            expert: 9,
            offset: 5 << 32,
            length,
            checksum: 7,
            codecs,
            hidden: 128,
            width: 64,
            biases: true,
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(ExpertRecord::parse(&record().to_bytes()).expect("own record"), record());
    }

    #[test]
    fn refusals_name_the_expert() {
        for (at, value, text) in [
            (32, 9, "codec 9 is unknown"),
            (33, 3, "codec q8 is for the trunk only"),
            (35, 2, "unknown flags"),
            (47, 1, "unknown flags"),
            (16, 1, "its blob has"),
            (8, 1, "not on a multiple"),
            (40, 65, "its blob has"),
        ] {
            let mut bytes = record().to_bytes();
            bytes[at] = value;
            let message = ExpertRecord::parse(&bytes).unwrap_err().to_string();
            assert!(message.starts_with("layer 3 expert 9: ") && message.contains(text), "{message}");
        }
    }
}
