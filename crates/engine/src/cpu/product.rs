//! Matrix products on packed rows: who works on which rows, over one thread's kernel.

use super::Cpu;

use super::Activations;
use crate::experts::{Expert, Part};
use rayon::prelude::*;
use smoe_codec::{Codec, half};
use smoe_kernels::{Data, Int8, Isa, Matrix as View, matmul, matmul_int8};
use smoe_model::role::Proj;
use smoe_model::store::{Dtype, Tensor, q8_scales_at};
use std::ops::Range;

/// Multiply-adds below which a task is not worth a thread's attention (about 5 us).
const TASK: usize = 1 << 16;

/// A stored tensor as the kernels see it.
///
/// # Panics
/// If the tensor's bytes do not have the length that its shape says, which its maker guarantees.
pub(super) fn view(tensor: &Tensor) -> View<'_> {
    let (rows, cols, bytes) = (tensor.rows, tensor.cols, tensor.bytes.as_slice());
    let data = match tensor.dtype {
        Dtype::Q8 => {
            let (codes, scales) = bytes.split_at(q8_scales_at(rows, cols));
            Data::Coded { codec: Codec::Q8, codes: &codes[..rows * cols], scales }
        }
        plain => dense(plain, bytes),
    };
    View::new(rows, cols, data).expect("a tensor's bytes match its shape")
}

/// An expert's matrix as the kernels see it.
///
/// # Panics
/// If the layout does not fit the bytes, which its maker guarantees.
pub(super) fn expert_view(expert: &Expert, proj: Proj) -> View<'_> {
    let bytes = (*expert.bytes).as_ref();
    let (rows, cols) = expert.shape(proj);
    let data = match expert.part(proj) {
        Part::Dense { dtype, at } => dense(*dtype, &bytes[at.clone()]),
        Part::Coded { codec, codes, scales } => {
            Data::Coded { codec: *codec, codes: &bytes[codes.clone()], scales: &bytes[scales.clone()] }
        }
    };
    View::new(rows, cols, data).expect("an expert's layout matches its shape")
}

fn dense(dtype: Dtype, bytes: &[u8]) -> Data<'_> {
    match dtype {
        Dtype::Bf16 => Data::Bf16(bytes),
        Dtype::F16 => Data::F16(bytes),
        Dtype::F32 => Data::F32(bytes),
        Dtype::Q8 => unreachable!("codes are not plain numbers"),
    }
}

impl Cpu {
    /// Rows in a task: enough tasks for every thread, none too small.
    pub(super) fn rows_per_task(&self, rows: usize, cols: usize, n: usize) -> usize {
        let least = TASK.div_ceil((cols * n).max(1));
        rows.div_ceil(self.threads() * 4).max(least).clamp(1, rows.max(1)).next_multiple_of(4)
    }

    /// `out[t, r] = view[r] . x[t]`, `x` `[n, cols]`, `out` `[n, rows]`.
    pub(super) fn product(&self, view: &View<'_>, x: &[f32], n: usize, out: &mut [f32]) {
        let rows = view.rows();
        if n == 1 {
            return self.rows_product(view, x, 1, out);
        }
        let mut by_row = vec![0.0; rows * n];
        self.rows_product(view, x, n, &mut by_row);
        transpose(&by_row, rows, n, out);
    }

    /// `out[r, t] = view[r] . x[t]`.
    fn rows_product(&self, view: &View<'_>, x: &[f32], n: usize, out: &mut [f32]) {
        let rounded = self.rounded(view, x, n);
        let x = Tokens::of(rounded.as_ref(), x, n);
        let block = self.rows_per_task(view.rows(), view.cols(), n);
        if block >= view.rows() {
            return x.product(self.isa(), view, 0..view.rows(), out);
        }
        out.par_chunks_mut(block * n).enumerate().for_each(|(i, out)| {
            let first = i * block;
            x.product(self.isa(), view, first..first + out.len() / n, out);
        });
    }
}

impl Cpu {
    /// `x` `[n, cols]` in eight bits, where this backend has its activations so and the matrix is coded.
    pub(super) fn rounded(&self, view: &View<'_>, x: &[f32], n: usize) -> Option<Int8> {
        match (self.activations, view.data()) {
            (Activations::Int8, Data::Coded { codec, .. }) => Some(Int8::new(self.isa(), codec, x, n, view.cols())),
            _ => None,
        }
    }
}

/// The tokens of a product.
#[derive(Clone, Copy)]
pub(super) enum Tokens<'a> {
    F32(&'a [f32], usize),
    Int8(&'a Int8),
}

impl<'a> Tokens<'a> {
    /// The rounded ones where there are any.
    pub(super) fn of(rounded: Option<&'a Int8>, x: &'a [f32], n: usize) -> Self {
        rounded.map_or(Self::F32(x, n), Self::Int8)
    }

    /// `out[r, t]` for some rows of the matrix.
    pub(super) fn product(self, isa: Isa, view: &View<'_>, rows: Range<usize>, out: &mut [f32]) {
        match self {
            Self::F32(x, n) => matmul(isa, view, rows, x, n, out),
            Self::Int8(x) => matmul_int8(isa, view, rows, x, out),
        }
    }
}

/// `[rows, n]` to `[n, rows]`, in tiles that stay in the nearest cache.
pub(super) fn transpose(x: &[f32], rows: usize, n: usize, out: &mut [f32]) {
    const TILE: usize = 16;
    if rows == 0 || n == 0 {
        return;
    }
    out.par_chunks_mut(rows * TILE).enumerate().for_each(|(i, out)| {
        let (first, tokens) = (i * TILE, out.len() / rows);
        for r0 in (0..rows).step_by(TILE) {
            for t in 0..tokens {
                let out = &mut out[t * rows + r0..(t * rows + r0 + TILE).min(t * rows + rows)];
                for (r, out) in out.iter_mut().enumerate() {
                    *out = x[(r0 + r) * n + first + t];
                }
            }
        }
    });
}

/// Row `r` of a matrix, widened to f32.
///
/// # Panics
/// If there is no such row, or `out` is not as wide as the matrix.
pub(super) fn decode_row(view: &View<'_>, r: usize, out: &mut [f32]) {
    let cols = view.cols();
    let row = |width: usize| r * width..(r + 1) * width;
    match view.data() {
        Data::Bf16(bytes) => {
            let pairs = bytes[row(2 * cols)].as_chunks::<2>().0;
            out.iter_mut().zip(pairs).for_each(|(o, b)| *o = half::bf16_to_f32(u16::from_le_bytes(*b)));
        }
        Data::F16(bytes) => {
            let pairs = bytes[row(2 * cols)].as_chunks::<2>().0;
            out.iter_mut().zip(pairs).for_each(|(o, b)| *o = half::f16_to_f32(u16::from_le_bytes(*b)));
        }
        Data::F32(bytes) => {
            let quads = bytes[row(4 * cols)].as_chunks::<4>().0;
            out.iter_mut().zip(quads).for_each(|(o, b)| *o = f32::from_le_bytes(*b));
        }
        Data::Coded { codec, codes, scales } => {
            let (codes, scales) = (&codes[row(codec.code_bytes(cols))], &scales[row(codec.scale_bytes(cols))]);
            smoe_codec::decode_row(codec, codes, scales, out);
        }
    }
}
