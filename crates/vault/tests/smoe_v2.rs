//! S-MoE version 2: round trips of a hand-made file, and of the public script's files where they are beside the
//! repository.

mod small;

use smoe_vault::Existing;
use smoe_vault::smoe_v2::{ArchBlock, ExpertShape, Index, SmoeFile, SmoeWriter, new_header};
use std::path::{Path, PathBuf};

const TINY: &[u8] = include_bytes!("fixtures/tiny.q4.smoe");

/// Reads a file into header, block, codes and scales, and writes it again.
fn copy(from: &Path, to: &Path) {
    let file = SmoeFile::open(from).expect("an S-MoE file");
    file.check_reproducible().expect("laid out as the script does");
    let shape =
        |e: &smoe_vault::smoe_v2::Part| ExpertShape { layer: e.layer, expert: e.expert, width: e.tensors[0].rows };
    let shapes: Vec<_> = file.index().experts.iter().map(shape).collect();
    // Through JSON, as in a vault's provenance.
    let json = serde_json::to_string(&(file.index().header, file.index().arch)).expect("JSON");
    let (header, arch) = serde_json::from_str(&json).expect("own JSON");
    let index = Index::build(header, arch, &shapes).expect("a layout");
    let mut writer = SmoeWriter::create(to, index, Existing::Refuse).expect("room");
    for number in 0..shapes.len() {
        let expert = file.read_expert(number).expect("a blob");
        let parts = [0, 1, 2].map(|proj| (expert.codes(proj), expert.scales(proj)));
        writer.write_expert(number, parts).expect("room");
    }
    writer.finish().expect("whole");
}

fn check_copy(from: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("copy.smoe");
    copy(from, &to);
    assert!(std::fs::read(from).expect("a file") == std::fs::read(to).expect("a copy"), "{} differs", from.display());
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny.q4.smoe")
}

#[test]
fn the_tiny_file_round_trips() {
    check_copy(&fixture());
    let file = SmoeFile::open(&fixture()).expect("an S-MoE file");
    let arch = file.index().arch.expect("a block");
    assert_eq!((arch.model_type(), arch.moe_ffn, file.index().header.ffn_dim), (Some("tiny"), 64, 999));
    assert!(file.index().rows_are_whole_groups());
}

#[test]
fn the_public_files_round_trip() {
    let shared = std::env::var_os("SMOE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    for name in ["moe-3m-qwen3.q2.smoe", "moe-3m-qwen3.q4.smoe"] {
        let path = shared.join("interop/s-moe").join(name);
        if path.exists() {
            check_copy(&path);
            println!("{name}: ran");
        } else {
            println!("{name}: not beside the repository, left out");
        }
    }
}

#[test]
fn a_new_file_is_laid_out_alike() {
    let shapes = [(1, 0), (1, 1)].map(|(layer, expert)| ExpertShape { layer, expert, width: 64 });
    let header = new_header(4, 64, 10, &shapes).expect("two experts");
    let index = Index::build(header, None, &shapes);
    assert!(index.is_err(), "the header promises a block");
    let tiny = SmoeFile::open(&fixture()).expect("an S-MoE file");
    let arch: Option<ArchBlock> = tiny.index().arch;
    let index = Index::build(header, arch, &shapes).expect("a layout");
    assert_eq!(index.experts, tiny.index().experts);
    assert_eq!(index.header.arch_block_offset, tiny.index().header.arch_block_offset);
}

#[test]
fn cuts_and_mutations_are_errors_or_harmless() {
    let open = |bytes: &[u8]| {
        let file = SmoeFile::from_drive(Box::new(small::Memory::of(bytes)), "tiny")?;
        let _ = file.check_reproducible();
        (0..file.index().experts.len()).try_for_each(|n| file.read_expert(n).map(drop))
    };
    open(TINY).expect("whole");
    for cut in (0..600).chain(16380..16390).chain(TINY.len() - 20..TINY.len()) {
        assert!(open(&TINY[..cut]).is_err(), "cut at {cut}");
    }
    let mut rng = small::Rng(7);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut bytes = TINY.to_vec();
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(560);
            bytes[at] = [0, 1, 0x7f, 0xff, rng.next() as u8][rng.below(5)];
        }
        refused += usize::from(open(&bytes).is_err());
    }
    assert!(refused > 10_000, "{refused}");
}
