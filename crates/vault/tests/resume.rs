//! Interrupted conversions: a snapshot of the folder is what a kill would have left.

mod small;

use small::{contents, fill, layout, options};
use smoe_vault::{Existing, FaultKind, Start, Unit, VaultWriter, WriteOptions};
use std::path::Path;

const NAME: &str = "small.vault";

fn create(folder: &Path, start: Start) -> VaultWriter {
    VaultWriter::create(&folder.join(NAME), layout(), options(Existing::Refuse, start)).expect("room")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("own folder");
    let mut names: Vec<_> = entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The folder as a kill at this moment would leave it.
fn snapshot(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for name in names(folder) {
        std::fs::copy(folder.join(&name), copy.path().join(&name)).expect("room");
    }
    copy
}

fn finish_and_compare(folder: &Path, expected: &[u8], case: &str) {
    assert!(!folder.join(NAME).exists(), "{case}: nothing under the final name");
    let writer = create(folder, Start::Resume);
    assert!(fill(&writer, usize::MAX));
    writer.finish(contents()).expect("whole");
    assert!(std::fs::read(folder.join(NAME)).expect("own vault") == expected, "{case}: other bytes");
    assert_eq!(names(folder), [NAME], "{case}");
}

#[test]
fn killed_after_any_part_it_ends_in_the_same_bytes() {
    let expected = small::bytes();
    let folder = tempfile::tempdir().expect("a folder");
    let writer = create(folder.path(), Start::Fresh);
    for parts in 0..=10 {
        let killed = snapshot(folder.path());
        finish_and_compare(killed.path(), &expected, &format!("after {parts} parts"));
        fill(&writer, 1);
    }
    let mut sink = writer.trunk_sink(0);
    sink.write(&[9; 5]).expect("room");
    finish_and_compare(snapshot(folder.path()).path(), &expected, "while a part is written again");
}

#[test]
fn a_journal_cut_at_any_byte_is_continued() {
    let expected = small::bytes();
    let folder = tempfile::tempdir().expect("a folder");
    let writer = create(folder.path(), Start::Fresh);
    fill(&writer, 9);
    let journal = std::fs::read(folder.path().join("small.vault.journal")).expect("a journal");
    for cut in (0..journal.len()).step_by(37) {
        let killed = snapshot(folder.path());
        std::fs::write(killed.path().join("small.vault.journal"), &journal[..cut]).expect("room");
        finish_and_compare(killed.path(), &expected, &format!("cut at {cut}"));
    }
}

#[test]
fn a_journaled_part_that_is_not_on_the_drive_is_written_again() {
    let expected = small::bytes();
    let folder = tempfile::tempdir().expect("a folder");
    let writer = create(folder.path(), Start::Fresh);
    fill(&writer, 8);
    for lost in [layout().trunk()[0].offset, layout().experts()[0].offset + 70] {
        let killed = snapshot(folder.path());
        let partial = killed.path().join("small.vault.partial");
        let mut bytes = std::fs::read(&partial).expect("a partial file");
        bytes[lost as usize] ^= 1;
        std::fs::write(&partial, bytes).expect("room");
        finish_and_compare(killed.path(), &expected, "one byte lost");
        let cut = snapshot(folder.path());
        std::fs::File::options()
            .write(true)
            .open(cut.path().join("small.vault.partial"))
            .expect("a partial file")
            .set_len(lost)
            .expect("room");
        finish_and_compare(cut.path(), &expected, "cut short");
    }
}

#[test]
fn notes_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = create(folder.path(), Start::Fresh);
    fill(&writer, 8);
    drop(writer);
    assert_eq!(names(folder.path()), ["small.vault.journal", "small.vault.partial"]);
    let writer = create(folder.path(), Start::Resume);
    assert_eq!(writer.note(Unit::Expert(0)), Some(serde_json::json!({"expert": 0})));
    assert_eq!(writer.note(Unit::Expert(1)), None);
    writer.discard();
    assert!(names(folder.path()).is_empty());
}

