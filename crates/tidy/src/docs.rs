//! Rules on the documents.

use crate::{Faults, Repository};

/// Relative links of every Markdown file lead to a file or folder of the repository.
#[must_use]
pub fn links_are_alive(repository: &Repository) -> Faults {
    let mut faults = Faults::new();
    for (path, text) in repository.texts(".md") {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let prose = text.split("```").step_by(2);
        for target in prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or("").trim_end_matches('/');
            let elsewhere = target.contains("://") || target.starts_with("mailto:") || file.is_empty();
            if !elsewhere && !exists(repository, &joined(folder, file)) {
                faults.push(format!("{path}: `{target}` leads nowhere"));
            }
        }
    }
    faults
}

fn exists(repository: &Repository, path: &str) -> bool {
    repository.files.iter().any(|f| f.path == path || f.path.starts_with(&format!("{path}/")))
}

/// `target` seen from `folder`, without `.` and `..`.
fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Lines of the `sh` blocks of `text`, without comments, continuations joined.
fn shell_lines(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    let lines = joined.lines().map(|line| line.split(" #").next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(String::from).collect()
}

/// `make` targets and scripts that README.md shows exist. (The commands of `smoe` are checked by the crate `cli`.)
#[must_use]
pub fn readme_commands_exist(repository: &Repository) -> Faults {
    let makefile = repository.text("Makefile");
    let mut faults = Faults::new();
    for line in shell_lines(repository.text("README.md")) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("make"), target) => {
                let target = target.unwrap_or("all");
                if !makefile.lines().any(|rule| rule.starts_with(&format!("{target}:"))) {
                    faults.push(format!("README.md: `{line}`: the Makefile has no target `{target}`"));
                }
            }
            (Some(word), _) if word.starts_with('.') && !exists(repository, word.trim_start_matches("./")) => {
                faults.push(format!("README.md: `{line}`: there is no `{word}`"));
            }
            _ => {}
        }
    }
    faults
}

/// Tests that documents name as `` `crates/…/file.rs::test` `` exist: a table of proofs does not outlive them.
#[must_use]
pub fn named_tests_exist(repository: &Repository) -> Faults {
    let mut faults = Faults::new();
    for (path, text) in repository.texts(".md") {
        for named in text.split('`').skip(1).step_by(2) {
            let Some((file, test)) = named.split_once(".rs::").filter(|(file, _)| file.starts_with("crates/")) else {
                continue;
            };
            let file = format!("{file}.rs");
            if !repository.texts(".rs").any(|(path, text)| path == file && is_test(text, test)) {
                faults.push(format!("{path}: `{named}` is no test"));
            }
        }
    }
    faults
}

/// Whether a function of this name follows `#[test]`, perhaps after other attributes.
fn is_test(text: &str, name: &str) -> bool {
    let start = format!("fn {name}(");
    let mut lines = text.lines().map(str::trim).rev().skip_while(|line| !line.starts_with(&start)).skip(1);
    lines.by_ref().take_while(|line| line.starts_with("#[")).any(|line| line == "#[test]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let text = "[a](b.md) [c](../x/d.md#part) [e](https://x.y/z) [f](#here) `[g](gone)`\n```\n[h](i.md)\n```\n";
        let repository = Repository::of(&[("docs/a.md", text), ("docs/b.md", ""), ("x/d.md", "")]);
        assert_eq!(links_are_alive(&repository), ["docs/a.md: `gone` leads nowhere"]);
    }

    #[test]
    fn commands_of_the_readme() {
        let readme = "```sh\nmake demo  # words\nmake gone\n.ci/run\n./gone.sh\nsmoe run x \\\n  -p y\n```\n";
        let repository = Repository::of(&[("README.md", readme), ("Makefile", "demo: build\n"), (".ci/run", "")]);
        let faults = readme_commands_exist(&repository);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn tests_that_are_gone_are_found() {
        let code = "#[test]\n#[cfg(unix)]\nfn a() {}\nfn b() {}\n";
        let text = "`crates/x/t.rs::a` `crates/x/t.rs::b` `crates/x/gone.rs::a` `crates/x/t.rs` `std::fs`";
        let repository = Repository::of(&[("docs/t.md", text), ("crates/x/t.rs", code)]);
        assert_eq!(
            named_tests_exist(&repository),
            ["docs/t.md: `crates/x/t.rs::b` is no test", "docs/t.md: `crates/x/gone.rs::a` is no test"]
        );
    }
}
