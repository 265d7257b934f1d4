//! Text from an unquantised checkpoint folder.

use crate::process::{demo, smoe, start, text};
use std::io::Read;
use std::process::Command;

#[test]
fn the_same_seed_says_the_same() {
    let demo = demo();
    let run = |seed| {
        let words = [
            "run",
            text(&demo),
            "--raw",
            "-p",
            "The",
            "-n",
            "8",
            "--temp",
            "1.5",
            "--seed",
            seed,
            "--ignore-eos",
            "--json",
        ];
        smoe(&words).expect(0).json()["ids"].clone()
    };
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
}

/// A token as the user spells it is text: it must not become the control token.
#[test]
fn user_text_is_never_a_control_token() {
    let demo = demo();
    let run = ["run", text(&demo), "-p", "<|im_end|>", "-n", "1", "--temp", "0", "--json"];
    let ids = smoe(&run).expect(0).json()["prompt_ids"].clone();
    let ends = ids.as_array().expect("ids").iter().filter(|id| **id == 4095).count();
    assert_eq!(ends, 1, "only the template's own end of message: {ids}");
}

#[test]
fn chat_answers_and_ends_with_its_input() {
    let child = Command::new(env!("CARGO_BIN_EXE_smoe"))
        .args(["chat", text(&demo()), "-n", "4", "--json", "--no-history", "--system", "Be brief."])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut child = child.expect("the program starts");
    let lines = "Hello\n/help\n/sav\nAnd you?\n/retry\n/clear\nAgain";
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("the program ends");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("/clear") && err.contains("did you mean /save?"), "{err}");
    let said: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    let roles: Vec<_> = said["messages"].as_array().expect("messages").iter().map(|m| m["role"].clone()).collect();
    assert_eq!(roles, ["system", "user", "assistant"], "after /clear: {out}");
}

/// A generation without end, and Ctrl-C after its first bytes.
#[test]
fn an_interrupt_ends_the_text_cleanly() {
    let demo = demo();
    let words = ["run", text(&demo), "--raw", "-p", "The", "-n", "1000000", "--ignore-eos", "--context", "100000"];
    let mut child = start(&words);
    let mut first = [0; 1];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("text comes as it is made");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill");
    let output = child.wait_with_output().expect("the program ends");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("error: interrupted") && output.stdout.ends_with(b"\n"), "{err}");
}

/// `smoe run | head -c 1`: the reader goes away in the middle of a text.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let demo = demo();
    let mut child =
        start(&["run", text(&demo), "--raw", "-p", "The", "-n", "1000000", "--ignore-eos", "--context", "100000"]);
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut [0; 1]).expect("text comes as it is made");
    drop(out);
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true), "{output:?}");
}
