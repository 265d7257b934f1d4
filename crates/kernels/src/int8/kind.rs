//! The codecs as the integer products see them.

use super::activations::Plane;
use super::lanes::Ints;
use super::tile::BLOCK;
use smoe_codec::Codec;

/// Codes in a byte: planes of activations to a block of codes, and groups in one.
pub(super) const fn planes(codec: Codec) -> usize {
    match codec {
        Codec::Q2 => 4,
        Codec::Q4 => 2,
        Codec::Q8 => 1,
    }
}

/// A codec.
pub(super) trait Kind {
    const PLANES: usize;
    /// What is taken from each code.
    const OFFSET: f32;
    /// What the whole is multiplied by.
    const FACTOR: f32;
    /// A block's codes, unpacked.
    type Codes<L: Ints>: Copy;

    fn unpack<L: Ints>(ints: L, block: &[u8; BLOCK]) -> Self::Codes<L>;
    fn dot<L: Ints>(ints: L, codes: &Self::Codes<L>, x: &[Plane]) -> L::I;
}

pub(super) struct Q2;
pub(super) struct Q4;
pub(super) struct Q8;

impl Kind for Q2 {
    const PLANES: usize = 4;
    const OFFSET: f32 = 1.5;
    const FACTOR: f32 = 1.0 / 1.5;
    type Codes<L: Ints> = [L::C; 4];

    #[inline(always)]
    fn unpack<L: Ints>(ints: L, block: &[u8; BLOCK]) -> [L::C; 4] {
        ints.pairs(block)
    }

    #[inline(always)]
    fn dot<L: Ints>(ints: L, codes: &[L::C; 4], x: &[Plane]) -> L::I {
        ints.dot_planes(codes, x.first_chunk().expect("four planes"))
    }
}

impl Kind for Q4 {
    const PLANES: usize = 2;
    const OFFSET: f32 = 7.5;
    const FACTOR: f32 = 1.0 / 7.5;
    type Codes<L: Ints> = [L::C; 2];

    #[inline(always)]
    fn unpack<L: Ints>(ints: L, block: &[u8; BLOCK]) -> [L::C; 2] {
        ints.nibbles(block)
    }

    #[inline(always)]
    fn dot<L: Ints>(ints: L, codes: &[L::C; 2], x: &[Plane]) -> L::I {
        ints.dot_planes(codes, x.first_chunk().expect("two planes"))
    }
}

impl Kind for Q8 {
    const PLANES: usize = 1;
    const OFFSET: f32 = 0.0;
    const FACTOR: f32 = 1.0;
    type Codes<L: Ints> = L::C;

    #[inline(always)]
    fn unpack<L: Ints>(ints: L, block: &[u8; BLOCK]) -> L::C {
        ints.bytes(block)
    }

    #[inline(always)]
    fn dot<L: Ints>(ints: L, codes: &L::C, x: &[Plane]) -> L::I {
        ints.dot_signed(*codes, &x[0])
    }
}
