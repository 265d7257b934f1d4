//! Rules on files, folders and crates.

use crate::{Faults, Repository};

const MOST_BYTES: u64 = 1 << 20;

/// The demo's model is the one large file; nothing else may grow the clone.
const LARGE: [&str; 1] = ["demo/moe-3m-qwen3/model.safetensors"];

/// Crates in which `unsafe` is allowed.
const UNSAFE: [&str; 1] = ["kernels"];

/// No file over 1 MiB but the demo's model.
#[must_use]
pub fn file_sizes(repository: &Repository) -> Faults {
    let large = repository.files.iter().filter(|f| f.len_bytes > MOST_BYTES && !LARGE.contains(&f.path.as_str()));
    large
        .map(|f| format!("{}: {} bytes; at most {MOST_BYTES} belong into the repository", f.path, f.len_bytes))
        .collect()
}

/// Names that say nothing, and folders deeper than four.
#[must_use]
pub fn file_names(repository: &Repository) -> Faults {
    let mut faults = Faults::new();
    for (path, _) in repository.texts(".rs") {
        let parts: Vec<_> = path.trim_end_matches(".rs").split('/').collect();
        let vague = |part: &&&str| ["util", "utils", "helpers", "common", "manager", "misc"].contains(*part);
        if let Some(part) = parts.iter().find(vague) {
            faults.push(format!("{path}: `{part}` names no idea"));
        }
        let stem = parts.last().copied().unwrap_or("");
        if ["_new", "_old", "_fast"].iter().any(|suffix| stem.ends_with(suffix)) {
            faults.push(format!("{path}: replace the old one instead of standing beside it"));
        }
        if parts.len() > 5 {
            faults.push(format!("{path}: {} folders deep, at most 4", parts.len() - 1));
        }
    }
    faults
}

/// Each crate's root forbids `unsafe`, but for the crates that are audited for it.
#[must_use]
pub fn crates_forbid_unsafe(repository: &Repository) -> Faults {
    let mut faults = Faults::new();
    for name in repository.crates().into_iter().filter(|name| !UNSAFE.contains(name)) {
        for root in ["lib.rs", "main.rs"].map(|file| format!("crates/{name}/src/{file}")) {
            let text = repository.text(&root);
            if !text.is_empty() && !text.contains("#![forbid(unsafe_code)]") {
                faults.push(format!("{root}: add `#![forbid(unsafe_code)]`"));
            }
        }
    }
    faults
}

/// Every crate takes the workspace's lints, and the limits of STYLE.md are those of clippy.
#[must_use]
pub fn lints_are_on(repository: &Repository) -> Faults {
    let mut faults = Faults::new();
    for manifest in repository.crates().iter().map(|name| format!("crates/{name}/Cargo.toml")) {
        if !repository.text(&manifest).contains("[lints]\nworkspace = true") {
            faults.push(format!("{manifest}: add `[lints] workspace = true`"));
        }
    }
    let limits = ["too-many-lines-threshold = 70", "too-many-arguments-threshold = 6"];
    faults.extend(
        limits.iter().filter(|l| !repository.text("clippy.toml").contains(*l)).map(|l| format!("clippy.toml: `{l}`")),
    );
    let lints = [
        "too_many_lines = \"warn\"",
        "unwrap_used = \"deny\"",
        "undocumented_unsafe_blocks = \"deny\"",
        "missing_docs = \"deny\"",
    ];
    faults.extend(
        lints.iter().filter(|l| !repository.text("Cargo.toml").contains(*l)).map(|l| format!("Cargo.toml: `{l}`")),
    );
    faults
}

/// First cells of the table rows that look like "| `name`".
fn table(text: &str) -> Vec<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

/// ARCHITECTURE.md lists the crates that exist, and no other.
#[must_use]
pub fn crate_tables_are_true(repository: &Repository) -> Faults {
    let (listed, present) = (table(repository.text("ARCHITECTURE.md")), repository.crates());
    let missing = present.iter().filter(|name| !listed.contains(name));
    let mut faults: Faults = missing.map(|name| format!("ARCHITECTURE.md: the table lacks crate `{name}`")).collect();
    let gone = listed.iter().filter(|name| !present.contains(name));
    faults.extend(gone.map(|name| format!("ARCHITECTURE.md: there is no crate `{name}`")));
    faults
}

/// A crate depends only on crates above it in ARCHITECTURE.md's table.
#[must_use]
pub fn arrows_point_up(repository: &Repository) -> Faults {
    let order = table(repository.text("ARCHITECTURE.md"));
    let place = |name: &str| order.iter().position(|n| *n == name).unwrap_or(usize::MAX);
    let mut faults = Faults::new();
    for name in repository.crates() {
        let manifest = format!("crates/{name}/Cargo.toml");
        let needed = repository.text(&manifest).lines().filter_map(|line| line.strip_prefix("smoe-"));
        let needed = needed.filter_map(|rest| rest.split(['.', ' ', '=']).next());
        let wrong = needed.filter(|other| place(other) >= place(name));
        faults.extend(wrong.map(|other| format!("{manifest}: `{other}` is not above `{name}` in ARCHITECTURE.md")));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_folders() {
        let bad = ["crates/x/src/util.rs", "crates/x/src/dot_fast.rs", "crates/x/src/a/b/c.rs"];
        for path in bad {
            assert_eq!(file_names(&Repository::of(&[(path, "")])).len(), 1, "{path}");
        }
        assert!(file_names(&Repository::of(&[("crates/x/src/a/b.rs", "")])).is_empty());
    }

    #[test]
    fn crates_and_their_table() {
        let architecture = "| crate | holds |\n|---|---|\n| `a` | x |\n| `b` (binary) | y |\n";
        let good = [
            ("ARCHITECTURE.md", architecture),
            ("crates/a/Cargo.toml", "[lints]\nworkspace = true"),
            ("crates/b/Cargo.toml", "smoe-a.workspace = true\n"),
            ("crates/a/src/lib.rs", "#![forbid(unsafe_code)]\n\nfn f() {}\n"),
        ];
        let repository = Repository::of(&good);
        assert!(crate_tables_are_true(&repository).is_empty());
        assert!(arrows_point_up(&repository).is_empty());
        assert!(crates_forbid_unsafe(&repository).is_empty());
        assert!(lints_are_on(&repository)[0].contains("crates/b/Cargo.toml"));

        let mut bad = good;
        bad[1].1 = "smoe-b = { workspace = true }";
        bad[3].1 = "\n\n\nfn f() {}";
        let mut bad = bad.to_vec();
        bad.push(("crates/c/Cargo.toml", ""));
        let repository = Repository::of(&bad);
        assert_eq!(crate_tables_are_true(&repository).len(), 1);
        assert_eq!(arrows_point_up(&repository).len(), 1);
        assert_eq!(crates_forbid_unsafe(&repository).len(), 1);
    }
}
