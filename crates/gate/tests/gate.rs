//! Verdicts on forged vaults of a small model: pass, fail, inconclusive, and for each check a fault that trips it.

mod forge;
mod pages;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use forge::{Forge, calibrated, golden, random_rows, rtn, shared};
use serde_json::json;
use smoe_codec::Codec;
use smoe_gate::{
    Check, Control, GateError, GateOptions, Making, Report, SHINGLES_SECTION, Shingles, Subjects, Verdict, Windows,
    gate,
};

/// Ids of a row: long enough for several shingles and two chunks.
const LEN: usize = 72;

fn windows() -> Windows {
    let (rows, documents) = random_rows(128, 24, 2, LEN);
    Windows::from_rows("made up", &rows, &documents).expect("rows")
}

/// Shingles of a text that is not the evaluation text.
fn foreign() -> Vec<u8> {
    Shingles::of_rows([&(0..500).collect::<Vec<u32>>()[..]]).to_bytes()
}

fn judge(candidate: &Path, baseline: Option<&Path>) -> Result<Report, GateError> {
    judge_on(candidate, baseline, &windows(), &lenient())
}

/// Random weights do not survive two bits as trained ones do: the codecs' bounds are not theirs.
fn lenient() -> GateOptions {
    GateOptions { threads: 2, max_kld: Some(10.0), ..GateOptions::default() }
}

fn judge_on(
    candidate: &Path,
    baseline: Option<&Path>,
    windows: &Windows,
    options: &GateOptions,
) -> Result<Report, GateError> {
    let reference = golden();
    let subjects = Subjects { candidate, reference: &reference, baseline };
    let mut control = Control { progress: &mut |_| (), cancel: &AtomicBool::new(false) };
    gate(subjects, windows, options, &mut control)
}

fn check<'a>(report: &'a Report, name: &str) -> &'a Check {
    let found = report.checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("no check {name}: {:?}", report.checks))
}

/// The names of the checks that did not pass.
fn open(report: &Report) -> Vec<&str> {
    report.checks.iter().filter(|check| !check.pass).map(|check| check.name.as_str()).collect()
}

/// A calibrated vault, as far as the gate can know.
fn claimed(codec: Codec) -> Forge<'static> {
    Forge::of(&golden(), codec).saying(calibrated()).with_section(SHINGLES_SECTION, foreign())
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A baseline that is easy to beat: rounded with scales that are too large.
    fn poor_baseline(&self) -> PathBuf {
        Forge::of(&golden(), Codec::Q2).edited(|_, matrix| matrix.rescale(1.5)).write(self.path(), "poor")
    }
}

#[test]
fn a_vault_that_beats_its_baseline_passes_every_check() {
    let scratch = Scratch::new();
    let report = judge(&claimed(Codec::Q2).write(scratch.path(), "good"), Some(&scratch.poor_baseline()));
    let report = report.expect("judged");
    assert_eq!(open(&report), [""; 0], "{:#?}", report.checks);
    assert_eq!((report.verdict, report.made), (Verdict::Pass, Making::Calibrated));
    assert!(report.difference.is_some_and(|it| it.kld_interval.is_some_and(|[_, high]| high < 0.0)));
    assert_eq!((report.experts.total, report.experts.reached, report.experts.compared_with_baseline), (10, 10, 30));
    assert!(report.baseline.is_some() && report.given.is_none());
    let worst = report.worst_tensor.as_ref().expect("a worst matrix");
    assert!(worst.error > 0.0 && worst.baseline_error.is_some_and(|twin| twin > worst.error), "{worst:?}");
    let candidate = report.candidate.measures.as_ref().expect("measured");
    assert!(candidate.kld_median <= candidate.kld && candidate.kld <= candidate.kld_p99);
    assert!(candidate.kld_p99 <= candidate.kld_max);
    assert_eq!(
        candidate.flips,
        report.text.tokens as u64 - (candidate.top1 * report.text.tokens as f64).round() as u64
    );
    let kld = report.documents.iter().map(|it| it.candidate.kld).sum::<f64>() / report.text.tokens as f64;
    assert!((kld - candidate.kld).abs() < 1e-12);
}

