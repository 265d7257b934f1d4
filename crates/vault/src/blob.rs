//! [`BlobLayout`]: where the parts of one expert lie inside its blob (FORMAT.md, "Blobs").
//!
//! Order: gate codes, gate scales, up codes, up scales, down codes, down scales, then with biases gate, up and down
//! bias as f32. Each part starts on 64 bytes; the blob is padded with zeros to 4 KiB.

use crate::fault::FaultKind;
use smoe_codec::{Codec, GROUP, SCALE_BYTES};
use std::ops::Range;

/// A blob starts on a multiple of it.
pub const BLOB_ALIGN: u64 = 16 * 1024;
/// A blob's length is a multiple of it.
pub const BLOB_PAD: u64 = 4 * 1024;
/// A part of a blob starts on a multiple of it.
pub const PART_ALIGN: u64 = 64;

/// Byte ranges of an expert's parts within its blob, by projection: 0 gate, 1 up, 2 down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobLayout {
    codecs: [Codec; 3],
    hidden: usize,
    width: usize,
    codes: [Range<usize>; 3],
    scales: [Range<usize>; 3],
    biases: Option<[Range<usize>; 3]>,
    len: usize,
}

impl BlobLayout {
    /// The layout of an expert whose gate and up are `[width, hidden]` and down is `[hidden, width]`.
    ///
    /// # Errors
    /// An empty side, or a blob beyond the address space.
    pub fn new(codecs: [Codec; 3], hidden: u32, width: u32, biases: bool) -> Result<Self, FaultKind> {
        if hidden == 0 || width == 0 {
            return Err(FaultKind::refused(format!("an expert of width {width} in a stream of {hidden} is empty")));
        }
        Self::place(codecs, hidden, width, biases)
            .ok_or_else(|| FaultKind::refused(format!("an expert of {width} x {hidden} exceeds the address space")))
    }

    fn place(codecs: [Codec; 3], hidden: u32, width: u32, biases: bool) -> Option<Self> {
        let mut end = 0_u64;
        let mut part = |bytes: u64| -> Option<Range<usize>> {
            let start = end.checked_next_multiple_of(PART_ALIGN)?;
            end = start.checked_add(bytes)?;
            Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
        };
        let (mut codes, mut scales) = ([0..0, 0..0, 0..0], [0..0, 0..0, 0..0]);
        for proj in 0..3 {
            let (rows, cols) = rows_cols(proj, hidden, width);
            let (rows, cols) = (u64::from(rows), u64::from(cols));
            codes[proj] = part(rows.checked_mul((cols * codecs[proj].bits() as u64).div_ceil(8))?)?;
            scales[proj] = part(rows.checked_mul(cols.div_ceil(GROUP as u64) * SCALE_BYTES as u64)?)?;
        }
        let biases = match biases {
            true => Some([part(u64::from(width) * 4)?, part(u64::from(width) * 4)?, part(u64::from(hidden) * 4)?]),
            false => None,
        };
        let len = usize::try_from(end.checked_next_multiple_of(BLOB_PAD)?).ok()?;
        let (hidden, width) = (usize::try_from(hidden).ok()?, usize::try_from(width).ok()?);
        Some(Self { codecs, hidden, width, codes, scales, biases, len })
    }

    /// Length of the blob with its padding: a multiple of 4 KiB.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// `(rows, cols)` of a projection.
    ///
    /// # Panics
    /// If `proj > 2`, as in the other accessors.
    #[must_use]
    pub fn shape(&self, proj: usize) -> (usize, usize) {
        assert!(proj < 3, "an expert has three projections");
        if proj == 2 { (self.hidden, self.width) } else { (self.width, self.hidden) }
    }

    /// The codec of a projection.
    #[must_use]
    pub fn codec(&self, proj: usize) -> Codec {
        self.codecs[proj]
    }

    /// Range of a projection's codes: `rows * codec.code_bytes(cols)` bytes, row after row.
    #[must_use]
    pub fn codes(&self, proj: usize) -> Range<usize> {
        self.codes[proj].clone()
    }

    /// Range of a projection's scales: `rows * codec.scale_bytes(cols)` bytes, f16, row after row.
    #[must_use]
    pub fn scales(&self, proj: usize) -> Range<usize> {
        self.scales[proj].clone()
    }

    /// Range of a projection's bias: `rows` f32, where the expert has biases.
    #[must_use]
    pub fn bias(&self, proj: usize) -> Option<Range<usize>> {
        self.biases.as_ref().map(|b| b[proj].clone())
    }

    /// The used ranges in order.
    #[must_use]
    pub fn parts(&self) -> Vec<Range<usize>> {
        let weights = (0..3).flat_map(|p| [self.codes(p), self.scales(p)]);
        weights.chain((0..3).filter_map(|p| self.bias(p))).collect()
    }

    /// The first byte of padding that is not zero.
    ///
    /// # Panics
    /// If `blob` is shorter than [`BlobLayout::len_bytes`].
    #[must_use]
    pub fn dirty_padding(&self, blob: &[u8]) -> Option<usize> {
        let dirty = |from: usize, to: usize| blob[from..to].iter().position(|&b| b != 0).map(|at| from + at);
        let mut end = 0;
        for part in self.parts() {
            if let Some(at) = dirty(end, part.start) {
                return Some(at);
            }
            end = part.end;
        }
        dirty(end, self.len)
    }
}

/// Rows and columns of projection `proj` (0 gate, 1 up, 2 down).
fn rows_cols(proj: usize, hidden: u32, width: u32) -> (u32, u32) {
    if proj == 2 { (hidden, width) } else { (width, hidden) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_ordered_and_as_long_as_the_codec_says() {
        for (hidden, width) in [(1, 1), (40, 96), (64, 64), (128, 64), (1000, 2736)] {
            for codecs in [[Codec::Q2; 3], [Codec::Q4; 3], [Codec::Q2, Codec::Q4, Codec::Q2]] {
                for biases in [false, true] {
                    let layout = BlobLayout::new(codecs, hidden, width, biases).expect("a small expert");
                    let mut end = 0;
                    for part in layout.parts() {
                        assert!(part.start >= end && part.start - end < 64 && part.start % 64 == 0);
                        end = part.end;
                    }
                    assert_eq!(layout.len_bytes(), end.next_multiple_of(4096));
                    for (proj, codec) in codecs.into_iter().enumerate() {
                        let (rows, cols) = layout.shape(proj);
                        assert_eq!(layout.codes(proj).len(), rows * codec.code_bytes(cols));
                        assert_eq!(layout.scales(proj).len(), rows * codec.scale_bytes(cols));
                        assert_eq!(layout.bias(proj).map(|b| b.len()), biases.then_some(rows * 4));
                    }
                }
            }
        }
    }

    #[test]
    fn absurd_experts_are_refused() {
        assert!(BlobLayout::new([Codec::Q4; 3], 0, 1, false).is_err());
        assert!(BlobLayout::new([Codec::Q4; 3], u32::MAX, u32::MAX, true).is_err());
    }

    #[test]
    fn padding_is_seen() {
        let layout = BlobLayout::new([Codec::Q4; 3], 40, 24, true).expect("a small expert");
        let parts = layout.parts();
        let mut blob = vec![0; layout.len_bytes()];
        for at in 0..blob.len() {
            blob[at] = 1;
            let inside = parts.iter().any(|p| p.contains(&at));
            assert_eq!(layout.dirty_padding(&blob), (!inside).then_some(at));
            blob[at] = 0;
        }
    }
}
