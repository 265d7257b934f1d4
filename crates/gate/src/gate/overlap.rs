//! Evaluation text that is calibration text is left out.

use smoe_vault::VaultFile;

use crate::error::GateError;
use crate::shingles::{SHINGLES_SECTION, Shingles};
use crate::windows::Windows;

/// A document with a larger share of its shingles in the calibration text is left out.
pub(crate) const DOCUMENT_SHARE: f64 = 0.20;
/// More of the tokens left out refuse the run.
pub(crate) const TOKEN_SHARE: f64 = 0.05;

/// What was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Dropped {
    pub(crate) documents: usize,
    pub(crate) tokens: usize,
}

/// The shingles of a vault's calibration text, where it has some.
pub(crate) fn of_vault(file: &VaultFile) -> Result<Option<Shingles>, GateError> {
    let Some(bytes) = file.section(SHINGLES_SECTION)? else { return Ok(None) };
    let shingles = Shingles::from_bytes(&bytes);
    shingles.map(Some).map_err(|fault| GateError::input(file.name(), format!("section {SHINGLES_SECTION}: {fault}")))
}

/// `windows` without the documents that overlap `calibration`.
///
/// # Errors
/// [`GateError::Overlap`] where that leaves out too many tokens.
pub(crate) fn without(windows: &Windows, calibration: &Shingles) -> Result<(Windows, Dropped), GateError> {
    let mut counts = vec![(0, 0, 0); windows.documents()];
    for row in 0..windows.rows() {
        let (known, all) = calibration.count(windows.row(row));
        let count = &mut counts[windows.document(row)];
        *count = (count.0 + known, count.1 + all, count.2 + windows.row(row).len() - 1);
    }
    let keep: Vec<bool> = counts.iter().map(|(known, all, _)| *known as f64 <= DOCUMENT_SHARE * *all as f64).collect();
    let gone = || keep.iter().zip(&counts).filter(|(keep, _)| !**keep);
    let dropped = Dropped { documents: gone().count(), tokens: gone().map(|(_, (_, _, tokens))| tokens).sum() };
    let refused = || GateError::Overlap {
        file: windows.source().to_owned(),
        dropped_documents: dropped.documents,
        documents: windows.documents(),
        dropped_tokens: dropped.tokens,
        tokens: windows.tokens(),
        most_percent: 100.0 * TOKEN_SHARE,
    };
    if dropped.tokens as f64 > TOKEN_SHARE * windows.tokens() as f64 {
        return Err(refused());
    }
    let kept = windows.of_documents(&keep).ok_or_else(refused)?;
    Ok((kept, dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents of two rows of 80 ids; document d starts at 1000 d.
    fn windows(documents: u32) -> Windows {
        let rows: Vec<Vec<u32>> =
            (0..2 * documents).map(|row| (1000 * (row / 2) + 100 * (row % 2)..).take(80).collect()).collect();
        let document: Vec<i32> = (0..2 * documents as i32).map(|row| row / 2).collect();
        Windows::from_rows("made up", &rows, &document).expect("rows")
    }

    #[test]
    fn overlapping_documents_are_dropped_and_counted() {
        let windows = windows(40);
        // 17 shingles a row: 7 of 34 are 21 %, 6 are 18 %.
        let ids = |from: u32, count: u32| -> Vec<u32> { (from..from + count).collect() };
        let calibration = Shingles::of_rows([&ids(3000, 70)[..], &ids(5100, 69)[..]]);
        let (kept, dropped) = without(&windows, &calibration).expect("one of forty");
        assert_eq!(dropped, Dropped { documents: 1, tokens: 158 });
        assert_eq!((kept.documents(), kept.rows(), kept.tokens()), (39, 78, 39 * 158));
        assert_eq!((kept.row(6)[0], kept.document(6), kept.label(3)), (4000, 3, "document 4"));
        let nothing = without(&windows, &Shingles::default()).expect("no overlap");
        assert_eq!((nothing.0, nothing.1), (windows, Dropped::default()));
    }

    #[test]
    fn too_much_of_it_refuses_the_run() {
        let windows = windows(40);
        let calibration = Shingles::of_rows((0..6).map(|row| windows.row(row)));
        let error = without(&windows, &calibration).expect_err("three of forty").to_string();
        assert!(error.contains("3 of 40 documents (474 of 6320 tokens)") && error.contains("at most 5 %"), "{error}");
        let all = Shingles::of_rows((0..80).map(|row| windows.row(row)));
        assert!(without(&windows, &all).is_err());
    }
}