#[test]
fn a_vault_that_loses_to_the_twin_made_on_the_spot_fails() {
    let scratch = Scratch::new();
    let worse = claimed(Codec::Q2).edited(|_, matrix| matrix.rescale(1.5)).write(scratch.path(), "worse");
    let report = judge(&worse, None).expect("judged");
    assert_eq!((report.verdict, open(&report)), (Verdict::Fail, vec!["better_than_baseline"]), "{:#?}", report.checks);
    let names: Vec<_> = std::fs::read_dir(scratch.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["worse"], "the twin is gone");
    // The twin is what the converter writes: a baseline that is given says the same.
    let given = Forge::of(&golden(), Codec::Q2).write(scratch.path(), "rtn");
    let again = judge(&worse, Some(&given)).expect("judged");
    assert_eq!((again.difference, &again.documents), (report.difference, &report.documents));
}

#[test]
fn a_difference_that_the_text_cannot_tell_is_inconclusive() {
    let scratch = Scratch::new();
    let same = claimed(Codec::Q4).edited(|_, matrix| matrix.nudge()).write(scratch.path(), "same");
    let report = judge(&same, None).expect("judged");
    assert_eq!(open(&report), ["better_than_baseline"], "{:#?}", report.checks);
    assert_eq!(report.verdict, Verdict::Inconclusive);
    assert_eq!(report.to_json()["verdict"], "inconclusive");
    // One document has no interval: it cannot tell either, however large the difference.
    let (rows, _) = random_rows(128, 1, 2, LEN);
    let one = Windows::from_rows("one", &rows, &[3, 3]).expect("rows");
    let good = claimed(Codec::Q2).write(scratch.path(), "good");
    let report = judge_on(&good, Some(&scratch.poor_baseline()), &one, &lenient()).expect("judged");
    assert_eq!((report.verdict, open(&report)), (Verdict::Inconclusive, vec!["better_than_baseline"]));
}

#[test]
fn a_vault_that_is_rounded_throughout_is_held_against_the_bounds_and_says_so() {
    let scratch = Scratch::new();
    for (provenance, making, words) in
        [(rtn(), Making::Rtn, "uncalibrated"), (json!({}), Making::Unrecorded, "unrecorded making")]
    {
        let vault = Forge::of(&golden(), Codec::Q4).saying(provenance).write(scratch.path(), "plain");
        let report = judge(&vault, None).expect("judged");
        assert_eq!((report.verdict, report.made, open(&report).len()), (Verdict::Pass, making, 0));
        assert!(report.summary.contains(words), "{}", report.summary);
        assert!(report.baseline.is_none() && report.difference.is_none());
        assert!(report.notes.iter().any(|note| note.contains("absolute bounds alone")), "{:?}", report.notes);
        let strict = GateOptions { max_kld: Some(1e-9), ..GateOptions::default() };
        let strict = judge_on(&vault, None, &windows(), &strict).expect("judged");
        assert!(strict.verdict == Verdict::Fail && open(&strict).contains(&"kld"), "{:?}", open(&strict));
    }
}

#[test]
fn a_conversion_that_did_nothing_fails_by_bytes_and_by_scores() {
    let scratch = Scratch::new();
    let nothing = judge(&claimed(Codec::Q2).write(scratch.path(), "nothing"), None).expect("judged");
    let failed = ["tensors_differ_from_baseline", "scores_differ_from_baseline", "better_than_baseline"];
    assert_eq!((nothing.verdict, open(&nothing)), (Verdict::Fail, failed.to_vec()));
    assert_eq!(check(&nothing, failed[0]).value, Some(30.0));
    assert_eq!(nothing.difference.and_then(|it| it.kld_interval), Some([0.0, 0.0]));

    // One layer overwritten by round-to-nearest; the other is different.
    let layer = claimed(Codec::Q2)
        .edited(|at, matrix| {
            if at.0 == 0 {
                matrix.nudge();
            }
        })
        .write(scratch.path(), "one-layer");
    let layer = judge(&layer, None).expect("judged");
    let found = check(&layer, failed[0]);
    assert!(found.value == Some(15.0) && found.what.contains("layer 1 expert 0 gate"), "{found:?}");
    assert_eq!(layer.verdict, Verdict::Fail);
}

