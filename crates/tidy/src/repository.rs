//! The files of the repository, read once.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the repository.
#[derive(Debug, Clone)]
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Contents, where they are UTF-8.
    pub text: Option<String>,
}

/// All files that belong to the repository: tracked, or new and not ignored.
#[derive(Debug, Clone)]
pub struct Repository {
    /// In the order of their paths.
    pub files: Vec<File>,
}

impl Repository {
    /// Reads the repository around `root`.
    ///
    /// # Panics
    /// Where the folder cannot be read: a rule that checks nothing must not pass.
    #[must_use]
    pub fn open(root: &Path) -> Self {
        let mut paths = listed_by_git(root).unwrap_or_else(|| walked(root));
        paths.sort();
        paths.dedup();
        let files = paths.iter().filter_map(|path| read(root, path)).collect::<Vec<_>>();
        assert!(files.len() > 20, "only {} files under {}: not the repository", files.len(), root.display());
        Self { files }
    }

    /// A repository of the given texts, for tests of rules.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            len_bytes: text.len() as u64,
            text: Some(text.into()),
        };
        Self { files: files.iter().map(file).collect() }
    }

    /// The file at `path`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|f| f.path == path)
    }

    /// The text at `path`; empty where there is none.
    #[must_use]
    pub fn text(&self, path: &str) -> &str {
        self.get(path).and_then(|f| f.text.as_deref()).unwrap_or("")
    }

    /// Paths and texts of the files whose names end in `suffix`.
    pub fn texts<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let named = self.files.iter().filter(move |f| f.path.ends_with(suffix));
        named.filter_map(|f| Some((f.path.as_str(), f.text.as_deref()?)))
    }

    /// Names of the folders in `crates/`, sorted.
    #[must_use]
    pub fn crates(&self) -> Vec<&str> {
        let manifest = |f: &'_ File| f.path.ends_with("/Cargo.toml") && f.path.split('/').count() == 3;
        let manifests = self.files.iter().filter(|f| manifest(f));
        manifests.filter_map(|f| f.path.strip_prefix("crates/")?.split('/').next()).collect()
    }
}

fn read(root: &Path, path: &str) -> Option<File> {
    let full = root.join(path);
    let len_bytes = full.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let text = if len_bytes < 4 << 20 { std::fs::read(&full).ok() } else { None };
    Some(File { path: path.into(), len_bytes, text: text.and_then(|bytes| String::from_utf8(bytes).ok()) })
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let names = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(names.split('\0').filter(|name| !name.is_empty()).map(String::from).collect())
}

/// Without git (an unpacked archive): everything but build output and hidden folders other than `.ci`.
fn walked(root: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::from(root)]);
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|e| e.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && name != ".ci";
            match path.is_dir() {
                true if !hidden && name != "target" => folders.push(path),
                true => {}
                false => found.extend(path.strip_prefix(root).ok().map(|p| p.to_string_lossy().replace('\\', "/"))),
            }
        }
    }
    found
}
