//! Rows that only ever grow: keys, values, latents. Memory comes in chunks, so that a session costs what it uses and
//! nothing is copied when it grows.

/// Positions in a chunk: whole groups of the kernels, so that a chunk is a matrix without a short tail.
pub(super) const CHUNK: usize = 128;

/// A growing `[len, heads * width]` array, held by chunks `[heads, CHUNK, width]`: a head's part of a chunk is a
/// matrix. What is not filled yet is zero.
pub(super) struct Rows {
    heads: usize,
    width: usize,
    len: usize,
    chunks: Vec<Box<[f32]>>,
}

impl Rows {
    pub(super) fn new(heads: usize, width: usize) -> Self {
        Self { heads, width, len: 0, chunks: Vec::new() }
    }

    /// Appends whole rows `[n, heads * width]`.
    pub(super) fn extend(&mut self, values: &[f32]) {
        for row in values.chunks_exact(self.heads * self.width) {
            let (chunk, at) = (self.len / CHUNK, self.len % CHUNK);
            if chunk == self.chunks.len() {
                self.chunks.push(vec![0.0; self.heads * CHUNK * self.width].into());
            }
            for (head, values) in row.chunks_exact(self.width).enumerate() {
                let start = (head * CHUNK + at) * self.width;
                self.chunks[chunk][start..start + self.width].copy_from_slice(values);
            }
            self.len += 1;
        }
    }

    /// Columns of a head.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// A head's rows `i * CHUNK .. (i + 1) * CHUNK`, `[CHUNK, width]`.
    pub(super) fn chunk(&self, i: usize, head: usize) -> &[f32] {
        let size = CHUNK * self.width;
        &self.chunks[i][head * size..(head + 1) * size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_by_head_and_the_rest_is_zero() {
        let mut rows = Rows::new(2, 3);
        let all: Vec<f32> = (0..6 * (CHUNK + 2)).map(|i| i as f32 + 1.0).collect();
        rows.extend(&all[..12]);
        rows.extend(&all[12..]);
        for position in [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1] {
            for head in 0..2 {
                let at = position % CHUNK * 3;
                let want = &all[position * 6 + head * 3..][..3];
                assert_eq!(&rows.chunk(position / CHUNK, head)[at..at + 3], want, "{position}, head {head}");
            }
        }
        assert!(rows.chunk(1, 1)[6..].iter().all(|x| *x == 0.0));
    }
}