#[test]
fn what_is_recorded_as_rounded_must_be() {
    let scratch = Scratch::new();
    let entry = |expert: usize, made: &str| json!({"layer": 1, "expert": expert, "projection": "up", "made": made});
    let says = |made: &str| json!({ "experts": { "method": "calibrated", "tensors": [entry(2, made), entry(3, "calibrated")] } });
    let all_but = |skip: forge::At| {
        move |at: forge::At, matrix: &mut forge::Matrix<'_>| {
            if at != skip {
                matrix.nudge();
            }
        }
    };
    let honest = claimed(Codec::Q4).saying(says("rtn")).edited(all_but((1, 2, 1))).write(scratch.path(), "honest");
    let report = judge(&honest, None).expect("judged");
    assert_eq!(open(&report), ["better_than_baseline"], "an exempt matrix may equal its twin");
    let liar = claimed(Codec::Q4).saying(says("rtn")).edited(|_, matrix| matrix.nudge()).write(scratch.path(), "liar");
    let report = judge(&liar, None).expect("judged");
    let found = check(&report, "rtn_tensors_equal_baseline");
    assert!(!found.pass && found.what.contains("layer 1 expert 2 up"), "{found:?}");
}

#[test]
fn diagnostic_vaults_are_reported_on_and_never_pass() {
    let scratch = Scratch::new();
    let says = json!({ "experts": { "method": "calibrated", "diagnostic": "only gate-up" } });
    let vault = claimed(Codec::Q2).saying(says).write(scratch.path(), "diagnostic");
    let report = judge(&vault, Some(&scratch.poor_baseline())).expect("judged");
    assert_eq!((report.verdict, open(&report)), (Verdict::Fail, vec!["not_diagnostic"]));
    assert!(report.summary.contains("only gate-up") && report.difference.is_some(), "{}", report.summary);
}

#[test]
fn a_vault_of_more_bits_than_it_claims_has_the_wrong_size() {
    let scratch = Scratch::new();
    let says = json!({ "experts": { "method": "rtn", "codec": "smoe-q2" } });
    let heavy = Forge::of(&golden(), Codec::Q4).saying(says).write(scratch.path(), "heavy");
    let report = judge(&heavy, None).expect("judged");
    assert_eq!(open(&report), ["size"]);
    let found = check(&report, "size");
    assert!(found.value > found.bound, "{found:?}");
    let says = json!({ "experts": { "method": "rtn", "codec": {"gate": "q2", "up": "q2", "down": "q4"} } });
    let mut mixed = Forge::of(&golden(), Codec::Q2).saying(says);
    mixed.codecs[2] = Codec::Q4;
    let report = judge(&mixed.write(scratch.path(), "mixed"), None).expect("judged");
    assert_eq!(
        (report.verdict, &report.candidate.codecs[..]),
        (Verdict::Pass, &["q2", "q4"][..]),
        "{}",
        report.summary
    );
}

#[test]
fn a_tensor_that_nothing_reads_is_named() {
    let scratch = Scratch::new();
    let mut stray = Forge::of(&golden(), Codec::Q4);
    stray.stray = true;
    let report = judge(&stray.write(scratch.path(), "stray"), None).expect("judged");
    // It also weighs something that the reference does not account for, unless padding hides it.
    assert!(open(&report).contains(&"tensors_read"), "{:?}", open(&report));
    assert!(check(&report, "tensors_read").what.contains("`stray.weight`"), "{:?}", report.checks);
}

#[test]
fn logits_that_are_no_numbers_are_a_verdict_and_not_an_error() {
    let scratch = Scratch::new();
    let mut poisoned = Forge::of(&golden(), Codec::Q4);
    poisoned.poison = Some("model.norm.weight");
    let report = judge(&poisoned.write(scratch.path(), "poisoned"), None).expect("judged");
    assert_eq!((report.verdict, open(&report)), (Verdict::Fail, vec!["finite_logits"]));
    assert!(report.candidate.measures.is_none() && report.to_json()["candidate"]["kld"].is_null());
    assert!(report.summary.contains("candidate, window 0: position 0"), "{}", report.summary);
}

