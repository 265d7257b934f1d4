//! Rows that only ever grow: keys, values, latents. Memory comes in chunks, so that a session costs what it uses and
//! nothing is copied when it grows.

/// Rows in a chunk.
const CHUNK: usize = 128;

/// A growing `[len, width]` array.
pub(super) struct Rows {
    width: usize,
    len: usize,
    chunks: Vec<Box<[f32]>>,
}

impl Rows {
    pub(super) fn new(width: usize) -> Self {
        Self { width, len: 0, chunks: Vec::new() }
    }

    /// Appends whole rows.
    pub(super) fn extend(&mut self, values: &[f32]) {
        for row in values.chunks_exact(self.width) {
            let (chunk, at) = (self.len / CHUNK, self.len % CHUNK);
            if chunk == self.chunks.len() {
                self.chunks.push(vec![0.0; CHUNK * self.width].into());
            }
            self.chunks[chunk][at * self.width..(at + 1) * self.width].copy_from_slice(row);
            self.len += 1;
        }
    }

    /// Rows `from .. to`.
    pub(super) fn range(&self, from: usize, to: usize) -> impl Iterator<Item = &[f32]> {
        debug_assert!(to <= self.len);
        (from / CHUNK..to.div_ceil(CHUNK)).flat_map(move |chunk| {
            let (first, last) = (from.max(chunk * CHUNK), to.min((chunk + 1) * CHUNK));
            let start = first - chunk * CHUNK;
            self.chunks[chunk][start * self.width..(start + last - first) * self.width].chunks_exact(self.width)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_chunks() {
        let mut rows = Rows::new(2);
        let all: Vec<f32> = (0..2 * (2 * CHUNK + 5)).map(|i| i as f32).collect();
        rows.extend(&all[..6]);
        rows.extend(&all[6..]);
        for (from, to) in
            [(0, 2 * CHUNK + 5), (CHUNK - 1, CHUNK + 1), (3, 3), (CHUNK, 2 * CHUNK), (2 * CHUNK, 2 * CHUNK + 1)]
        {
            let got: Vec<f32> = rows.range(from, to).flatten().copied().collect();
            assert_eq!(got, all[2 * from..2 * to], "{from}..{to}");
        }
    }
}
