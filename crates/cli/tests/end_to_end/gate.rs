//! The verdict: given, recorded, heeded; the same each time; and its intervals computed again by another program.

use crate::process::{Ran, demo, names, root, smoe, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Some lines of the demo's text, as a file of their own.
fn lines(folder: &Path, name: &str, which: std::ops::Range<usize>) -> PathBuf {
    let all = fs::read_to_string(root().join("demo/eval.jsonl")).expect("the demo's text");
    let chosen: String = all.lines().skip(which.start).take(which.len()).flat_map(|line| [line, "\n"]).collect();
    let path = folder.join(name);
    fs::write(&path, chosen).expect("scratch is writable");
    path
}

fn judge(vault: &Path, words: &Path, more: &[&str]) -> Ran {
    let demo = demo();
    let fixed = ["gate", text(vault), "--reference", text(&demo), "--text", text(words), "--window", "64"];
    smoe(&[&fixed[..], more].concat())
}

#[test]
fn a_recorded_verdict_is_shown_and_a_failed_one_is_refused() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (vault, page) = (scratch.path().join("x.vault"), scratch.path().join("report.html"));
    let words = lines(scratch.path(), "few.jsonl", 0..2);
    smoe(&["quantize", text(&demo()), "-o", text(&vault)]).expect(0);
    let run = |more: &[&str]| smoe(&[&["run", text(&vault), "--raw", "-p", "The", "-n", "2"], more].concat());
    let chat = |more: &[&str]| smoe(&[&["chat", text(&vault), "--no-history"], more].concat());
    assert!(run(&[]).expect(0).stderr.contains("verdict: none recorded"));

    // A model this small does not survive four bits as a large one does.
    let passed = ["--max-kld", "0.1", "--record", "--html", text(&page), "--json"];
    let passed = judge(&vault, &words, &passed).expect(0).json();
    assert_eq!((&passed["verdict"], &passed["made"]), (&"pass".into(), &"rtn".into()), "{passed}");
    let html = fs::read_to_string(&page).expect("a page");
    assert!(html.starts_with("<!doctype html>") && html.matches("<svg").count() >= 8, "{} B", html.len());
    for ran in [run(&[]).expect(0), chat(&[]).expect(0)] {
        assert!(ran.stderr.contains("verdict: pass, uncalibrated: KLD "), "{}", ran.stderr);
    }

    // The same vault against a bound that it does not keep.
    let failed = judge(&vault, &words, &["--record", "--max-kld", "1e-6"]).expect(1);
    assert!(failed.stdout.contains("fail, uncalibrated: kld: "), "{}", failed.stdout);
    for ran in [run(&[]).expect(2), chat(&[]).expect(2)] {
        assert!(ran.stderr.contains("its recorded verdict: fail") && ran.stderr.contains("--force"), "{}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
    for ran in [run(&["--force"]).expect(0), chat(&["--force"]).expect(0)] {
        assert!(ran.stderr.contains("verdict: fail, uncalibrated"), "{}", ran.stderr);
    }
    let inside = smoe(&["inspect", text(&vault), "--json"]).expect(0).json();
    assert_eq!(inside["verdict"]["verdict"], "fail");
    let checks = inside["verdict"]["checks"].as_array().expect("the evidence");
    assert!(checks.iter().any(|check| check["name"] == "kld" && check["bound"] == 1e-6), "{inside}");
    smoe(&["verify", text(&vault)]).expect(0);
    assert_eq!(names(scratch.path()), ["few.jsonl", "report.html", "x.vault"]);
}

/// The same bytes twice; and a program that shares nothing but the definition finds the same figures and intervals.
#[test]
fn twice_the_same_numbers_and_an_independent_program_agrees() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (source, vault) = (demo(), scratch.path().join("x.vault"));
    let (learn, words) = (lines(scratch.path(), "learn.jsonl", 4..8), lines(scratch.path(), "few.jsonl", 0..3));
    let quantize = ["quantize", text(&source), "-o", text(&vault), "--codec", "q2", "--calibrate", text(&learn)];
    smoe(&[&quantize[..], &["--tokens", "1024"]].concat()).expect(0);
    let [first, second] = [0, 1].map(|_| judge(&vault, &words, &["--json"]));
    assert_eq!(first.stdout, second.stdout);
    let json = first.json();
    assert!(json["baseline"]["kld"].is_number() && json["difference"]["kld_interval"].is_array(), "{json}");
    assert_ne!(json["build"], serde_json::Value::Null, "which program said so");

    let report = scratch.path().join("report.json");
    let again = |json: &serde_json::Value| {
        fs::write(&report, json.to_string()).expect("scratch is writable");
        let script = root().join("scripts/gate_intervals.py");
        Command::new("python3").arg(script).arg(&report).output()
    };
    let Ok(agreed) = again(&json) else {
        println!("not compared: no python3 on this machine");
        return;
    };
    let said = String::from_utf8_lossy(&agreed.stdout).into_owned();
    assert!(agreed.status.success() && said.contains(" numbers, 0 differ"), "{said}");
    assert!(said.contains("less baseline"), "{said}");
    let mut wrong = json;
    let end = &mut wrong["difference"]["kld_interval"][1];
    *end = (end.as_f64().expect("a number") + 1e-6).into();
    let differs = again(&wrong).expect("it ran before");
    let said = String::from_utf8_lossy(&differs.stdout).into_owned();
    assert!(!differs.status.success() && said.contains("1 differ"), "{said}");
}