#[test]
fn text_that_calibrated_the_vault_does_not_judge_it() {
    let scratch = Scratch::new();
    let windows = windows();
    let made_from = |rows: std::ops::Range<usize>| {
        let shingles = Shingles::of_rows(rows.map(|row| windows.row(row))).to_bytes();
        Forge::of(&golden(), Codec::Q2).saying(calibrated()).with_section(SHINGLES_SECTION, shingles)
    };
    let poor = scratch.poor_baseline();
    let one = judge(&made_from(6..8).write(scratch.path(), "one"), Some(&poor)).expect("one of 24");
    assert_eq!((one.text.dropped_documents, one.text.dropped_tokens), (1, 2 * (LEN - 1)));
    assert_eq!((one.text.documents, one.verdict), (23, Verdict::Pass));
    assert!(one.documents.iter().all(|document| document.name != "document 3"));
    assert!((check(&one, "text_overlap").value.expect("a share") - 1.0 / 24.0).abs() < 1e-12);

    let refused = judge(&made_from(0..8).write(scratch.path(), "four"), Some(&poor)).expect_err("four of 24");
    assert!(matches!(refused, GateError::Overlap { dropped_documents: 4, .. }), "{refused}");

    let silent = Forge::of(&golden(), Codec::Q2).saying(calibrated()).write(scratch.path(), "silent");
    let silent = judge(&silent, Some(&poor)).expect("judged");
    assert_eq!((silent.verdict, open(&silent)), (Verdict::Inconclusive, vec!["text_overlap"]));

    let damaged = Forge::of(&golden(), Codec::Q2).with_section(SHINGLES_SECTION, b"SHNG".to_vec());
    let error = judge(&damaged.write(scratch.path(), "damaged"), None).expect_err("damaged").to_string();
    assert!(error.contains("section calibration-shingles.bin: expected"), "{error}");
}

#[test]
fn arms_of_unequal_size_are_compared_at_their_bytes() {
    let scratch = Scratch::new();
    let small = Forge::of(&golden(), Codec::Q2).write(scratch.path(), "small");
    let large = Forge::of(&golden(), Codec::Q4).write(scratch.path(), "large");
    // Four bits, so badly scaled that two bits do better.
    let bad = claimed(Codec::Q4).edited(|_, matrix| matrix.rescale(3.0)).write(scratch.path(), "bad");
    let report = judge(&bad, Some(&small)).expect("judged");
    let found = check(&report, "no_better_at_its_bytes");
    assert!(!found.pass && found.what.contains("the given baseline is better"), "{found:?}");
    assert!(report.baseline.is_some_and(|twin| twin.bits_per_weight == report.candidate.bits_per_weight));
    assert_eq!(report.given.map(|given| given.name), Some("small".to_owned()));
    // A larger vault is no rival, however good.
    let good = claimed(Codec::Q2).edited(|_, matrix| matrix.nudge()).write(scratch.path(), "good");
    let report = judge(&good, Some(&large)).expect("judged");
    let found = check(&report, "no_better_at_its_bytes");
    assert!(found.pass && found.what.contains("no rival"), "{found:?}");
    assert!(report.given_difference.is_some_and(|it| it.kld > 0.0) && report.difference.is_some());
}

#[test]
fn experts_without_a_token_are_decoded_and_counted() {
    let scratch = Scratch::new();
    let few = Windows::from_rows("few", &[vec![5, 5, 5], vec![5, 5]], &[0, 1]).expect("rows");
    let vault = Forge::of(&golden(), Codec::Q4).write(scratch.path(), "vault");
    let report = judge_on(&vault, None, &few, &GateOptions::default()).expect("judged");
    let experts = report.experts;
    assert!(experts.decoded_only > 0 && experts.reached + experts.decoded_only == 10, "{experts:?}");
    let chosen: u64 = report.layers.iter().flat_map(|layer| &layer.tokens).sum();
    assert_eq!(chosen, 2 * 2 * 5, "layers x choices x tokens");
    assert!(report.notes.iter().any(|note| note.contains("saw no token")), "{:?}", report.notes);
}

#[test]
fn the_same_question_has_the_same_answer_whatever_the_threads() {
    let scratch = Scratch::new();
    let vault = claimed(Codec::Q2).edited(|_, matrix| matrix.rescale(1.02)).write(scratch.path(), "vault");
    let with = |threads, seed| {
        let options = GateOptions { threads, seed, ..lenient() };
        let mut report = judge_on(&vault, None, &windows(), &options).expect("judged").to_json();
        // What ran on how many threads is said in words.
        for check in report["checks"].as_array_mut().expect("checks") {
            check.as_object_mut().expect("a check").remove("what");
        }
        report.to_string()
    };
    assert_eq!(with(2, 0), with(2, 0));
    assert_eq!(with(2, 0), with(1, 0));
    assert_ne!(with(2, 0), with(2, 1));
    let report = judge(&vault, None).expect("judged");
    let program = std::fs::read(std::env::current_exe().expect("this test's program")).expect("a file");
    assert_eq!(report.build, Some(format!("{:016x}", smoe_vault::checksum(&program))), "which build said so");
}

