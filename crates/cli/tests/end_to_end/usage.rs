//! Help, misuse, exit codes.

use crate::process::smoe;

/// Every command, the hidden ones too.
pub(crate) const COMMANDS: [&str; 16] = [
    "plan",
    "quantize",
    "run",
    "chat",
    "eval",
    "gate",
    "logits",
    "inspect",
    "verify",
    "import",
    "export",
    "bench",
    "doctor",
    "test-quant",
    "synth",
    "completions",
];

#[test]
fn help_ends_with_examples() {
    for command in COMMANDS {
        let ran = smoe(&[command, "--help"]).expect(0);
        let (_, examples) = ran.stdout.split_once("Examples:\n").unwrap_or_else(|| panic!("{command}: no examples"));
        assert!(examples.contains(&format!("smoe {command}")), "{command}: {examples}");
        assert!(ran.stderr.is_empty(), "{command}: {}", ran.stderr);
    }
    let all = smoe(&["--help"]).expect(0).stdout;
    let listed = |command: &str| all.lines().any(|l| l.trim_start().starts_with(command));
    assert!(COMMANDS.iter().filter(|c| **c != "synth").all(|c| listed(c)), "{all}");
    assert!(!listed("synth"), "{all}");
}

#[test]
fn the_doctor_finds_every_kernel_well() {
    let json = smoe(&["doctor", "--json"]).expect(0).json();
    assert_eq!(json["passed"], true, "{json}");
    let kernels = json["kernels"].as_array().expect("a list");
    let isas = json["isas"].as_array().expect("a list");
    assert_eq!(kernels.len(), 3 * isas.len(), "each codec on each path");
    let lines = smoe(&["doctor"]).expect(0).stdout;
    assert!(lines.contains("int8 from exact, at most 0.01") && !lines.contains("FAILED"), "{lines}");
}

#[test]
fn a_misspelt_flag_or_command_gets_a_suggestion() {
    for (arguments, wanted) in [
        (vec!["run", "x", "--promt", "y"], "hint: a similar argument exists: '--prompt'"),
        (vec!["quantize", "x", "-o", "y", "--codc", "q4"], "hint: a similar argument exists: '--codec'"),
        (vec!["quantise", "x"], "hint: a similar subcommand exists: 'quantize'"),
        (vec!["quantize", "x", "-o", "y", "--codec", "q5"], "[possible values: q2, q4]"),
    ] {
        let ran = smoe(&arguments).expect(2);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(wanted), "{}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
}

#[test]
fn sizes_are_checked_where_they_are_written() {
    let ran = smoe(&["run", "x", "-p", "y", "--ram", "16X"]).expect(2);
    assert!(ran.stderr.contains("`16X` is no size"), "{}", ran.stderr);
}

#[test]
fn an_error_is_an_object_too() {
    let ran = smoe(&["run", "/no/such.vault", "-p", "x", "--json"]).expect(2);
    assert!(ran.json()["error"].as_str().is_some_and(|e| e.contains("/no/such.vault")), "{ran:?}");
    assert!(ran.stderr.starts_with("error: "), "{ran:?}");
}

#[test]
fn the_codecs_pass_their_smoke_test() {
    let ran = smoe(&["test-quant"]).expect(0);
    assert!(ran.stdout.matches("RMSE=").count() >= 2 && ran.stdout.contains("SNR="), "{}", ran.stdout);
    let json = smoe(&["test-quant", "--json"]).expect(0).json();
    assert_eq!(json["passed"], true);
    assert_eq!(json["results"].as_array().map(Vec::len), Some(2));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = smoe(&["completions", shell]).expect(0).stdout;
        assert!(COMMANDS.iter().filter(|c| **c != "synth").all(|c| script.contains(c)), "{shell}");
    }
}

/// `smoe ... | head -1`: the reader closes the pipe, which is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    use std::process::{Command, Stdio};
    let program = env!("CARGO_BIN_EXE_smoe");
    let mut command = Command::new(program);
    command.args(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(0), true), "{output:?}");
}
