//! Calibrated conversions on whole checkpoints: bytes, records, resumes.

use serde_json::Value;
use smoe_codec::Codec;
use smoe_gate::{SHINGLES_SECTION, Shingles};
use smoe_quantize::calibrate::{Arm, Solver};
use smoe_quantize::capture::{CalibrationText, TextKind};
use smoe_quantize::convert::{Calibration, QuantizeOptions, quantize};
use smoe_quantize::synth::{self, Overrides, SynthOptions};
use smoe_quantize::{Control, random::SplitMix64};
use smoe_vault::VaultFile;
use std::fs;
use std::path::{Path, PathBuf};

fn checkpoint(folder: &Path, shape: &str) -> PathBuf {
    let target = folder.join(shape);
    let options = SynthOptions { shape: shape.into(), overrides: Overrides::default(), seed: 1, force: false };
    synth::checkpoint(&target, &options, &Control::silent()).expect("a synthetic checkpoint");
    target
}

/// Random rows below id 200.
fn text(rows: usize, len: usize) -> CalibrationText {
    let mut random = SplitMix64::new(5, 0, 0);
    let mut row = || (0..len).map(|_| (random.next_u64() % 200) as u32).collect::<Vec<u32>>();
    CalibrationText { name: "text".into(), kind: TextKind::Windows, rows: (0..rows).map(|_| row()).collect() }
}

fn options(codec: Codec, text: CalibrationText) -> QuantizeOptions {
    QuantizeOptions { calibration: Some(Calibration::new(text)), ..QuantizeOptions::new(codec) }
}

#[test]
fn the_vault_says_of_every_matrix_how_it_was_made() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for shape in ["tiny", "tiny-odd"] {
        let source = checkpoint(folder.path(), shape);
        let text = text(20, 60);
        let vault = folder.path().join(format!("{shape}.vault"));
        let report =
            quantize(&source, &vault, &options(Codec::Q2, text.clone()), &Control::silent()).expect("calibrated");
        assert_eq!((report.calibrated_tensors, report.rtn_tensors), (72, 0));
        assert!(smoe_vault::verify(&vault, &mut |_, _| ()).expect("readable").is_empty());
        let file = VaultFile::open(&vault).expect("a vault");
        let experts = &file.manifest().provenance["experts"];
        assert_eq!(
            (experts["method"].as_str(), experts["calibrated_tensors"].as_u64()),
            (Some("calibrated"), Some(72))
        );
        let tensors = experts["tensors"].as_array().expect("a list");
        assert_eq!(tensors.len(), 72);
        let number = |tensor: &Value, key: &str| tensor[key].as_f64().unwrap_or_else(|| panic!("{key} of {tensor}"));
        for tensor in tensors {
            assert_eq!(tensor["made"], "calibrated");
            assert!(number(tensor, "codes_differ") > 0.0, "{tensor}");
            assert!(number(tensor, "error") < number(tensor, "rtn_error"), "{tensor}");
            assert!(number(tensor, "held_out_rtn_error") > 0.0 && number(tensor, "tokens_per_column") >= 0.0);
        }
        let seen: u64 = tensors.iter().filter_map(|t| t["tokens"].as_u64()).sum();
        assert_eq!(seen, 3 * 3 * 2 * 1200, "three matrices of three layers, two experts a token");
        let shingles = file.section(SHINGLES_SECTION).expect("readable").expect("there is one");
        let shingles = Shingles::from_bytes(&shingles).expect("shingles");
        assert_eq!(shingles, Shingles::of_rows(text.rows.iter().map(Vec::as_slice)));
    }
}

#[test]
fn the_bytes_do_not_depend_on_threads_or_on_where_hidden_states_lie() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny");
    let mut vaults = Vec::new();
    for (threads, hidden_bytes) in [(1, u64::MAX), (3, u64::MAX), (2, 0)] {
        let mut options = options(Codec::Q4, text(40, 64));
        options.threads = Some(threads);
        options.calibration.as_mut().expect("there is one").hidden_bytes = hidden_bytes;
        let vault = folder.path().join(format!("{threads}.vault"));
        let report = quantize(&source, &vault, &options, &Control::silent()).expect("calibrated");
        assert_eq!(report.calibration.expect("a report").plan.spilled, hidden_bytes == 0);
        vaults.push(fs::read(vault).expect("a vault"));
    }
    assert!(vaults[0] == vaults[1], "one thread and three");
    assert!(vaults[0] == vaults[2], "memory and file");
}