#[test]
fn the_evidence_has_no_tables_and_no_folder_of_this_machine() {
    let scratch = Scratch::new();
    let report = judge(&claimed(Codec::Q2).write(scratch.path(), "vault"), None).expect("judged");
    let evidence = report.evidence();
    assert!(evidence["documents"].is_null() && evidence["layers"][0]["tokens"].is_null());
    assert!(evidence["checks"].as_array().is_some_and(|checks| checks.len() == report.checks.len()));
    let folder = scratch.path().display().to_string();
    assert!(!report.to_json().to_string().contains(&folder));
}

#[test]
fn what_cannot_be_judged_is_an_error() {
    let scratch = Scratch::new();
    let vault = Forge::of(&golden(), Codec::Q4).write(scratch.path(), "vault");
    let outside = Windows::from_rows("text", &[vec![1, 128]], &[0]).expect("rows");
    let error = judge_on(&vault, None, &outside, &GateOptions::default()).expect_err("an id outside").to_string();
    assert!(error.contains("found the id 128"), "{error}");
    let (rows, documents) = random_rows(128, 1, 1, 41_000);
    let long = Windows::from_rows("text", &rows, &documents).expect("rows");
    let error = judge_on(&vault, None, &long, &GateOptions::default()).expect_err("too long").to_string();
    assert!(error.contains("context of 40960 tokens, found 41000"), "{error}");
    let cancelled = AtomicBool::new(true);
    let reference = golden();
    let subjects = Subjects { candidate: &vault, reference: &reference, baseline: None };
    let mut control = Control { progress: &mut |_| (), cancel: &cancelled };
    let error = gate(subjects, &windows(), &GateOptions::default(), &mut control).expect_err("stopped");
    assert!(matches!(error, GateError::Stopped | GateError::Cancelled { .. }), "{error}");
}

/// Codecs alike and a trunk in other types: the vaults weigh differently, so neither is the other's twin.
#[test]
fn a_baseline_with_another_trunk_is_compared_at_its_bytes() {
    let scratch = Scratch::new();
    let mut other = Forge::of(&golden(), Codec::Q2);
    other.stray = true;
    let other = other.write(scratch.path(), "other");
    let good = claimed(Codec::Q2).edited(|_, matrix| matrix.nudge()).write(scratch.path(), "good");
    let report = judge(&good, Some(&other)).expect("judged");
    assert_eq!(report.given.map(|given| given.name), Some("other".to_owned()));
    assert!(report.baseline.is_some_and(|twin| twin.model_bytes == report.candidate.model_bytes));
    assert!(report.checks.iter().any(|check| check.name == "no_better_at_its_bytes"), "{:?}", report.checks);
}

/// Every published layout: nothing but the loss of rounding itself may be held against an honest vault.
#[test]
fn honest_vaults_of_every_family_are_judged_without_a_false_alarm() {
    let scratch = Scratch::new();
    let goldens: Vec<PathBuf> = match shared() {
        None => {
            println!("ran without ../shared: the golden model of the repository alone");
            vec![golden()]
        }
        Some(shared) => {
            println!("ran with ../shared");
            let entries = std::fs::read_dir(shared.join("golden")).expect("a folder").flatten().map(|e| e.path());
            entries.filter(|path| path.join("config.json").is_file()).collect()
        }
    };
    for folder in goldens {
        let forge = Forge::of(&folder, Codec::Q4);
        let vocab = smoe_model::store::TensorStore::spec(&forge.checkpoint).vocab;
        let vault = forge.write(scratch.path(), "honest");
        let (rows, documents) = random_rows(vocab, 3, 1, 24);
        let windows = Windows::from_rows("made up", &rows, &documents).expect("rows");
        let subjects = Subjects { candidate: &vault, reference: &folder, baseline: None };
        let mut control = Control { progress: &mut |_| (), cancel: &AtomicBool::new(false) };
        let options = GateOptions { threads: 2, ..GateOptions::default() };
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let report = gate(subjects, &windows, &options, &mut control).unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{name}: {}", report.summary);
        // Random weights lose more than trained ones by any rounding, of weights and of activations alike.
        let own = ["kld", "noise_floor_as_run"];
        let alarms: Vec<_> = open(&report).into_iter().filter(|check| !own.contains(check)).collect();
        assert!(alarms.is_empty(), "{name}: {:#?}", report.checks);
    }
}
