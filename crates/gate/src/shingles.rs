//! [`Shingles`]: what a vault remembers of its calibration text, so that nothing is judged on the text that made it.
//!
//! A shingle is [`SHINGLE_TOKENS`] consecutive token ids of one row; its hash is the XXH3-64 of the ids as little-endian
//! u32, of which the upper 40 bits are kept. A shorter row is one shingle as a whole. No shingle crosses rows. A million
//! stored hashes meet one of 65,536 foreign shingles with a probability of 6 %: far below the shares that are judged.
//!
//! Pure: the converter stores [`Shingles::to_bytes`] as the section [`SHINGLES_SECTION`] of the vault, the gate reads it.

use std::collections::BTreeSet;

/// Consecutive tokens of a shingle.
pub const SHINGLE_TOKENS: usize = 64;

/// The vault's section with the shingles of the calibration text (FORMAT.md, "Calibration shingles").
pub const SHINGLES_SECTION: &str = "calibration-shingles.bin";

/// First bytes of the section: "SHNG", then the format's version.
const MAGIC: [u8; 8] = *b"SHNG\x01\0\0\0";
/// Magic, tokens of a shingle, count.
const HEADER_BYTES: usize = 20;
/// Bytes of a stored hash.
const HASH_BYTES: usize = 5;

const _: () = assert!(HEADER_BYTES == MAGIC.len() + 4 + 8);

/// A set of shingles, by their hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shingles {
    /// Rising, each once, below 2^40.
    sorted: Vec<u64>,
}

/// The hashes of a row's shingles, in the order of their first token; a row without ids has none.
pub fn shingle_hashes(row: &[u32]) -> impl Iterator<Item = u64> + '_ {
    let width = row.len().min(SHINGLE_TOKENS);
    let bytes: Vec<u8> = row.iter().flat_map(|id| id.to_le_bytes()).collect();
    let starts = if width == 0 { 0 } else { row.len() - width + 1 };
    (0..starts).map(move |start| smoe_vault::checksum(&bytes[4 * start..4 * (start + width)]) >> (64 - 8 * HASH_BYTES))
}

impl Shingles {
    /// The shingles of rows of token ids: of those, and only those, that calibrated.
    #[must_use]
    pub fn of_rows<'a>(rows: impl IntoIterator<Item = &'a [u32]>) -> Self {
        let sorted: BTreeSet<u64> = rows.into_iter().flat_map(shingle_hashes).collect();
        Self { sorted: sorted.into_iter().collect() }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// How many of a row's shingles are in the set, and how many it has.
    #[must_use]
    pub fn count(&self, row: &[u32]) -> (usize, usize) {
        shingle_hashes(row)
            .fold((0, 0), |(known, all), hash| (known + usize::from(self.sorted.binary_search(&hash).is_ok()), all + 1))
    }

    /// The section's bytes: magic, u32 tokens of a shingle, u64 count, then the hashes, rising, 5 bytes each.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend((SHINGLE_TOKENS as u32).to_le_bytes());
        out.extend((self.sorted.len() as u64).to_le_bytes());
        for hash in &self.sorted {
            out.extend_from_slice(&hash.to_le_bytes()[..HASH_BYTES]);
        }
        out
    }

    /// Reads a section.
    ///
    /// # Errors
    /// Bytes that [`Shingles::to_bytes`] does not write: what was expected and found.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let fault = |what: &str, expected: u64, found: u64| Err(format!("expected {what} {expected}, found {found}"));
        let Some((header, hashes)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return fault("at least bytes:", HEADER_BYTES as u64, bytes.len() as u64);
        };
        if header[..MAGIC.len()] != MAGIC {
            return Err(format!("expected the magic {MAGIC:02x?}, found {:02x?}", &header[..MAGIC.len()]));
        }
        let tokens = header[8..12].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let count = header[12..].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        if tokens != SHINGLE_TOKENS as u64 {
            return fault("tokens a shingle:", SHINGLE_TOKENS as u64, tokens);
        }
        let (hashes, rest) = hashes.as_chunks::<HASH_BYTES>();
        if !rest.is_empty() || hashes.len() as u64 != count {
            return fault("hashes:", count, hashes.len() as u64);
        }
        let value = |bytes: &[u8; HASH_BYTES]| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let sorted: Vec<u64> = hashes.iter().map(value).collect();
        match sorted.windows(2).position(|pair| pair[0] >= pair[1]) {
            Some(at) => Err(format!("expected rising hashes, found one that is not after number {at}")),
            None => Ok(Self { sorted }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(from: u32, len: u32) -> Vec<u32> {
        (from..from + len).collect()
    }

    #[test]
    fn a_row_has_one_shingle_for_each_place_and_a_short_row_one() {
        for (len, shingles) in [(0, 0), (1, 1), (63, 1), (64, 1), (65, 2), (512, 449)] {
            assert_eq!(shingle_hashes(&row(7, len)).count(), shingles, "{len} ids");
        }
        // A short row is not the start of a longer one.
        assert_eq!(Shingles::of_rows([&row(0, 64)[..]]).count(&row(0, 63)), (0, 1));
    }

    #[test]
    fn the_hash_is_the_one_that_the_format_gives() {
        let bytes: Vec<u8> = row(300, 64).iter().flat_map(|id| id.to_le_bytes()).collect();
        let whole = smoe_vault::checksum(&bytes);
        assert_eq!(shingle_hashes(&row(300, 64)).collect::<Vec<_>>(), [whole >> 24]);
    }

    #[test]
    fn a_copied_passage_is_found_wherever_it_lies() {
        let calibration = Shingles::of_rows([&row(0, 512)[..], &row(5000, 512)[..]]);
        assert_eq!(calibration.len(), 2 * 449);
        assert_eq!(calibration.count(&row(10_000, 512)), (0, 449));
        // 200 tokens of it, 100 further on than there: 200 - 63 whole shingles.
        let copied = [row(20_000, 100), row(5000, 200), row(30_000, 212)].concat();
        assert_eq!(calibration.count(&copied), (137, 449));
        // None runs from one calibration row into the next.
        assert_eq!(calibration.count(&[row(512 - 32, 32), row(5000, 32)].concat()), (0, 1));
    }

    #[test]
    fn a_section_is_read_as_it_was_written_and_nothing_else_is() {
        let shingles = Shingles::of_rows([&row(0, 80)[..], &row(900, 3)[..]]);
        let bytes = shingles.to_bytes();
        assert_eq!(bytes.len(), 20 + 5 * 18);
        assert_eq!(Shingles::from_bytes(&bytes), Ok(shingles.clone()));
        assert_eq!(Shingles::from_bytes(&Shingles::default().to_bytes()), Ok(Shingles::default()));
        for cut in 0..bytes.len() {
            assert!(Shingles::from_bytes(&bytes[..cut]).is_err(), "{cut} B");
        }
        let (mut version, mut tokens, mut order) = (bytes.clone(), bytes.clone(), bytes.clone());
        (version[4], tokens[8]) = (2, 32);
        order.copy_within(20..25, 25);
        for (bytes, text) in
            [(version, "expected the magic"), (tokens, "tokens a shingle: 64, found 32"), (order, "rising hashes")]
        {
            let error = Shingles::from_bytes(&bytes).expect_err(text);
            assert!(error.contains(text), "{error}");
        }
    }
}