/// Expert bytes and everything that the vault says of its making.
fn made(source: &Path, target: &Path, options: &QuantizeOptions) -> (Vec<u8>, Value) {
    quantize(source, target, options, &Control::silent()).expect("converted");
    let file = VaultFile::open(target).expect("a vault");
    let blobs = file.experts().iter().flat_map(|record| file.read_blob(record).expect("a blob")).collect();
    (blobs, file.manifest().provenance["options"].clone())
}

/// A documented option that nothing reads is worse than none: each changes the experts' bytes, and is recorded.
#[test]
fn every_option_changes_the_bytes_and_is_recorded() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny");
    let documents = CalibrationText { kind: TextKind::Documents, ..text(20, 64) };
    let plain = || {
        let mut options = options(Codec::Q2, CalibrationText { kind: TextKind::Documents, ..text(20, 64) });
        options.calibration.as_mut().expect("there is one").tokens = Some(640);
        options
    };
    type Change = fn(&mut QuantizeOptions, &mut Calibration);
    let changes: [(&str, Change); 7] = [
        ("codec", |options, _| options.codec = Codec::Q4),
        ("seed", |options, _| options.seed = 1),
        ("tokens", |_, how| how.tokens = Some(1024)),
        ("only gate-up", |_, how| how.arm = Arm::GateUp),
        ("only down", |_, how| how.arm = Arm::Down),
        ("solver", |_, how| how.solver = Solver::GptqPlain),
        ("text", |_, how| how.text.rows.iter_mut().for_each(|row| row.reverse())),
    ];
    let mut seen = vec![("nothing", made(&source, &folder.path().join("plain"), &plain()))];
    let repeated = made(&source, &folder.path().join("again"), &plain());
    assert!(seen[0].1 == repeated, "the same question has the same answer");
    for (name, change) in changes {
        let (mut options, mut how) =
            (plain(), Calibration { tokens: Some(640), ..Calibration::new(documents.clone()) });
        change(&mut options, &mut how);
        options.calibration = Some(how);
        seen.push((name, made(&source, &folder.path().join(name), &options)));
    }
    let none = QuantizeOptions { calibration: None, ..plain() };
    seen.push(("no calibration", made(&source, &folder.path().join("none"), &none)));
    for (i, (name, (bytes, says))) in seen.iter().enumerate() {
        for (other, (others_bytes, other_says)) in &seen[..i] {
            assert!(bytes != others_bytes, "{name} and {other}: the same bytes");
            assert_ne!(says, other_says, "{name} and {other}: the same record");
        }
    }
    assert_eq!(seen[2].1.1["seed"], 1, "the seed that was given, and no other");
    assert_eq!(seen[0].1.1["calibration"]["instruction_set"], smoe_kernels::Isa::detect().name());
}

/// Only the same job is continued: a partial vault is refused to any other, and stays.
#[test]
fn other_inputs_do_not_continue_a_calibration() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny");
    let plain = || options(Codec::Q2, text(20, 60));
    let (whole, vault) = (folder.path().join("whole"), folder.path().join("v"));
    quantize(&source, &whole, &plain(), &Control::silent()).expect("calibrated");
    let cancel = AtomicBool::new(false);
    let progress = |step: smoe_quantize::Progress| {
        cancel.fetch_or(step.phase == "written", Ordering::Relaxed);
    };
    let control = Control { progress: &progress, cancel: &cancel, ..Control::silent() };
    quantize(&source, &vault, &plain(), &control).expect_err("stopped behind the first layer");
    type Change = fn(&mut QuantizeOptions, &mut Calibration);
    let changes: [(&str, Change); 6] = [
        ("tokens", |_, how| how.tokens = Some(600)),
        ("arm", |_, how| how.arm = Arm::Down),
        ("solver", |_, how| how.solver = Solver::GptqPlain),
        ("text", |_, how| how.text.rows[3][3] += 1),
        ("seed", |options, _| options.seed = 1),
        ("codec", |options, _| options.codec = Codec::Q4),
    ];
    for (name, change) in changes {
        let (mut options, mut how) = (plain(), Calibration::new(text(20, 60)));
        change(&mut options, &mut how);
        options.calibration = Some(how);
        options.presence.resume = true;
        let refused = quantize(&source, &vault, &options, &Control::silent()).expect_err("another job").to_string();
        assert!(refused.contains("other options or sources"), "{name}: {refused}");
    }
    let mut same = plain();
    same.presence.resume = true;
    assert!(quantize(&source, &vault, &same, &Control::silent()).expect("continued").resumed);
    assert!(fs::read(vault).expect("a vault") == fs::read(whole).expect("a vault"), "other bytes");
}
