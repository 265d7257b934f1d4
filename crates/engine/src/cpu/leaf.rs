//! Stand-in for `smoe_kernels` until it lands: same names, scalar.
use crate::math::dot;
use smoe_codec::{Codec, half};
use std::ops::Range;

#[derive(Clone, Copy)]
pub(super) enum Data<'a> {
    Bf16(&'a [u8]),
    F16(&'a [u8]),
    F32(&'a [u8]),
    Coded { codec: Codec, codes: &'a [u8], scales: &'a [u8] },
}

pub(super) struct View<'a> {
    rows: usize,
    cols: usize,
    data: Data<'a>,
}

impl<'a> View<'a> {
    pub(super) fn new(rows: usize, cols: usize, data: Data<'a>) -> Result<Self, String> {
        Ok(Self { rows, cols, data })
    }
    pub(super) fn rows(&self) -> usize {
        self.rows
    }
    pub(super) fn cols(&self) -> usize {
        self.cols
    }
}

pub(super) fn decode_row(m: &View<'_>, r: usize, out: &mut [f32]) {
    let c = m.cols;
    match m.data {
        Data::Bf16(b) => {
            for (o, b) in out.iter_mut().zip(b[r * c * 2..(r + 1) * c * 2].as_chunks::<2>().0) {
                *o = half::bf16_to_f32(u16::from_le_bytes(*b));
            }
        }
        Data::F16(b) => {
            for (o, b) in out.iter_mut().zip(b[r * c * 2..(r + 1) * c * 2].as_chunks::<2>().0) {
                *o = half::f16_to_f32(u16::from_le_bytes(*b));
            }
        }
        Data::F32(b) => {
            for (o, b) in out.iter_mut().zip(b[r * c * 4..(r + 1) * c * 4].as_chunks::<4>().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
        Data::Coded { codec, codes, scales } => {
            let (cb, sb) = (codec.code_bytes(c), codec.scale_bytes(c));
            smoe_codec::decode_row(codec, &codes[r * cb..(r + 1) * cb], &scales[r * sb..(r + 1) * sb], out);
        }
    }
}

pub(super) fn matmul(m: &View<'_>, rows: Range<usize>, x: &[f32], n: usize, out: &mut [f32]) {
    let mut w = vec![0.0; m.cols];
    for (r, out) in rows.zip(out.chunks_exact_mut(n)) {
        decode_row(m, r, &mut w);
        for (x, o) in x.chunks_exact(m.cols).zip(out) {
            *o = dot(&w, x);
        }
    }
}
