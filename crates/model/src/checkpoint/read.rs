//! Ranges of weights as f32, whatever their format, in bounded memory.

use super::encoded::Encoded;
use super::header::FileDtype;
use super::shards::{Located, Shards};
use crate::formats;
use crate::role::ExpertView;
use crate::store::{Dtype, StoreError};

/// Elements in memory at a time: with their bytes, 2 MiB.
const CHUNK: usize = 1 << 18;

/// A weight to read from: its `cols` are the last axis of the decoded tensor.
pub(crate) struct Weight<'a> {
    pub(crate) shards: &'a Shards,
    pub(crate) encoded: Encoded<'a>,
    pub(crate) cols: usize,
}

impl Weight<'_> {
    /// Fills `out` with the elements from `start` on, in row-major order.
    pub(crate) fn read(&self, start: usize, out: &mut [f32]) -> Result<(), StoreError> {
        for (i, part) in out.chunks_mut(CHUNK).enumerate() {
            self.read_chunk(start + i * CHUNK, part)?;
        }
        Ok(())
    }

    fn read_chunk(&self, start: usize, out: &mut [f32]) -> Result<(), StoreError> {
        match self.encoded {
            Encoded::Plain { tensor, dtype } => self.plain(tensor, dtype, start, out),
            Encoded::Fp8 { tensor, scale, block } => self.fp8([tensor, scale], block, start, out),
            Encoded::Mxfp4 { blocks, scales } => self.mxfp4(blocks, scales, start, out),
            Encoded::Int4 { packed, scale, group, .. } => self.int4(packed, scale, group, start, out),
        }
    }

    fn plain(&self, tensor: &Located, dtype: Dtype, start: usize, out: &mut [f32]) -> Result<(), StoreError> {
        let size = dtype.bytes(1, 1);
        let mut bytes = vec![0; out.len() * size];
        self.shards.read(tensor, (start * size) as u64, &mut bytes)?;
        formats::decode_plain(dtype, &bytes, out);
        Ok(())
    }

    fn fp8(
        &self,
        [tensor, scale]: [&Located; 2],
        (block_rows, block_cols): (usize, usize),
        start: usize,
        out: &mut [f32],
    ) -> Result<(), StoreError> {
        let mut bytes = vec![0; out.len()];
        self.shards.read(tensor, start as u64, &mut bytes)?;
        let table = formats::e4m3_table();
        let rows = tensor.entry.shape.iter().rev().nth(1).copied().unwrap_or(1).max(1);
        let scale_cols = self.cols.div_ceil(block_cols);
        let (mut scales, mut of_row) = (vec![0.0; scale_cols], usize::MAX);
        let mut at = 0;
        while at < out.len() {
            let (row, col) = ((start + at) / self.cols, (start + at) % self.cols);
            let scale_row = row / rows * rows.div_ceil(block_rows) + row % rows / block_rows;
            if of_row != scale_row {
                self.any(scale, scale_row * scale_cols, &mut scales)?;
                of_row = scale_row;
            }
            let run = (self.cols - col).min(out.len() - at);
            for (i, (o, byte)) in out[at..at + run].iter_mut().zip(&bytes[at..at + run]).enumerate() {
                *o = table[usize::from(*byte)] * scales[(col + i) / block_cols];
            }
            at += run;
        }
        Ok(())
    }

    fn mxfp4(&self, blocks: &Located, scales: &Located, start: usize, out: &mut [f32]) -> Result<(), StoreError> {
        let group = formats::MXFP4_GROUP;
        let (first, end) = (start / group, (start + out.len()).div_ceil(group));
        let (mut codes, mut exponents) = (vec![0; (end - first) * 16], vec![0; end - first]);
        self.shards.read(blocks, (first * 16) as u64, &mut codes)?;
        self.shards.read(scales, first as u64, &mut exponents)?;
        let mut skip = start % group;
        let mut values = [0.0; 32];
        let mut at = 0;
        for (codes, exponent) in codes.as_chunks::<16>().0.iter().zip(exponents) {
            formats::mxfp4_block(codes, exponent, &mut values);
            let run = (group - skip).min(out.len() - at);
            out[at..at + run].copy_from_slice(&values[skip..skip + run]);
            (at, skip) = (at + run, 0);
        }
        Ok(())
    }

    fn int4(
        &self,
        packed: &Located,
        scale: &Located,
        group: usize,
        start: usize,
        out: &mut [f32],
    ) -> Result<(), StoreError> {
        let group = if group == 0 { self.cols } else { group };
        let (words, groups) = (self.cols.div_ceil(8), self.cols.div_ceil(group));
        let (mut bytes, mut scales) = (vec![0; words * 4], vec![0.0; groups]);
        let mut at = 0;
        while at < out.len() {
            let (row, col) = ((start + at) / self.cols, (start + at) % self.cols);
            self.shards.read(packed, (row * words * 4) as u64, &mut bytes)?;
            self.any(scale, row * groups, &mut scales)?;
            let run = (self.cols - col).min(out.len() - at);
            for (i, o) in out[at..at + run].iter_mut().enumerate() {
                let (word, lane) = ((col + i) / 8, (col + i) % 8);
                let word = u32::from_le_bytes(bytes.as_chunks::<4>().0[word]);
                *o = formats::int4_word(word)[lane] * scales[(col + i) / group];
            }
            at += run;
        }
        Ok(())
    }

    /// Scales, in whichever plain type.
    fn any(&self, tensor: &Located, start: usize, out: &mut [f32]) -> Result<(), StoreError> {
        self.plain(tensor, formats::plain(&tensor.entry.dtype).unwrap_or(Dtype::F32), start, out)
    }

    /// Reads rows `first ..` of one expert's matrix of `cols` columns through its view.
    pub(crate) fn read_view(
        &self,
        view: &ExpertView,
        expert: usize,
        (first, cols): (usize, usize),
        out: &mut [f32],
    ) -> Result<(), StoreError> {
        let base = view.offset + expert * view.expert_stride + first * view.row_stride;
        if view.col_stride == 1 && view.row_stride == cols {
            return self.read(base, out);
        }
        // The strided lines of one axis at a time, as many as fit, with what lies between them.
        let rows = out.len() / cols;
        let by_rows = view.col_stride <= view.row_stride;
        let (outer, stride, inner, step) = if by_rows {
            (rows, view.row_stride, cols, view.col_stride)
        } else {
            (cols, view.col_stride, rows, view.row_stride)
        };
        let line = (inner - 1) * step + 1;
        // Lines far apart are read one by one.
        let lines = if stride > 8 * line { 1 } else { (CHUNK / stride).max(1) };
        let mut buffer = Vec::new();
        for at in (0..outer).step_by(lines) {
            let n = lines.min(outer - at);
            buffer.resize((n - 1) * stride + line, 0.0);
            self.read(base + at * stride, &mut buffer)?;
            for o in 0..n {
                for i in 0..inner {
                    let (r, c) = if by_rows { (at + o, i) } else { (i, at + o) };
                    out[r * cols + c] = buffer[o * stride + i * step];
                }
            }
        }
        Ok(())
    }

    /// The shape that a packed weight says it has must be the one that is read.
    pub(crate) fn check_packed_shape(&self, rows: usize) -> Result<(), StoreError> {
        let Encoded::Int4 { shape, .. } = self.encoded else { return Ok(()) };
        let wide = shape.entry.dtype != FileDtype::I32;
        let mut bytes = vec![0; if wide { 16 } else { 8 }];
        self.shards.read(shape, 0, &mut bytes)?;
        let found: Vec<i64> = match wide {
            true => bytes.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
            false => bytes.as_chunks::<4>().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect(),
        };
        if found == [rows as i64, self.cols as i64] {
            return Ok(());
        }
        let fault = format!("says {found:?}, expected [{rows}, {}]; the file is damaged", self.cols);
        Err(StoreError { file: self.shards.file_of(shape).into(), item: shape.entry.name.to_string(), fault })
    }
}
