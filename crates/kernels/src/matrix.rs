//! A matrix as its file holds it: packed rows, borrowed.

use core::fmt;
use smoe_codec::Codec;

/// The bytes of a `[rows, cols]` matrix, row-major and little-endian.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    /// bf16, 2 bytes a weight.
    Bf16(&'a [u8]),
    /// f16, 2 bytes a weight.
    F16(&'a [u8]),
    /// f32, 4 bytes a weight.
    F32(&'a [u8]),
    /// Codes and scales of a codec, row after row.
    Coded {
        /// The codec.
        codec: Codec,
        /// `rows * codec.code_bytes(cols)` bytes.
        codes: &'a [u8],
        /// `rows * codec.scale_bytes(cols)` bytes.
        scales: &'a [u8],
    },
}

/// Bytes whose length contradicts the shape of their matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MatrixError {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Which bytes: a dtype, or a codec's codes or scales.
    pub part: &'static str,
    /// What the shape asks for; `None` where the product overflows.
    pub expected: Option<usize>,
    /// The length.
    pub found: usize,
}

impl fmt::Display for MatrixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([rows, cols], part, found) = (self.shape, self.part, self.found);
        match self.expected {
            Some(expected) => write!(f, "{part} of a {rows} x {cols} matrix: expected {expected} B, found {found} B"),
            None => write!(f, "{part} of a {rows} x {cols} matrix: more bytes than memory can hold"),
        }
    }
}

impl core::error::Error for MatrixError {}

/// A `[rows, cols]` matrix of packed weights whose lengths have been checked.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    rows: usize,
    cols: usize,
    data: Data<'a>,
}

impl<'a> Matrix<'a> {
    /// Checks that `data` is exactly as long as the shape says.
    ///
    /// # Errors
    /// If it is not.
    pub fn new(rows: usize, cols: usize, data: Data<'a>) -> Result<Self, MatrixError> {
        let check = |part, row_bytes: Option<usize>, found| {
            let expected = row_bytes.and_then(|bytes| bytes.checked_mul(rows));
            if expected == Some(found) {
                Ok(())
            } else {
                Err(MatrixError { shape: [rows, cols], part, expected, found })
            }
        };
        match data {
            Data::Bf16(bytes) => check("bf16", cols.checked_mul(2), bytes.len())?,
            Data::F16(bytes) => check("f16", cols.checked_mul(2), bytes.len())?,
            Data::F32(bytes) => check("f32", cols.checked_mul(4), bytes.len())?,
            Data::Coded { codec, codes, scales } => {
                let code_bytes = cols.checked_mul(codec.bits()).map(|bits| bits.div_ceil(8));
                check("codes", code_bytes, codes.len())?;
                check("scales", Some(codec.scale_bytes(cols)), scales.len())?;
            }
        }
        Ok(Self { rows, cols, data })
    }

    /// Rows: outputs of the product.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: inputs of the product.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The bytes.
    #[must_use]
    pub fn data(&self) -> Data<'a> {
        self.data
    }

    /// Bytes that a product reads once per row.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        match self.data {
            Data::Bf16(bytes) | Data::F16(bytes) | Data::F32(bytes) => bytes.len(),
            Data::Coded { codes, scales, .. } => codes.len() + scales.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked() {
        let bytes = [0; 130];
        assert!(Matrix::new(1, 65, Data::Bf16(&bytes)).is_ok());
        assert!(Matrix::new(0, 65, Data::F16(&[])).is_ok());
        let coded = |codes, scales| Data::Coded { codec: Codec::Q4, codes: &bytes[..codes], scales: &bytes[..scales] };
        assert!(Matrix::new(2, 65, coded(66, 8)).is_ok());
        let text = |matrix: Result<Matrix, MatrixError>| matrix.expect_err("refused").to_string();
        assert_eq!(text(Matrix::new(2, 65, coded(66, 7))), "scales of a 2 x 65 matrix: expected 8 B, found 7 B");
        assert_eq!(text(Matrix::new(2, 65, coded(65, 8))), "codes of a 2 x 65 matrix: expected 66 B, found 65 B");
        let huge = text(Matrix::new(usize::MAX, 4, Data::F32(&bytes)));
        assert!(huge.ends_with("more bytes than memory can hold"), "{huge}");
    }
}
