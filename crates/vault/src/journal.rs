//! The journal: which parts of a partial vault are written, with their checksums and the caller's notes.
//!
//! One line a record: 16 hexadecimal digits, the XXH3-64 of the rest, a space, JSON. A line that a kill cut short, and
//! all after it, are ignored. A record does not promise that its part is on the medium: on resume each part is read
//! and compared, which is cheaper than a sync for each of thousands of experts and also finds other damage.

use crate::assembly::Unit;
use crate::checksum;
use crate::fault::FaultKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// Longest journal that is read: 16 Mi experts with short notes.
const MAX_BYTES: u64 = 4 << 30;

/// The first line: what the partial file will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) journal: u32,
    pub(crate) fingerprint: String,
    pub(crate) layout: String,
}

/// A further line: a part is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    unit: (Kind, usize),
    checksum: String,
    note: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Section,
    Trunk,
    Expert,
}

/// A finished part, from a journal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) unit: Unit,
    pub(crate) checksum: u64,
    pub(crate) note: Value,
}

/// A journal open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    /// Starts a new journal.
    pub(crate) fn create(path: &Path, opening: &Opening) -> io::Result<Self> {
        let mut journal = Self { file: File::create(path)? };
        journal.append(&json(opening)?)?;
        Ok(journal)
    }

    /// Opens a journal and reads it; `None` where its first line is not whole.
    pub(crate) fn open(path: &Path) -> io::Result<Option<(Self, Opening, Vec<Entry>)>> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let mut bytes = Vec::new();
        (&file).take(MAX_BYTES).read_to_end(&mut bytes)?;
        let (opening, entries, whole) = parse(&bytes);
        let Some(opening) = opening else { return Ok(None) };
        file.set_len(whole as u64)?;
        Ok(Some((Self { file }, opening, entries)))
    }

    /// Notes a part.
    pub(crate) fn record(&mut self, unit: Unit, checksum: u64, note: Value) -> Result<(), FaultKind> {
        let unit = match unit {
            Unit::Section(i) => (Kind::Section, i),
            Unit::Trunk(i) => (Kind::Trunk, i),
            Unit::Expert(i) => (Kind::Expert, i),
        };
        let line = Line { unit, checksum: format!("{checksum:016x}"), note };
        let text = json(&line).and_then(|text| self.append(&text));
        text.map_err(|e| FaultKind::io("write the journal", &e))
    }

    fn append(&mut self, json: &str) -> io::Result<()> {
        // One call, so that lines of several threads cannot mix and a kill cuts at most the last.
        self.file.write_all(format!("{:016x} {json}\n", checksum(json.as_bytes())).as_bytes())
    }
}

fn json<T: Serialize>(value: &T) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::other)
}

/// The opening, the whole lines after it, and how many bytes they take.
fn parse(bytes: &[u8]) -> (Option<Opening>, Vec<Entry>, usize) {
    let (mut opening, mut entries, mut whole) = (None, Vec::new(), 0);
    for line in bytes.split_inclusive(|&b| b == b'\n') {
        let Some(json) = checked(line) else { break };
        if opening.is_none() {
            match serde_json::from_slice::<Opening>(json) {
                Ok(found) if found.journal == 1 => opening = Some(found),
                _ => break,
            }
        } else {
            let Some(entry) = serde_json::from_slice::<Line>(json).ok().and_then(entry) else { break };
            entries.push(entry);
        }
        whole += line.len();
    }
    (opening, entries, whole)
}

/// The JSON of a whole line.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, json) = (line.get(..16)?, line.get(16..)?.strip_prefix(b" ")?);
    (format!("{:016x}", checksum(json)).as_bytes() == sum).then_some(json)
}

fn entry(line: Line) -> Option<Entry> {
    let unit = match line.unit {
        (Kind::Section, i) => Unit::Section(i),
        (Kind::Trunk, i) => Unit::Trunk(i),
        (Kind::Expert, i) => Unit::Expert(i),
    };
    Some(Entry { unit, checksum: u64::from_str_radix(&line.checksum, 16).ok()?, note: line.note })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_or_a_flip_at_any_byte_loses_only_what_follows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let opening = Opening { journal: 1, fingerprint: "f".into(), layout: "l".into() };
        let mut journal = Journal::create(&path, &opening).expect("a journal");
        for i in 0..3 {
            journal.record(Unit::Expert(i), 7 + i as u64, serde_json::json!({"tokens": i})).expect("a record");
        }
        let bytes = std::fs::read(&path).expect("own journal");
        let (_, all, whole) = parse(&bytes);
        assert_eq!((all.len(), whole), (3, bytes.len()));
        for cut in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[cut] ^= 1;
            for damaged in [&bytes[..cut], &flipped] {
                let (opening, entries, whole) = parse(damaged);
                assert!(whole <= cut, "cut {cut}");
                assert!(opening.is_some() || entries.is_empty());
                assert_eq!(entries, all[..entries.len()], "cut {cut}");
                assert!(entries.len() < 3);
            }
        }
    }

    #[test]
    fn it_continues_behind_the_last_whole_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let opening = Opening { journal: 1, fingerprint: "f".into(), layout: "l".into() };
        let mut journal = Journal::create(&path, &opening).expect("a journal");
        journal.record(Unit::Trunk(4), 1, Value::Null).expect("a record");
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(&path).expect("own journal");
        file.write_all(b"0123456789abcdef {\"unit\":[\"expe").expect("a cut line");
        let (mut journal, found, entries) = Journal::open(&path).expect("a journal").expect("whole");
        assert_eq!((found, entries.len()), (opening, 1));
        journal.record(Unit::Section(0), 2, Value::Null).expect("a record");
        let (_, _, entries) = Journal::open(&path).expect("a journal").expect("whole");
        assert_eq!(entries.iter().map(|e| e.unit).collect::<Vec<_>>(), [Unit::Trunk(4), Unit::Section(0)]);
    }
}