#[test]
fn refusals_before_any_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(NAME);
    let create = |existing, start, fingerprint: &str| {
        let options = WriteOptions { existing, start, fingerprint: fingerprint.into() };
        VaultWriter::create(&path, layout(), options)
    };
    let refusal = |result: Result<VaultWriter, smoe_vault::VaultError>| match result {
        Ok(_) => panic!("not refused"),
        Err(error) => error.to_string(),
    };
    // Dropped before anything is written: nothing stays.
    drop(create(Existing::Refuse, Start::Fresh, "a").expect("room"));
    assert!(names(folder.path()).is_empty());

    let writer = create(Existing::Refuse, Start::Fresh, "a").expect("room");
    fill(&writer, 2);
    assert!(refusal(create(Existing::Refuse, Start::Resume, "a")).contains("another process is writing it"));
    assert!(refusal(writer.finish(contents()).map(|_| unreachable!())).contains("it was not written"));
    assert!(refusal(create(Existing::Refuse, Start::Resume, "b")).contains("other options or sources"));
    assert_eq!(names(folder.path()).len(), 2, "what can be resumed stays");

    std::fs::write(&path, b"mine").expect("room");
    let error = create(Existing::Refuse, Start::Fresh, "a").err().expect("taken");
    assert_eq!(error.fault.kind, FaultKind::Exists);
    let writer = create(Existing::Replace, Start::Fresh, "a").expect("room");
    assert_eq!(std::fs::read(&path).expect("a file"), b"mine", "until the end");
    fill(&writer, usize::MAX);
    writer.finish(contents()).expect("whole");
    assert!(std::fs::read(&path).expect("a vault") == small::bytes());

    let missing = folder.path().join("none").join(NAME);
    let error = VaultWriter::create(&missing, layout(), options(Existing::Refuse, Start::Fresh)).err();
    assert!(error.expect("no folder").to_string().contains("cannot create the file"));
    let error = VaultWriter::create(folder.path(), layout(), options(Existing::Replace, Start::Fresh)).err();
    assert!(error.expect("a folder").to_string().contains("no ordinary file"));
}

#[test]
fn too_little_room_is_said_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut builder = smoe_vault::Layout::builder();
    builder.trunk("huge", smoe_vault::Dtype::F32, &[1 << 50]);
    let layout = builder.build().expect("4 PiB");
    let error = VaultWriter::create(&folder.path().join(NAME), layout, options(Existing::Refuse, Start::Fresh)).err();
    let message = error.expect("no such drive").to_string();
    assert!(message.contains("expected 4096.0 TiB free on its drive, found "), "{message}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn bad_parts_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let writer = create(folder.path(), Start::Fresh);
    let message = |result: Result<(), smoe_vault::VaultError>| result.expect_err("refused").to_string();
    assert!(message(writer.write_section(0, b"x")).contains("section `config.json`: its layout has"));
    let mut blob = small::blob(0);
    *blob.last_mut().expect("padding") = 1;
    assert!(message(writer.write_expert(0, &blob, serde_json::Value::Null)).contains("layer 1 expert 0: padding byte"));
    for (bad, proj) in [(0x7E00u16, "gate"), (0x7C00, "up"), (0x8001, "down")] {
        let (at, mut blob) = (["gate", "up", "down"].iter().position(|name| *name == proj), small::blob(0));
        let parts = writer.layout().experts()[0].layout().expect("a small expert");
        blob[parts.scales(at.expect("a projection"))][2..4].copy_from_slice(&bad.to_le_bytes());
        let said = message(writer.write_expert(0, &blob, serde_json::Value::Null));
        assert!(said.contains(&format!("layer 1 expert 0: {proj} scale 1 is negative or not finite")), "{said}");
    }
    let mut sink = writer.trunk_sink(1);
    assert!(message(sink.write(&[0; 5])).contains("trunk tensor `model.norm.weight`"));
    assert!(message(sink.finish(serde_json::Value::Null)).contains("0 B were to be written"));
}
