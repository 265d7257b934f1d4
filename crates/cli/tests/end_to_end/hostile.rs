//! Files that are not what a command wants: an error that names the file, quickly, and nothing written.

use crate::process::{demo, names, smoe};
use std::fs;
use std::path::{Path, PathBuf};

/// Every command that reads a file; `{}` is the hostile one, `DEMO` a good checkpoint, `OUT` what must not appear.
const READERS: [&str; 17] = [
    "plan {}",
    "quantize {} -o OUT",
    "quantize {} -o OUT --codec q2 --resume",
    "run {} -p x --raw -n 1",
    "run {} --ids 1,2 -n 1",
    "chat {}",
    "eval {} --text TEXT",
    "eval DEMO --text {}.jsonl",
    "eval DEMO --text TEXT --reference {}",
    "logits {} --ids 1,2 -o OUT",
    "logits DEMO --compare {}.safetensors",
    "inspect {}",
    "verify {}",
    "import {} -o OUT",
    "import SMOE -o OUT --trunk {}",
    "export {} --to hf -o OUT",
    "export {} --to s-moe-v2 -o OUT",
];

/// The words of a line, `{}` replaced by `path`; a path with blanks stays one word.
fn line(line: &str, path: &Path) -> Vec<String> {
    line.split_whitespace().map(|word| word.replace("{}", &path.to_string_lossy())).collect()
}

/// SplitMix64: bytes from a seed.
fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A file and its twins with the endings by which `eval` and `logits` choose a reader.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    for ending in ["", ".jsonl", ".safetensors"] {
        fs::write(folder.join(format!("{name}{ending}")), bytes).expect("scratch is writable");
    }
    folder.join(name)
}

/// A folder with a `config.json` of these bytes.
fn checkpoint(folder: &Path, name: &str, config: &[u8], weights: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir(&path).expect("scratch is writable");
    fs::write(path.join("config.json"), config).expect("scratch is writable");
    fs::write(path.join("model.safetensors"), weights).expect("scratch is writable");
    path
}

fn hostile(scratch: &Path, vault: &Path) -> Vec<PathBuf> {
    let good = fs::read(vault).expect("a vault");
    let config = fs::read(demo().join("config.json")).expect("the demo");
    let weights = fs::read(demo().join("model.safetensors")).expect("the demo");
    let mut flipped = good.clone();
    flipped[40] ^= 1;
    // A safetensors header that claims 2^62 bytes, and one that promises more data than there is.
    let vast = [(1u64 << 62).to_le_bytes().as_slice(), b"{}"].concat();
    let header = br#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}}"#;
    let shape = [(header.len() as u64).to_le_bytes().as_slice(), header, &[0; 16]].concat();
    fs::create_dir(scratch.join("empty-folder")).expect("scratch is writable");
    vec![
        scratch.join("missing"),
        scratch.join("empty-folder"),
        PathBuf::from("/dev/null"),
        put(scratch, "empty", b""),
        put(scratch, "short", b"SM"),
        put(scratch, "random", &random(1, 100_000)),
        put(scratch, "truncated", &good[..good.len() / 2]),
        put(scratch, "header-only", &good[..64]),
        put(scratch, "flipped", &flipped),
        put(scratch, "vast", &vast),
        put(scratch, "shape", &shape),
        put(scratch, "json", b"{\"model_type\": 7}"),
        put(scratch, "lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"),
        checkpoint(scratch, "no-weights", &config, b""),
        checkpoint(scratch, "cut-weights", &config, &weights[..weights.len() - 1]),
        checkpoint(scratch, "random-weights", &config, &random(2, 4096)),
        checkpoint(scratch, "random-config", &random(3, 512), &weights),
        checkpoint(scratch, "deep-config", "[".repeat(100_000).as_bytes(), &weights),
    ]
}

#[test]
fn every_command_names_the_file_and_leaves_nothing() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let vault = scratch.path().join("good.vault");
    smoe(&["quantize", demo().to_str().expect("UTF-8"), "-o", vault.to_str().expect("UTF-8")]).expect(0);
    let out = scratch.path().join("output");
    fs::create_dir(&out).expect("scratch is writable");
    let text = scratch.path().join("text.txt");
    fs::write(&text, "Some words.").expect("scratch is writable");
    let smoe_file = scratch.path().join("random");
    for file in hostile(scratch.path(), &vault) {
        for reader in READERS {
            // With an ending of its own only what was put there exists; a text of junk is still a text.
            if reader.contains("{}.") && !Path::new(&format!("{}.jsonl", file.display())).exists() {
                continue;
            }
            // A config.json is all that `plan` needs.
            if reader == "plan {}" && file.ends_with("no-weights") {
                continue;
            }
            let words = reader.replace("DEMO", &demo().to_string_lossy()).replace("TEXT", &text.to_string_lossy());
            let words = words.replace("OUT", &out.join("x").to_string_lossy());
            let words = words.replace("SMOE", &smoe_file.to_string_lossy());
            judge(&line(&words, &file), &file);
            assert_eq!(names(&out), [""; 0], "{words}: leaves something, {}", file.display());
        }
    }
}

/// Exit code 2 (or, for `verify`, 1), the file's name, and no trace of a panic.
fn judge(arguments: &[String], file: &Path) {
    let ran = smoe(arguments);
    let case = format!("smoe {}\n{}{}", arguments.join(" "), ran.stdout, ran.stderr);
    assert!(ran.code == 2 || (ran.code == 1 && arguments[0] == "verify"), "code {}: {case}", ran.code);
    let name = file.file_name().expect("has a name").to_string_lossy().into_owned();
    let named = [&ran.stderr, &ran.stdout].iter().any(|text| text.contains(&name));
    // `import` looks at the .smoe file before its trunk.
    assert!(named || arguments.contains(&"--trunk".to_owned()), "does not name the file: {case}");
    for trace in ["panicked", "internal fault", "RUST_BACKTRACE", "stack overflow"] {
        assert!(!ran.stderr.contains(trace), "{case}");
    }
}
