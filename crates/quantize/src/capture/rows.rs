//! [`Rows`]: hidden states of all tokens, in memory or in a temporary file that no name leads to.

use crate::error::{QuantizeError, Result};
use smoe_model::positional::read_exact_at;
use std::borrow::Cow;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// `[rows, width]` f32 values.
pub(crate) struct Rows {
    width: usize,
    place: Place,
}

enum Place {
    Memory(Vec<f32>),
    File { file: File, folder: PathBuf },
}

impl Rows {
    /// Zeros in memory.
    pub(crate) fn in_memory(rows: usize, width: usize) -> Self {
        Self { width, place: Place::Memory(vec![0.0; rows * width]) }
    }

    /// Zeros in a temporary file of `folder`.
    pub(crate) fn in_file(rows: usize, width: usize, folder: &Path) -> Result<Self> {
        let make = || {
            let file = tempfile::tempfile_in(folder)?;
            file.set_len(4 * rows as u64 * width as u64)?;
            Ok(file)
        };
        let file = make().map_err(QuantizeError::io(folder, "put hidden states into it"))?;
        Ok(Self { width, place: Place::File { file, folder: folder.to_owned() } })
    }

    /// Consecutive rows.
    pub(crate) fn range(&self, rows: Range<usize>) -> Result<Cow<'_, [f32]>> {
        match &self.place {
            Place::Memory(values) => Ok(Cow::Borrowed(&values[rows.start * self.width..rows.end * self.width])),
            Place::File { file, folder } => {
                let mut bytes = vec![0; 4 * rows.len() * self.width];
                read_exact_at(file, 4 * (rows.start * self.width) as u64, &mut bytes)
                    .map_err(QuantizeError::io(folder, "read hidden states back from it"))?;
                Ok(Cow::Owned(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()))
            }
        }
    }

    /// Some rows, one after the other.
    pub(crate) fn gather(&self, rows: &[u32]) -> Result<Vec<f32>> {
        let mut out = Vec::with_capacity(rows.len() * self.width);
        for &row in rows {
            out.extend_from_slice(&self.range(row as usize..row as usize + 1)?);
        }
        Ok(out)
    }

    /// Overwrites rows from `first` on.
    pub(crate) fn set(&mut self, first: usize, values: &[f32]) -> Result<()> {
        let at = first * self.width;
        match &mut self.place {
            Place::Memory(all) => all[at..at + values.len()].copy_from_slice(values),
            Place::File { file, folder } => {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let written = file.seek(SeekFrom::Start(4 * at as u64)).and_then(|_| file.write_all(&bytes));
                written.map_err(QuantizeError::io(folder, "put hidden states into it"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_what_memory_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut both = [Rows::in_memory(5, 3), Rows::in_file(5, 3, folder.path()).expect("a file")];
        for rows in &mut both {
            rows.set(1, &[1.0, -2.5, f32::MIN_POSITIVE, 4.0, 5.0, 6.0]).expect("written");
            rows.set(4, &[7.0, 8.0, 9.0]).expect("written");
            assert_eq!(&*rows.range(0..3).expect("read"), [0.0, 0.0, 0.0, 1.0, -2.5, f32::MIN_POSITIVE, 4.0, 5.0, 6.0]);
            assert_eq!(rows.gather(&[4, 2]).expect("read"), [7.0, 8.0, 9.0, 4.0, 5.0, 6.0]);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "no name leads to it");
    }
}
