//! The main job on the demo: quantise, verify, inspect, run, eval, export; and its refusals.

use crate::process::{demo, names, root, smoe, start, text};
use std::fs;

#[test]
fn from_a_checkpoint_to_text() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let vault = scratch.path().join("demo.vault");
    let (demo, vault) = (demo(), text(&vault));
    let demo = text(&demo);
    for (codec, bits, most) in [("q4", 4.25, 0.05), ("q2", 2.25, 0.5)] {
        let made = smoe(&["quantize", demo, "-o", vault, "--codec", codec, "--force", "--json"]).expect(0).json();
        assert_eq!(made["bits_per_weight"], bits, "{made}");
        assert_eq!(made["experts"], 64, "{made}");
        assert_eq!((&made["calibrated_tensors"], &made["rtn_tensors"]), (&0.into(), &192.into()), "{made}");
        assert_eq!(made["bytes"].as_u64(), fs::metadata(vault).ok().map(|m| m.len()), "{made}");

        assert_eq!(smoe(&["verify", vault, "--json"]).expect(0).json()["ok"], true);
        let inside = smoe(&["inspect", vault, "--json"]).expect(0).json();
        assert_eq!(inside["version"], 3, "{inside}");
        assert!(inside["provenance"].is_object() && inside["verdict"].is_null(), "{inside}");

        let lines = fs::read_to_string(root().join("demo/eval.jsonl")).expect("the demo's text");
        let short: String = lines.lines().take(2).flat_map(|l| [l, "\n"]).collect();
        let document = scratch.path().join("two.jsonl");
        fs::write(&document, short).expect("scratch is writable");
        let cost = ["eval", vault, "--text", text(&document), "--window", "128", "--reference", demo, "--json"];
        let cost = smoe(&cost).expect(0).json();
        let dnll = cost["dnll"].as_f64().expect("a number");
        assert!(dnll.abs() < most && cost["kld"].as_f64().is_some_and(|k| k > 0.0 && k < most), "{codec}: {cost}");
        assert_eq!(cost["documents"], 2);
    }

    let run = ["run", vault, "-p", "Once upon a time", "-n", "12", "--temp", "0", "--ignore-eos"];
    let said = smoe(&run).expect(0);
    let json = smoe(&[&run[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(json["ids"].as_array().map(Vec::len), Some(12), "{json}");
    assert_eq!(said.stdout.trim_end_matches('\n'), json["text"].as_str().expect("a text").trim_end_matches('\n'));
    assert!(json["peak_rss_bytes"].as_u64().is_some_and(|b| b > 0) && json["decode_tokens_per_second"].is_number());
    let prompt = json["prompt_ids"].as_array().expect("ids").clone();
    let ids: Vec<_> = prompt.iter().map(ToString::to_string).collect();
    let again = ["run", vault, "--ids", &ids.join(","), "-n", "12", "--temp", "0", "--ignore-eos", "--json"];
    assert_eq!(smoe(&again).expect(0).json()["ids"], json["ids"], "the same prompt as ids");
    let raw = smoe(&[&run[..], &["--raw", "--json"]].concat()).expect(0).json();
    assert!(raw["prompt_ids"].as_array().is_some_and(|ids| ids.len() < prompt.len()), "the template adds tokens");
}

#[test]
fn an_existing_output_is_kept() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (vault, demo) = (scratch.path().join("demo.vault"), demo());
    smoe(&["quantize", text(&demo), "-o", text(&vault)]).expect(0);
    let target = scratch.path().join("precious");
    fs::write(&target, "precious").expect("scratch is writable");
    for words in [
        vec!["quantize", text(&demo), "-o", text(&target)],
        vec!["export", text(&vault), "--to", "hf", "-o", text(&target)],
        vec!["synth", "--shape", "tiny", "-o", text(&target)],
    ] {
        let ran = smoe(&words).expect(2);
        assert!(ran.stderr.contains("precious") && ran.stderr.contains("--force"), "{words:?}: {}", ran.stderr);
        assert_eq!(fs::read_to_string(&target).expect("still there"), "precious", "{words:?}");
    }
    assert_eq!(names(scratch.path()), ["demo.vault", "precious"]);
}

#[test]
fn an_exported_checkpoint_says_what_its_vault_says() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (vault, folder) = (scratch.path().join("demo.vault"), scratch.path().join("exported"));
    smoe(&["quantize", text(&demo()), "-o", text(&vault), "--codec", "q2"]).expect(0);
    smoe(&["export", text(&vault), "--to", "hf", "-o", text(&folder), "--dtype", "f32"]).expect(0);
    let say = |model| {
        let words =
            ["run", text(model), "-p", "Tell me", "-n", "16", "--temp", "0", "--ignore-eos", "--exact", "--json"];
        let json = smoe(&words).expect(0).json();
        (json["prompt_ids"].clone(), json["ids"].clone())
    };
    assert_eq!(say(&vault), say(&folder));
}

