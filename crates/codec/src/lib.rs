//! The codecs: how weights become codes and scales, and back (FORMAT.md). The scalar functions here are the definition.
//!
//! A tensor is `[rows, cols]`, row-major. A *group* is [`GROUP`] consecutive weights of one row; a row whose length is
//! no multiple of it ends in a short group. No group crosses rows. Each group has one f16 scale `s >= 0`, stored
//! little-endian; the codes of a row are padded with zero bits to a whole byte.
//!
//! | codec | code | weight | module |
//! |---|---|---|---|
//! | `q2` | 2 bits, 4 a byte, lowest bits first | `(c - 1.5) / 1.5 * s` | [`q2`] |
//! | `q4` | 4 bits, 2 a byte, low nibble first | `(c - 7.5) / 7.5 * s` | [`q4`] |
//! | `q8` | int8 | `c * s` | [`q8`] |
//!
//! A group whose scale is 0 has all codes 0 and decodes to exact zeros.
//!
//! Plain and unhurried: the crate `kernels` holds the fast encoder, byte-identical to this one, and the products.
//!
//! ```
//! use smoe_codec::{Codec, decode_row, encode_row};
//! let (codec, row) = (Codec::Q4, [0.5, -0.25, 0.125]);
//! let mut codes = vec![0; codec.code_bytes(row.len())];
//! let mut scales = vec![0; codec.scale_bytes(row.len())];
//! encode_row(codec, &row, &mut codes, &mut scales)?;
//! let mut back = [0.0; 3];
//! decode_row(codec, &codes, &scales, &mut back);
//! assert!(row.iter().zip(back).all(|(w, b)| (w - b).abs() <= 0.5 / 15.0));
//! # Ok::<(), smoe_codec::EncodeError>(())
//! ```
#![forbid(unsafe_code)]

mod error;
pub mod half;
pub mod q2;
pub mod q4;
pub mod q8;
pub mod smoke;
mod uniform;

pub use error::EncodeError;

/// Weights that share a scale.
pub const GROUP: usize = 64;

/// Bytes of one scale: an f16, little-endian.
pub const SCALE_BYTES: usize = 2;

/// How a tensor's weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// `smoe-q2`: 2.25 bits a weight.
    Q2,
    /// `smoe-q4`: 4.25 bits a weight.
    Q4,
    /// `q8`: 8.25 bits a weight, for the trunk.
    Q8,
}

impl Codec {
    /// Every codec.
    pub const ALL: [Self; 3] = [Self::Q2, Self::Q4, Self::Q8];

    /// The short name, as on the command line: `q2`, `q4`, `q8`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Q2 => "q2",
            Self::Q4 => "q4",
            Self::Q8 => "q8",
        }
    }

    /// The codec of a short name or of its full one (`smoe-q2`).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let short = name.strip_prefix("smoe-").unwrap_or(name);
        Self::ALL.into_iter().find(|codec| codec.name() == short)
    }

    /// The number that stands for the codec in a vault's expert table.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Q2 => 1,
            Self::Q4 => 2,
            Self::Q8 => 3,
        }
    }

    /// The codec of a number from a file.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.id() == id)
    }

    /// Bits of one code.
    #[must_use]
    pub fn bits(self) -> usize {
        match self {
            Self::Q2 => 2,
            Self::Q4 => 4,
            Self::Q8 => 8,
        }
    }

    /// Bits a weight with its share of the scale, for rows of whole groups.
    #[must_use]
    pub fn bits_per_weight(self) -> f64 {
        self.bits() as f64 + (8 * SCALE_BYTES) as f64 / GROUP as f64
    }

    /// Bytes of the codes of one row.
    ///
    /// # Panics
    /// If the count overflows, which needs `cols` beyond any address space.
    #[must_use]
    pub fn code_bytes(self, cols: usize) -> usize {
        cols.checked_mul(self.bits()).expect("a row fits the address space").div_ceil(8)
    }

    /// Groups of one row, a short one at its end included.
    #[must_use]
    pub fn groups(self, cols: usize) -> usize {
        cols.div_ceil(GROUP)
    }

    /// Bytes of the scales of one row.
    #[must_use]
    pub fn scale_bytes(self, cols: usize) -> usize {
        self.groups(cols) * SCALE_BYTES
    }
}

/// Encodes one row: codes into `codes`, f16 scales into `scales`. Both are written whole.
///
/// # Errors
/// A weight that is not finite, or a group too large for an f16 scale; the outputs are then unspecified.
///
/// # Panics
/// If `codes` or `scales` is not as long as [`Codec::code_bytes`] and [`Codec::scale_bytes`] say for `w.len()`.
pub fn encode_row(codec: Codec, w: &[f32], codes: &mut [u8], scales: &mut [u8]) -> Result<(), EncodeError> {
    check_lengths(codec, w.len(), codes.len(), scales.len());
    match codec {
        Codec::Q2 => q2::UNIFORM.encode_row(w, q2::scale, codes, scales),
        Codec::Q4 => q4::UNIFORM.encode_row(w, q4::scale, codes, scales),
        Codec::Q8 => q8::encode_row(w, codes, scales),
    }
}

/// Decodes one row of `out.len()` weights.
///
/// # Panics
/// If the lengths do not belong to `out.len()` columns.
pub fn decode_row(codec: Codec, codes: &[u8], scales: &[u8], out: &mut [f32]) {
    check_lengths(codec, out.len(), codes.len(), scales.len());
    match codec {
        Codec::Q2 => q2::UNIFORM.decode_row(codes, scales, out),
        Codec::Q4 => q4::UNIFORM.decode_row(codes, scales, out),
        Codec::Q8 => q8::decode_row(codes, scales, out),
    }
}

/// The product of one row with `x`, summed in f64: the oracle of the kernels.
///
/// # Panics
/// If the lengths do not belong to `x.len()` columns.
#[must_use]
pub fn dot_row(codec: Codec, codes: &[u8], scales: &[u8], x: &[f32]) -> f32 {
    let mut row = vec![0.0; x.len()];
    decode_row(codec, codes, scales, &mut row);
    row.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum::<f64>() as f32
}

/// The first scale of `scales` (f16, little-endian) that no encoder writes: negative, infinite or NaN.
///
/// A reader of files asks this once, so that a damaged scale is an error there and not a NaN in the logits.
#[must_use]
pub fn bad_scale(scales: &[u8]) -> Option<usize> {
    scales.chunks_exact(SCALE_BYTES).position(|s| u16::from_le_bytes([s[0], s[1]]) >= half::F16_INFINITY)
}

fn check_lengths(codec: Codec, cols: usize, codes: usize, scales: usize) {
    assert_eq!(codes, codec.code_bytes(cols), "{} codes of {cols} columns", codec.name());
    assert_eq!(scales, codec.scale_bytes(cols), "{} scales of {cols} columns", codec.name());
}

#[cfg(test)]
mod tests;
