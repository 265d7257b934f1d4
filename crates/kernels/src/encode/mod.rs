//! The fast encoder: byte for byte what `smoe_codec::encode_row` writes, row after row.
//!
//! Plain loops over arrays, compiled for the instruction set: the compiler makes vectors of them. The scale searches
//! repeat the definition's sums in its order, for many candidates (q4) or many groups (q2) at once.

mod code;
mod q2;
mod q4;
mod q8;

use crate::isa::Isa;
use crate::simd::{Scalar, Simd, Work};
use core::fmt;
use smoe_codec::{Codec, EncodeError, GROUP, SCALE_BYTES, half};

/// A weight that cannot be encoded, by row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowError {
    /// The row, from 0 in this call.
    pub row: usize,
    /// The column and the weight.
    pub error: EncodeError,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}, {}", self.row, self.error)
    }
}

impl core::error::Error for RowError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Encodes rows of `cols` f32 weights, as `smoe_codec::encode_row` does each; codes and scales are written row after row.
///
/// # Errors
/// The first weight, row by row, that is not finite or too large; the outputs are then unspecified.
///
/// # Panics
/// If `w` is not whole rows, or `codes` or `scales` is not as long as the codec says for as many rows.
pub fn encode_rows(
    isa: Isa,
    codec: Codec,
    w: &[f32],
    cols: usize,
    codes: &mut [u8],
    scales: &mut [u8],
) -> Result<(), RowError> {
    encode(isa, codec, w, cols, (codes, scales))
}

/// [`encode_rows`] of bf16 weights, little-endian bytes as in a checkpoint; they are widened group by group.
///
/// # Errors
/// As [`encode_rows`].
///
/// # Panics
/// As [`encode_rows`].
pub fn encode_rows_bf16(
    isa: Isa,
    codec: Codec,
    w: &[u8],
    cols: usize,
    codes: &mut [u8],
    scales: &mut [u8],
) -> Result<(), RowError> {
    let (w, rest) = w.as_chunks::<2>();
    assert!(rest.is_empty(), "an odd number of bytes of bf16 weights");
    encode(isa, codec, w, cols, (codes, scales))
}

fn encode<T: Weight>(
    isa: Isa,
    codec: Codec,
    w: &[T],
    cols: usize,
    (codes, scales): (&mut [u8], &mut [u8]),
) -> Result<(), RowError> {
    let rows = w.len().checked_div(cols).unwrap_or(0);
    assert_eq!(Some(w.len()), rows.checked_mul(cols), "weights in rows of {cols} columns");
    assert_eq!(codes.len(), rows * codec.code_bytes(cols), "{} codes of {rows} x {cols}", codec.name());
    assert_eq!(scales.len(), rows * codec.scale_bytes(cols), "{} scales of {rows} x {cols}", codec.name());
    let mut result = Ok(());
    if rows > 0 {
        let job = Job { codec, w, cols, codes, scales, result: &mut result };
        match isa {
            Isa::Scalar => Scalar.on(job),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(avx2) => avx2.on(job),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(avx512) => avx512.on(job),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2(_) | Isa::Avx512(_) => unreachable!("detected on another architecture"),
        }
    }
    result
}

/// A stored weight.
trait Weight: Copy {
    fn widen(self) -> f32;
}

impl Weight for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

/// A bf16, little-endian.
impl Weight for [u8; 2] {
    #[inline(always)]
    fn widen(self) -> f32 {
        half::bf16_to_f32(u16::from_le_bytes(self))
    }
}

struct Job<'a, T> {
    codec: Codec,
    w: &'a [T],
    cols: usize,
    codes: &'a mut [u8],
    scales: &'a mut [u8],
    result: &'a mut Result<(), RowError>,
}

impl<T: Weight> Work for Job<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { codec, w, cols, codes, scales, result } = self;
        let (row_codes, row_scales) = (codec.code_bytes(cols), codec.scale_bytes(cols));
        let rows = codes.chunks_exact_mut(row_codes).zip(scales.chunks_exact_mut(row_scales));
        let mut batch = q2::Batch::new();
        for (row, (w, (codes, scales))) in w.chunks_exact(cols).zip(rows).enumerate() {
            let outputs = codes.chunks_mut(GROUP * codec.bits() / 8).zip(scales.as_chunks_mut::<SCALE_BYTES>().0);
            for (g, (w, (codes, scale))) in w.chunks(GROUP).zip(outputs).enumerate() {
                let group = match Group::new(codec, w) {
                    Ok(group) => group,
                    Err(error) => {
                        *result = Err(RowError { row, error: error.offset(g * GROUP) });
                        return;
                    }
                };
                let out = Output { codes, scale };
                match codec {
                    Codec::Q2 => batch.push(group, out),
                    Codec::Q4 => q4::encode(&group, out),
                    Codec::Q8 => q8::encode(&group, out),
                }
            }
        }
        batch.flush();
    }
}

/// Where a group goes.
struct Output<'a> {
    codes: &'a mut [u8],
    scale: &'a mut [u8; SCALE_BYTES],
}

impl Output<'_> {
    /// Stores a scale, which is an f16 value.
    #[inline(always)]
    fn scale(&mut self, s: f32) {
        *self.scale = half::f32_to_f16(s).to_le_bytes();
    }
}

/// A group of finite weights whose scale fits f16, filled up with zeros.
#[derive(Debug, Clone, Copy)]
struct Group {
    w: [f32; GROUP],
    len: usize,
    absmax: f32,
}

impl Group {
    const ZERO: Self = Self { w: [0.0; GROUP], len: GROUP, absmax: 0.0 };

    /// Widens and checks a group; where the check fails, the definition says what is wrong.
    #[inline(always)]
    fn new<T: Weight>(codec: Codec, raw: &[T]) -> Result<Self, EncodeError> {
        let mut group = Self { len: raw.len(), ..Self::ZERO };
        if let Some(raw) = raw.first_chunk::<GROUP>() {
            for (w, raw) in group.w.iter_mut().zip(raw) {
                *w = raw.widen();
            }
        } else {
            for (w, raw) in group.w.iter_mut().zip(raw) {
                *w = raw.widen();
            }
        }
        // Magnitudes order as their bits do, infinity and NaN above all.
        let largest = group.w.iter().fold(0, |max: i32, w| max.max(w.abs().to_bits() as i32));
        group.absmax = f32::from_bits(largest as u32);
        let scale = if codec == Codec::Q8 { group.absmax / smoe_codec::q8::MAX_CODE } else { group.absmax };
        if scale < half::F16_OVERFLOW { Ok(group) } else { Err(refusal(codec, &group.w[..group.len])) }
    }
}

#[cold]
fn refusal(codec: Codec, w: &[f32]) -> EncodeError {
    let (mut codes, mut scales) = ([0; GROUP], [0; SCALE_BYTES]);
    smoe_codec::encode_row(codec, w, &mut codes[..codec.code_bytes(w.len())], &mut scales)
        .expect_err("a magnitude beyond f16 or not finite")
}

#[cfg(test)]
mod tests;