#[test]
fn a_plan_from_a_config_alone_says_so() {
    let config = demo().join("config.json");
    let json = smoe(&["plan", text(&config), "--drive-gbps", "7.4", "--json"]).expect(0).json();
    assert_eq!(json["parameters"], 2_827_648);
    assert_eq!(json["expert_bytes"]["bf16"], 2 * 3 * 64 * 128);
    let ran = smoe(&["plan", text(&config)]).expect(0);
    assert!(ran.stdout.contains("from config.json alone"), "{}", ran.stdout);
}

#[test]
fn a_calibrated_conversion_says_what_it_did() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (vault, words) = (scratch.path().join("x.vault"), root().join("demo/eval.jsonl"));
    let source = demo();
    let quantize = ["quantize", text(&source), "-o", text(&vault), "--codec", "q2", "--calibrate"];
    let ran = smoe(&[&quantize[..], &[text(&words), "--tokens", "4096", "--json"]].concat()).expect(0);
    let made = ran.json();
    assert_eq!((&made["calibrated_tensors"], &made["rtn_tensors"]), (&192.into(), &0.into()), "{made}");
    assert_eq!(made["calibration"]["plan"]["tokens"], 4096, "{made}");
    assert!(ran.stderr.contains("times the rank bound of"), "{}", ran.stderr);
    let experts = &smoe(&["inspect", text(&vault), "--json"]).expect(0).json()["provenance"]["experts"];
    assert_eq!((&experts["method"], &experts["calibrated_tensors"]), (&"calibrated".into(), &192.into()));
}

#[test]
fn a_diagnosis_measures_seven_arms_and_says_what_they_mean() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (words, few) = (root().join("demo/eval.jsonl"), scratch.path().join("few.jsonl"));
    let lines = fs::read_to_string(&words).expect("the demo's text");
    fs::write(&few, lines.lines().take(3).collect::<Vec<_>>().join("\n")).expect("scratch is writable");
    let source = demo();
    let diagnose = ["diagnose", text(&source), "--calibrate", text(&words), "--tokens", "4096", "--window", "64"];
    let ran = smoe(&[&diagnose[..], &["--text", text(&few), "--json"]].concat());
    let json = ran.json();
    let arms: Vec<_> =
        json["arms"].as_array().expect("a list").iter().map(|arm| (&arm["arm"], &arm["tokens"])).collect();
    assert_eq!(arms.len(), 7, "{json}");
    assert_eq!(
        (arms[0].0, arms[3].0, arms[3].1, arms[6].1),
        (&"none".into(), &"both".into(), &4096.into(), &1024.into())
    );
    assert!(json["words"].as_array().is_some_and(|words| !words.is_empty()), "{json}");
    assert_eq!(ran.code, i32::from(json["cause"] == "wiring-fault"), "{json}");
}

#[test]
fn own_text_calibrates_from_an_empty_folder_with_nothing_but_the_binary() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let binary = scratch.path().join("smoe");
    fs::copy(env!("CARGO_BIN_EXE_smoe"), &binary).expect("the program is one file");
    let ran = std::process::Command::new(&binary)
        .args(["quantize", text(&demo()), "-o", "x.vault", "--codec", "q2", "--calibrate", "self", "--tokens", "1024"])
        .current_dir(scratch.path())
        .env_clear()
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("the model wrote 1024 tokens of its own in"), "{said}");
    assert_eq!(names(scratch.path()), ["smoe", "x.vault"]);
}

#[test]
fn unusable_calibration_text_is_an_error_and_leaves_nothing() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let vault = scratch.path().join("x.vault");
    let words = tempfile::tempdir().expect("a scratch folder");
    let (empty, short) = (words.path().join("empty.txt"), words.path().join("short.txt"));
    fs::write(&empty, "").expect("scratch is writable");
    fs::write(&short, "A few words.").expect("scratch is writable");
    let missing = words.path().join("none.txt");
    for (file, said) in [(&empty, "empty"), (&short, "window of 512 tokens"), (&missing, "none.txt")] {
        let ran = smoe(&["quantize", text(&demo()), "-o", text(&vault), "--calibrate", text(file)]).expect(2);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert_eq!(names(scratch.path()), [""; 0]);
    }
}

#[test]
fn a_flipped_byte_is_found_and_never_answered_from() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let vault = scratch.path().join("demo.vault");
    smoe(&["quantize", text(&demo()), "-o", text(&vault)]).expect(0);
    let good = fs::read(&vault).expect("a vault");
    for at in [9, 60, good.len() / 5, good.len() / 2, good.len() - 2] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&vault, bad).expect("scratch is writable");
        let verified = smoe(&["verify", text(&vault)]);
        assert!([1, 2].contains(&verified.code), "byte {at}: {verified:?}");
        let run = smoe(&["run", text(&vault), "--raw", "-p", "The", "-n", "40", "--ignore-eos"]);
        println!("byte {at}: verify {}, run {}", verified.code, run.code);
        assert_eq!(run.code, 2, "byte {at}: {run:?}");
    }
}

