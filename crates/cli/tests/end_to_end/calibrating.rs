//! `smoe quantize --calibrate` as a user meets it: every flag has its effect, none is passed over, and a calibration that
//! fails is an answer and not a vault.

use crate::process::{demo, names, root, smoe, text};
use std::fs;
use std::path::Path;

fn convert(target: &Path, more: &[&str]) -> (Vec<u8>, serde_json::Value) {
    let (demo, words) = (demo(), root().join("demo/eval.jsonl"));
    let mut line = vec!["quantize", text(&demo), "-o", text(target), "--codec", "q2", "--calibrate", text(&words)];
    // A flag that is given again replaces the one before: clap refuses that, so what is asked for is taken out.
    for flag in ["--codec", "--calibrate"] {
        if more.contains(&flag) {
            let at = line.iter().position(|word| *word == flag).expect("a flag");
            line.drain(at..at + 2);
        }
    }
    let made = smoe(&[&line[..], more, &["--json"]].concat()).expect(0).json();
    (fs::read(target).expect("a vault"), made)
}

#[test]
fn every_flag_reaches_the_vault() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let few = ["--tokens", "512"];
    let mut seen = vec![("nothing", convert(&scratch.path().join("0"), &few).0)];
    for (i, more) in [
        &["--seed", "1"][..],
        &["--only", "gate-up"],
        &["--only", "down"],
        &["--solver", "gptq-plain"],
        &["--codec", "q4"],
        &["--trunk", "q8"],
        &["--calibrate", "self"],
    ]
    .into_iter()
    .enumerate()
    {
        let (bytes, made) = convert(&scratch.path().join(format!("{}", i + 1)), &[&few[..], more].concat());
        let diagnostic = more[0] == "--only" || more[0] == "--solver";
        assert_eq!(made["calibration"]["diagnostic"].is_string(), diagnostic, "{more:?}: {made}");
        assert!(seen.iter().all(|(_, other)| *other != bytes), "{more:?} changed nothing");
        seen.push((more[1], bytes));
    }
    // Threads are no part of the result.
    let (bytes, _) = convert(&scratch.path().join("t"), &[&few[..], &["--threads", "1"]].concat());
    assert!(bytes == seen[0].1, "--threads changed bytes");
}

/// What is printed is what was done, not what was asked for.
#[test]
fn the_effective_numbers_are_printed() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (source, vault, words) = (demo(), scratch.path().join("x.vault"), root().join("demo/eval.jsonl"));
    let quantize = ["quantize", text(&source), "-o", text(&vault), "--calibrate", text(&words)];
    let ran = smoe(&[&quantize[..], &["--tokens", "1200"]].concat()).expect(0);
    assert!(ran.stderr.contains("calibrating on 1024 of "), "whole windows of 512: {}", ran.stderr);
    assert!(ran.stdout.contains("calibrated  192 of 192 matrices on 1024 tokens"), "{}", ran.stdout);
    assert!(ran.stderr.contains("WARNING: 1024 tokens are too few"), "{}", ran.stderr);
    let few = scratch.path().join("few.jsonl");
    let lines = fs::read_to_string(&words).expect("the demo's text");
    fs::write(&few, lines.lines().next().expect("a line")).expect("scratch is writable");
    let (_, made) = convert(&scratch.path().join("all"), &["--tokens", "999999999", "--calibrate", text(&few)]);
    let plan = &made["calibration"]["plan"];
    assert_eq!(plan["tokens"], plan["available"], "there is no more: {made}");
    let gpu = smoe(&["run", text(&vault), "-p", "x", "--gpu", "3"]).expect(2);
    assert!(gpu.stderr.contains("--gpu 3"), "{}", gpu.stderr);
}

/// A mistyped guard is fatal before any work; it never falls back to a default.
#[test]
fn a_mistyped_guard_is_fatal() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (vault, words) = (scratch.path().join("x.vault"), root().join("demo/eval.jsonl"));
    let (demo, words) = (demo(), text(&words));
    let quantize = ["quantize", text(&demo), "-o", text(&vault)];
    for more in [
        &["--calibrate", words, "--solver", "rtn"][..],
        &["--calibrate", words, "--only", "up"],
        &["--calibrate", words, "--tokens", "many"],
        &["--calibrate", words, "--tokens", "0"],
        &["--calibrate", words, "--seed", "-1"],
        &["--calibrate", words, "--allow-rtn-fallback=maybe"],
        &["--tokens", "1024"],
        &["--only", "down"],
        &["--allow-rtn-fallback"],
        &["--calibrate", "slef"],
    ] {
        let ran = smoe(&[&quantize[..], more].concat()).expect(2);
        assert!(ran.stderr.lines().any(|l| l.starts_with("error: ")) && ran.stdout.is_empty(), "{more:?}: {ran:?}");
        assert_eq!(names(scratch.path()), [""; 0], "{more:?}");
    }
    smoe(&quantize).expect(0);
    let gate = ["gate", text(&vault), "--reference", text(&demo), "--text", words];
    for more in
        [["--max-kld", "0"], ["--max-kld", "-1"], ["--max-kld", "NaN"], ["--max-kld", "loose"], ["--resamples", "20"]]
    {
        let ran = smoe(&[&gate[..], &more].concat()).expect(2);
        assert!(ran.stderr.starts_with("error: ") && ran.stdout.is_empty(), "{more:?}: {ran:?}");
    }
}

/// Experts of one layer see nothing but zeros: there is nothing to calibrate them on.
#[test]
fn a_calibration_that_fails_is_exit_code_1_and_leaves_nothing() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (source, vault) = (scratch.path().join("source"), scratch.path().join("x.vault"));
    smoe(&["synth", "--shape", "tiny", "-o", text(&source)]).expect(0);
    let path = source.join("model.safetensors");
    let mut bytes = fs::read(&path).expect("a shard");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).expect("a header");
    let places = &header["model.layers.1.post_attention_layernorm.weight"]["data_offsets"];
    let at = |i: usize| 8 + len + places[i].as_u64().expect("an offset") as usize;
    bytes[at(0)..at(1)].fill(0);
    fs::write(&path, bytes).expect("scratch is writable");
    let quantize = ["quantize", text(&source), "-o", text(&vault), "--calibrate", "self", "--tokens", "1024"];
    let ran = smoe(&quantize).expect(1);
    assert!(ran.stderr.contains("FAILED: layer 1: no matrix was calibrated"), "{}", ran.stderr);
    let json = smoe(&[&quantize[..], &["--json"]].concat()).expect(1).json();
    assert!(json["error"].as_str().is_some_and(|said| said.contains("layer 1")), "{json}");
    assert_eq!(names(scratch.path()), ["source"]);
}
