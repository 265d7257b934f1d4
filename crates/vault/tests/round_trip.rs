//! What is written is read back, from a file; every flipped byte is found and named.

mod small;

use smoe_vault::{Place, VaultFile, record_verdict, verify};

#[test]
fn everything_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.vault");
    small::write(&path);
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("own folder").collect();
    assert_eq!(left.len(), 1, "partial file and journal are gone: {left:?}");

    let vault = VaultFile::open(&path).expect("a vault");
    assert_eq!(vault.manifest().spec, small::contents().spec);
    assert_eq!(vault.section("config.json").expect("whole").as_deref(), Some(small::CONFIG));
    assert_eq!(vault.section("empty").expect("whole").as_deref(), Some(&[][..]));
    assert_eq!(vault.section("other").expect("none"), None);
    for (i, tensor) in vault.manifest().trunk.iter().enumerate() {
        let expected = small::trunk_bytes(i);
        let mut whole = vec![0; expected.len()];
        vault.read_trunk(&tensor.name, 0, &mut whole).expect("whole");
        assert_eq!(whole, expected);
        let mut part = vec![0; 3];
        VaultFile::open(&path).expect("a vault").read_trunk(&tensor.name, 1, &mut part).expect("whole");
        assert_eq!(part, expected[1..4]);
        assert!(vault.read_trunk(&tensor.name, 2, &mut whole).is_err(), "beyond the end");
    }
    for (i, shape) in small::EXPERTS.iter().enumerate() {
        let record = vault.expert(shape.layer, shape.expert).expect("written");
        assert_eq!(record.codecs, shape.codecs);
        assert_eq!(vault.read_blob(record).expect("whole"), small::blob(i));
    }
    assert!(vault.expert(0, 0).is_none());
    assert_eq!(verify(&path, &mut |_, _| ()).expect("readable"), []);
}

/// Flips every byte of a vault at the given places, and says which part each fault names.
fn check_every_flip(bytes: &[u8], places: impl Iterator<Item = usize>) {
    use smoe_vault::verify_drive;
    let drive = small::Memory::of(bytes);
    assert_eq!(verify_drive(&drive, &mut |_, _| ()), []);
    let index = VaultFile::from_drive(Box::new(small::Memory::of(bytes)), "v").expect("a vault").index().clone();
    let named = |place: &Place, at: u64| {
        let within = |offset: u64, length: u64| at >= offset && at < offset + length;
        match place {
            Place::Header => within(0, 64),
            Place::Manifest => within(index.header.manifest_offset, index.header.manifest_length),
            Place::ExpertTable => within(index.manifest.experts.offset, index.manifest.experts.length),
            Place::Section(name) => {
                index.manifest.sections.iter().any(|s| s.name == *name && within(s.offset, s.length))
            }
            Place::Trunk(name) => index.manifest.trunk.iter().any(|t| t.name == *name && within(t.offset, t.length)),
            Place::Expert { layer, expert } => {
                index.expert(*layer, *expert).is_some_and(|r| within(r.offset, r.length))
            }
            Place::RetiredManifest(i) => index.manifest.retired.get(*i).is_some_and(|r| within(r.offset, r.length)),
            Place::PaddingBefore(_) => regions(&index).iter().all(|r| !within(r.offset, r.length)),
            _ => false,
        }
    };
    for at in places {
        drive.flip(at, 1 << (at % 8));
        let faults = verify_drive(&drive, &mut |_, _| ());
        assert!(faults.len() == 1 && named(&faults[0].place, at as u64), "byte {at}: {faults:?}");
        drive.flip(at, 1 << (at % 8));
    }
}

#[test]
fn every_flipped_byte_is_found_and_named() {
    let mut bytes = small::bytes();
    check_every_flip(&bytes, 0..bytes.len());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.vault");
    std::fs::write(&path, &bytes).expect("room");
    for verdict in ["fail", "pass"] {
        record_verdict(&path, serde_json::json!({"verdict": verdict})).expect("room");
    }
    let old = std::mem::replace(&mut bytes, std::fs::read(&path).expect("own vault"));
    assert_eq!(old[64..], bytes[64..old.len()], "blobs and the old manifest stay");
    let vault = VaultFile::open(&path).expect("a vault");
    assert_eq!(vault.manifest().verdict, Some(serde_json::json!({"verdict": "pass"})));
    assert_eq!(vault.manifest().provenance, small::contents().provenance);
    assert_eq!(vault.manifest().retired.len(), 2);
    check_every_flip(&bytes, (0..64).chain(old.len() - 64..bytes.len()));
}

fn regions(index: &smoe_vault::VaultIndex) -> Vec<smoe_vault::Region> {
    let manifest = &index.manifest;
    let mut all = vec![manifest.experts];
    all.extend(manifest.sections.iter().map(smoe_vault::Section::region));
    all.extend(manifest.trunk.iter().map(smoe_vault::TrunkTensor::region));
    all.extend(index.experts.iter().map(smoe_vault::ExpertRecord::region));
    all.extend(&manifest.retired);
    all
}