/// `kill -9` while it writes: nothing under the final name, and `--resume` ends in the same bytes.
#[test]
fn a_killed_conversion_resumes_to_the_same_bytes() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = |name: &str| scratch.path().join(name);
    let checkpoint = at("checkpoint");
    smoe(&["synth", "--shape", "tiny", "--layers", "12", "-o", text(&checkpoint)]).expect(0);
    smoe(&["quantize", text(&checkpoint), "-o", text(&at("whole"))]).expect(0);
    let whole = fs::read(at("whole")).expect("a vault");
    for kill_at in [0, whole.len() as u64 / 8, whole.len() as u64 / 2] {
        let target = at("killed");
        let words = ["quantize", text(&checkpoint), "-o", text(&target), "--threads", "1"];
        let mut child = start(&words);
        let partial = || {
            let others = names(scratch.path()).into_iter().filter(|n| !["checkpoint", "whole"].contains(&n.as_str()));
            others.filter_map(|n| at(&n).metadata().ok()).map(|m| m.len()).sum::<u64>()
        };
        // It may win the race and end; then there is a whole vault, which is right too.
        while partial() <= kill_at && child.try_wait().expect("a child").is_none() {
            std::thread::yield_now();
        }
        let killed = child.kill().is_ok() && !child.wait().expect("a child").success();
        assert_eq!(target.exists(), !killed, "a vault appears whole or not at all");
        println!("beyond {kill_at} B: killed {killed}");
        if killed {
            smoe(&[&words[..], &["--resume"]].concat()).expect(0);
        }
        assert!(fs::read(&target).expect("a vault") == whole, "killed beyond {kill_at} B: other bytes");
        fs::remove_file(&target).expect("scratch is writable");
    }
}

#[test]
fn memory_is_promised_before_anything_is_loaded() {
    let demo = demo();
    let run = |more: &[&str]| smoe(&[&["run", text(&demo), "-p", "x", "-n", "1", "--ram"], more].concat());
    let none = run(&["1M"]).expect(2);
    assert!(none.stderr.contains("--ram allows 1.05 MB") && none.stderr.contains("hint: "), "{}", none.stderr);
    let fixed = run(&["14M", "--context", "2048"]).expect(2);
    assert!(fixed.stderr.contains("a context of 2048"), "{}", fixed.stderr);
    assert!(run(&["14M"]).expect(0).stderr.contains("holds a context of 1024"), "it is lowered and says so");
    run(&["1G"]).expect(0);
}

/// With less and less memory: all in it, then streamed, then refused before anything is loaded; the answer is one.
#[test]
fn a_vault_larger_than_its_memory_says_the_same() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let vault = scratch.path().join("demo.vault");
    smoe(&["quantize", text(&demo()), "-o", text(&vault), "--codec", "q4"]).expect(0);
    let words = ["run", text(&vault), "-p", "Tell me", "-n", "12", "--temp", "0", "--ignore-eos", "--json", "--ram"];
    let whole = smoe(&[&words[..], &["4G"]].concat()).expect(0).json();
    assert!(whole["streaming"].is_null(), "{whole}");
    let none = smoe(&[&words[..], &["1M"]].concat()).expect(2);
    assert!(none.stderr.contains("--ram allows 1.05 MB") && none.stderr.contains("hint: "), "{}", none.stderr);
    let mut streamed = 0;
    for mib in 64..96 {
        let ran = smoe(&[&words[..], &[&format!("{mib}M")]].concat());
        if !ran.stderr.contains("streaming: ") {
            continue;
        }
        let json = ran.expect(0).json();
        assert_eq!(json["ids"], whole["ids"], "{mib} MiB");
        let (reads, budget) = (json["streaming"]["reads"].as_u64(), json["streaming"]["budget_bytes"].as_u64());
        assert!(reads > Some(0) && budget > Some(0), "{json}");
        // The first run remembers what it used; the next ones begin with it.
        assert_eq!(json["streaming"]["warmed"].as_u64() > Some(0), streamed > 0, "{json}");
        streamed += 1;
    }
    assert!(streamed > 0, "no amount of memory was too little for all and enough for some");
}

#[test]
fn a_synthetic_vault_runs() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let vault = scratch.path().join("synthetic.vault");
    smoe(&["synth", "--vault", "--shape", "tiny", "--codec", "q2", "-o", text(&vault)]).expect(0);
    smoe(&["verify", text(&vault)]).expect(0);
    let ids = smoe(&["run", text(&vault), "--ids", "1,2,3", "-n", "4", "--ignore-eos", "--json"]).expect(0).json();
    assert_eq!((ids["ids"].as_array().map(Vec::len), &ids["text"]), (Some(4), &serde_json::Value::Null), "{ids}");
    let words = smoe(&["run", text(&vault), "-p", "x"]).expect(2);
    assert!(words.stderr.contains("has no tokenizer") && words.stderr.contains("hint: "), "{}", words.stderr);
}
