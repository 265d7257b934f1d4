//! [`Int8`]: tokens rounded to eight bits, laid out as the codes of a codec lie.

use super::kind::planes;
use super::tile::{BLOCK, GROUPS};
use crate::compiled::{Compiled, compiled_for};
use crate::isa::Isa;
use smoe_codec::{Codec, GROUP};

/// Bytes of activations on a cache line of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(align(64))]
pub(super) struct Plane(pub(super) [i8; BLOCK]);

/// Scales of [`GROUPS`] groups.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(align(64))]
pub(super) struct Sixteen(pub(super) [f32; GROUPS]);

/// Activations in eight bits, for the matrices of one codec.
///
/// For each group of 64 columns: `d = max|x| / 127`, `q = round(x / d)`, ties to even. A group with a value that is not
/// finite has a NaN for its scale.
#[derive(Debug, Clone, PartialEq)]
pub struct Int8 {
    codec: Codec,
    tokens: usize,
    cols: usize,
    /// Per token, blocks of 64 bytes of codes, each with as many planes as a byte has codes.
    pub(super) planes: Vec<Plane>,
    /// Per token, `d` of each group; 0 past the last.
    pub(super) scales: Vec<Sixteen>,
    /// Per token, `d sum q` of each group.
    pub(super) sums: Vec<Sixteen>,
}

impl Int8 {
    /// Rounds `x`, `[tokens, cols]`, for products with matrices of this codec.
    ///
    /// # Panics
    /// If `x` has another length.
    #[must_use]
    pub fn new(isa: Isa, codec: Codec, x: &[f32], tokens: usize, cols: usize) -> Self {
        assert_eq!(Some(x.len()), tokens.checked_mul(cols), "activations of {tokens} tokens and {cols} columns");
        let (planes_each, supers) = (Self::planes_of(codec, cols), cols.div_ceil(GROUP * GROUPS));
        let mut this = Self {
            codec,
            tokens,
            cols,
            planes: vec![Plane([0; BLOCK]); tokens * planes_each],
            scales: vec![Sixteen([0.0; GROUPS]); tokens * supers],
            sums: vec![Sixteen([0.0; GROUPS]); tokens * supers],
        };
        if cols > 0 {
            compiled_for(isa, Rounding { x, cols, codec, planes_each, supers, to: &mut this });
        }
        this
    }

    /// Planes of a token.
    pub(super) fn planes_of(codec: Codec, cols: usize) -> usize {
        codec.code_bytes(cols).div_ceil(BLOCK) * planes(codec)
    }

    /// The codec whose matrices these multiply.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Columns.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }
}

struct Rounding<'a> {
    x: &'a [f32],
    cols: usize,
    codec: Codec,
    planes_each: usize,
    supers: usize,
    to: &'a mut Int8,
}

impl Compiled for Rounding<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { x, cols, codec, planes_each, supers, to } = self;
        for (t, row) in x.chunks_exact(cols).enumerate() {
            let planes = &mut to.planes[t * planes_each..][..planes_each];
            let scales = &mut to.scales[t * supers..][..supers];
            let sums = &mut to.sums[t * supers..][..supers];
            for (g, group) in row.chunks(GROUP).enumerate() {
                let (scale, sum) = match codec {
                    Codec::Q2 => round::<4>(group, g, planes),
                    Codec::Q4 => round::<2>(group, g, planes),
                    Codec::Q8 => round::<1>(group, g, planes),
                };
                scales[g / GROUPS].0[g % GROUPS] = scale;
                sums[g / GROUPS].0[g % GROUPS] = sum;
            }
        }
    }
}

/// Rounds group `g` into `PLANES` planes of its block; gives `d` and `d sum q`.
#[inline(always)]
fn round<const PLANES: usize>(group: &[f32], g: usize, planes: &mut [Plane]) -> (f32, f32) {
    let mut x = [0.0f32; GROUP];
    x[..group.len()].copy_from_slice(group);
    let mut lanes = [0.0f32; 16];
    let mut finite = true;
    for part in x.as_chunks::<16>().0 {
        for (lane, v) in lanes.iter_mut().zip(part) {
            *lane = if v.abs() > *lane { v.abs() } else { *lane };
            finite &= v.is_finite();
        }
    }
    let most = lanes.iter().fold(0.0f32, |most, v| if *v > most { *v } else { most });
    if !finite {
        return (f32::NAN, f32::NAN);
    }
    let scale = most / 127.0;
    // Below the least normal number a quotient would leave the range: such a group is zeros.
    if scale < f32::MIN_POSITIVE {
        return (0.0, 0.0);
    }
    let inverse = 1.0 / scale;
    let mut q = [0i8; GROUP];
    let mut sum = 0i32;
    for (q, v) in q.iter_mut().zip(&x) {
        // Adding 1.5 * 2^23 leaves the nearest whole number, ties to even, in the lowest bits.
        let bits = (v * inverse + 12_582_912.0).to_bits() as i32 - 0x4B40_0000;
        *q = bits.clamp(-127, 127) as i8;
        sum += i32::from(*q);
    }
    // A byte of codes has `PLANES` neighbouring columns, a block of 64 bytes as many groups.
    let width = GROUP / PLANES;
    let at = g % PLANES * width;
    let block = &mut planes[g / PLANES * PLANES..][..PLANES];
    for (i, byte) in q.as_chunks::<PLANES>().0.iter().enumerate() {
        for (plane, q) in block.iter_mut().zip(byte) {
            plane.0[at + i] = *q;
        }
    }
    (scale, scale * sum as f32)
}
