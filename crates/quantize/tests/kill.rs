//! What only a process of its own shows: kill -9 at ten random moments, and peak memory. The test runs itself as the
//! child; the child speaks at each step of its progress, so the parent knows where it kills.

use smoe_codec::Codec;
use smoe_quantize::Control;
use smoe_quantize::capture::{CalibrationText, TextKind};
use smoe_quantize::convert::{Calibration, Presence, QuantizeOptions, TrunkStorage, quantize};
use smoe_quantize::random::SplitMix64;
use smoe_quantize::synth::{self, Overrides, SynthOptions};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SOURCE: &str = "SMOE_TEST_SOURCE";
const TARGET: &str = "SMOE_TEST_TARGET";
/// Set where the child is to calibrate.
const CALIBRATE: &str = "SMOE_TEST_CALIBRATE";
const STEP: &str = "step";
const PEAK: &str = "peak ";

/// Does nothing unless it is the child of another test.
#[test]
fn child() {
    let (Some(source), Some(target)) = (std::env::var_os(SOURCE), std::env::var_os(TARGET)) else { return };
    let options = QuantizeOptions {
        trunk: TrunkStorage::Q8,
        presence: Presence { force: false, resume: true },
        calibration: std::env::var_os(CALIBRATE).map(|_| Calibration::new(text())),
        ..QuantizeOptions::new(Codec::Q4)
    };
    let say = |text: &str| writeln!(std::io::stderr().lock(), "{text}").expect("the parent listens");
    let control = Control { progress: &|_| say(STEP), ..Control::silent() };
    let report = quantize(Path::new(&source), Path::new(&target), &options, &control).expect("converted");
    say(&format!("{PEAK}{}", report.peak_rss_bytes.unwrap_or(0)));
}

/// Forty random rows.
fn text() -> CalibrationText {
    let mut random = SplitMix64::new(3, 0, 0);
    let mut row = || (0..64).map(|_| (random.next_u64() % 200) as u32).collect();
    CalibrationText { name: "text".into(), kind: TextKind::Windows, rows: (0..40).map(|_| row()).collect() }
}

fn spawn(source: &Path, target: &Path, calibrate: bool) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut command = Command::new(std::env::current_exe().expect("this test's program"));
    command.args(["--exact", "child", "--nocapture"]).env(SOURCE, source).env(TARGET, target);
    if calibrate {
        command.env(CALIBRATE, "1");
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a child");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    (child, lines)
}

fn checkpoint(folder: &Path, shape: &str, overrides: Overrides) -> PathBuf {
    let target = folder.join("source");
    let options = SynthOptions { shape: shape.into(), overrides, seed: 9, force: false };
    synth::checkpoint(&target, &options, &Control::silent()).expect("a synthetic checkpoint");
    target
}

#[test]
fn killed_at_ten_random_moments_it_resumes_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny", Overrides { layers: Some(6), ..Overrides::default() });
    resumes(folder.path(), &source, 10, false);
}

#[test]
fn a_calibration_killed_at_random_moments_resumes_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path(), "tiny", Overrides::default());
    resumes(folder.path(), &source, 8, true);
}

fn resumes(folder: &Path, source: &Path, rounds: usize, calibrate: bool) {
    let whole = folder.join("whole");
    let (mut child, lines) = spawn(source, &whole, calibrate);
    let steps = lines.filter(|line| line == STEP).count() as u64;
    assert!(child.wait().expect("it ends").success());
    let whole = fs::read(whole).expect("a vault");
    let mut rng = SplitMix64::new(0, 0, 0);
    for round in 0..rounds {
        let target = folder.join(format!("v{round}"));
        let moment = (rng.next_u64() % steps) as usize;
        let (mut child, mut lines) = spawn(source, &target, calibrate);
        let seen = lines.by_ref().filter(|line| line == STEP).nth(moment).is_some();
        child.kill().expect("killed");
        child.wait().expect("it is gone");
        println!("round {round}: killed after step {moment} of {steps} (seen: {seen}), whole: {}", target.exists());
        if target.exists() {
            // It was quicker than the kill: then it must be whole.
            assert!(fs::read(&target).expect("a vault") == whole, "round {round}: other bytes under the final name");
            continue;
        }
        let (mut child, lines) = spawn(source, &target, calibrate);
        let last = lines.last();
        assert!(child.wait().expect("it ends").success(), "round {round}: {last:?}");
        assert!(fs::read(&target).expect("a vault") == whole, "round {round}: killed after step {moment}: other bytes");
        assert!(!folder.join(format!("v{round}.partial")).exists());
    }
}

#[test]
fn memory_does_not_grow_with_the_checkpoint() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let overrides = Overrides { layers: Some(1), experts: Some(16), vocab: Some(30_000), ..Overrides::default() };
    let source = checkpoint(folder.path(), "qwen3-30b-a3b", overrides);
    let bytes = fs::metadata(source.join("model.safetensors")).expect("a file").len();
    let (mut child, lines) = spawn(&source, &folder.path().join("v"), false);
    let peak = lines.filter_map(|line| line.strip_prefix(PEAK)?.parse::<u64>().ok()).last();
    assert!(child.wait().expect("it ends").success());
    let peak = peak.expect("the child says its peak");
    println!("{bytes} B converted within {peak} B");
    assert!(bytes > 400_000_000, "{bytes}");
    assert!(peak < 160 << 20, "{peak} B for a checkpoint of {bytes} B");
}
