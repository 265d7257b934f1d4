//! A vault of version 3 that is kept for ever, with a damaged twin: whatever changes here, they must read as they do now.
//!
//! They were written by `small::write` once. A new format version adds a pair of its own; this one is never rewritten
//! (`SMOE_WRITE_GOLDEN=1` writes it only where it is missing).

mod small;

use smoe_vault::{FaultKind, Place, VaultFile, verify};
use std::path::{Path, PathBuf};

/// A code of the second expert.
const DAMAGED_AT: usize = 33_000;

fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    if !path.exists() && std::env::var_os("SMOE_WRITE_GOLDEN").is_some() {
        let mut bytes = small::bytes();
        if name.contains("damaged") {
            bytes[DAMAGED_AT] ^= 0x20;
        }
        std::fs::write(&path, bytes).expect("room");
    }
    path
}

#[test]
fn version_3_reads_for_ever() {
    let path = fixture("v3.vault");
    assert_eq!(verify(&path, &mut |_, _| ()).expect("readable"), []);
    let vault = VaultFile::open(&path).expect("a vault");
    let manifest = vault.manifest();
    assert_eq!((&manifest.spec, &manifest.provenance), (&small::contents().spec, &small::contents().provenance));
    assert_eq!(vault.section("config.json").expect("whole").as_deref(), Some(small::CONFIG));
    let names: Vec<_> = manifest.trunk.iter().map(|t| (t.name.as_str(), t.dtype.name(), t.shape.clone())).collect();
    let expected = [
        ("model.embed_tokens.weight", "BF16", vec![3, 40]),
        ("model.norm.weight", "F32", vec![1]),
        ("lm_head.weight", "Q8", vec![3, 65]),
        ("conv", "F16", vec![4, 1, 3]),
    ];
    assert_eq!(names, expected);
    // Sums of the codes of gate, and the first scale and bias: what a reader gets out, as numbers.
    let facts: Vec<_> = vault.experts().iter().map(|record| gate_facts(&vault, record)).collect();
    assert_eq!(facts, GATE_FACTS);
}

/// Layer, expert, sum of gate's code bytes, bits of its first scale, first byte of its bias.
type Facts = (u32, u32, u64, u16, Option<u8>);

const GATE_FACTS: [Facts; 3] =
    [(1, 0, 27614, 13720, Some(224)), (1, 1, 62557, 14292, Some(120)), (3, 7, 82668, 13771, None)];

fn gate_facts(vault: &VaultFile, record: &smoe_vault::ExpertRecord) -> Facts {
    let (parts, blob) = (record.layout().expect("checked"), vault.read_blob(record).expect("whole"));
    let sum = blob[parts.codes(0)].iter().map(|&b| u64::from(b)).sum();
    let scale = &blob[parts.scales(0)];
    let bias = parts.bias(0).map(|b| blob[b][0]);
    (record.layer, record.expert, sum, u16::from_le_bytes([scale[0], scale[1]]), bias)
}

#[test]
fn its_damaged_twin_is_found() {
    let path = fixture("v3-damaged.vault");
    let faults = verify(&path, &mut |_, _| ()).expect("readable");
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].place, Place::Expert { layer: 1, expert: 1 });
    assert!(matches!(faults[0].kind, FaultKind::Damaged { .. }), "{}", faults[0]);
    let vault = VaultFile::open(&path).expect("header, manifest and table are whole");
    let read = vault.experts().iter().map(|record| vault.read_blob(record).is_ok()).collect::<Vec<_>>();
    assert_eq!(read, [true, false, true]);
}

#[test]
fn the_checksum_is_xxh3() {
    assert_eq!(smoe_vault::checksum(b""), 0x2d06_8005_38d3_94c2);
}
