//! Runs the program, with a watchdog in place of patience.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// No command on the small inputs of these tests may take longer, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The one object on stdout.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: not one JSON object: {self:?}"))
    }

    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// Starts smoe with empty stdin; its output is piped.
pub(crate) fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_smoe"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// Runs smoe with empty stdin.
pub(crate) fn smoe<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_smoe"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let (id, (send, receive)) = (child.id(), channel());
    let waiter = std::thread::spawn(move || send.send(child.wait_with_output()));
    let Ok(output) = receive.recv_timeout(PATIENCE) else {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
        let _ = waiter.join();
        let words: Vec<_> = arguments.iter().map(|a| a.as_ref().to_string_lossy()).collect();
        panic!("smoe {}: hangs", words.join(" "));
    };
    let output = output.expect("the program ends");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The demo's checkpoint.
pub(crate) fn demo() -> PathBuf {
    root().join("demo/moe-3m-qwen3")
}

/// Reference material beside the repository, where there is some.
pub(crate) fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("SMOE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    folder.join("golden").is_dir().then_some(folder)
}

/// Names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
