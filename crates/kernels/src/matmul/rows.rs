//! Packed rows, seen group by group.

use crate::simd::{STEPS, Simd};
use core::marker::PhantomData;
use smoe_codec::{Codec, GROUP, SCALE_BYTES};

/// How the bytes of a group become weights.
pub(super) trait Format {
    const GROUP_BYTES: usize;

    /// Decodes `GROUP_BYTES` bytes under a scale (0 for floats, which have none).
    fn decode<S: Simd>(simd: S, bytes: &[u8], scale: u16) -> [S::V; STEPS];
}

macro_rules! format {
    ($($(#[$doc:meta])* $name:ident: $bytes:expr, |$simd:ident, $group:ident, $scale:ident| $decode:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Format for $name {
            const GROUP_BYTES: usize = $bytes;

            #[inline(always)]
            fn decode<S: Simd>($simd: S, bytes: &[u8], $scale: u16) -> [S::V; STEPS] {
                let $group = bytes.first_chunk::<{ $bytes }>().expect("the caller cuts whole groups");
                $decode
            }
        }
    )*};
}

format! {
    /// f32, little-endian.
    F32: 4 * GROUP, |simd, group, _scale| simd.f32(group);
    /// f16, little-endian.
    F16: 2 * GROUP, |simd, group, _scale| simd.f16(group);
    /// bf16, little-endian.
    Bf16: 2 * GROUP, |simd, group, _scale| simd.bf16(group);
    /// Codes of `q2`.
    Q2: GROUP / 4, |simd, group, scale| simd.q2(group, scale);
    /// Codes of `q4`.
    Q4: GROUP / 2, |simd, group, scale| simd.q4(group, scale);
    /// Codes of `q8`.
    Q8: GROUP, |simd, group, scale| simd.q8(group, scale);
}

/// The bytes of a matrix, to be cut into rows.
pub(super) struct Rows<'a, F> {
    codes: &'a [u8],
    scales: &'a [u8],
    row_codes: usize,
    row_scales: usize,
    format: PhantomData<F>,
}

impl<'a, F: Format> Rows<'a, F> {
    pub(super) fn floats(bytes: &'a [u8], cols: usize) -> Self {
        Self {
            codes: bytes,
            scales: &[],
            row_codes: cols * (F::GROUP_BYTES / GROUP),
            row_scales: 0,
            format: PhantomData,
        }
    }

    pub(super) fn coded(codec: Codec, codes: &'a [u8], scales: &'a [u8], cols: usize) -> Self {
        let (row_codes, row_scales) = (codec.code_bytes(cols), codec.scale_bytes(cols));
        Self { codes, scales, row_codes, row_scales, format: PhantomData }
    }

    #[inline(always)]
    pub(super) fn row(&self, r: usize) -> Row<'a, F> {
        let codes = &self.codes[r * self.row_codes..][..self.row_codes];
        let scales = &self.scales[r * self.row_scales..][..self.row_scales];
        Row { codes, scales, format: PhantomData }
    }
}

/// The bytes of one row.
pub(super) struct Row<'a, F> {
    codes: &'a [u8],
    scales: &'a [u8],
    format: PhantomData<F>,
}

impl<F: Format> Row<'_, F> {
    /// The whole group `g`.
    #[inline(always)]
    pub(super) fn group<S: Simd>(&self, simd: S, g: usize) -> [S::V; STEPS] {
        F::decode(simd, &self.codes[g * F::GROUP_BYTES..][..F::GROUP_BYTES], self.scale(g))
    }

    /// The short group after `g` whole ones. What lies beyond the row is finite if the scale is.
    #[inline(always)]
    pub(super) fn tail<S: Simd>(&self, simd: S, g: usize) -> [S::V; STEPS] {
        let mut bytes = [0; 4 * GROUP];
        let rest = &self.codes[g * F::GROUP_BYTES..];
        bytes[..rest.len()].copy_from_slice(rest);
        F::decode(simd, &bytes[..F::GROUP_BYTES], self.scale(g))
    }

    #[inline(always)]
    fn scale(&self, g: usize) -> u16 {
        match self.scales.get(g * SCALE_BYTES..(g + 1) * SCALE_BYTES) {
            Some(scale) => u16::from_le_bytes([scale[0], scale[1]]),
            None => 0,
        }
    }
}
