//! Rules on Rust source.

use crate::{Faults, Repository};

/// Lines of a file without its tests.
pub(crate) const MOST_LINES: usize = 500;

/// `model_type`s and other names of families: nothing outside the families' folder and tests may decide by one.
const FAMILIES: [&str; 22] = [
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5_moe",
    "olmoe",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
    "kimi_k2_thinking",
    "glm4_moe",
    "glm4_moe_lite",
    "gpt_oss",
    "minimax_m2",
    "granitemoe",
    "lfm2_moe",
    "ernie4_5_moe",
    "hunyuan_v1_moe",
    "dots1",
    "phimoe",
    "llama4",
    "glm_moe_dsa",
];

/// Whether all of the file is a test or a fixture.
fn is_test(path: &str) -> bool {
    let mut parts = path.split('/').rev();
    let name = parts.next().unwrap_or("");
    let folders = ["tests", "testing", "fixtures", "benches", "examples"];
    name == "tests.rs" || name.ends_with("_tests.rs") || parts.any(|folder| folders.contains(&folder))
}

/// Lines and their numbers.
type Lines = Vec<(usize, String)>;

/// The lines before `#[cfg(test)] mod`, numbered from 1, and those of the tests after it.
fn split(path: &str, text: &str) -> (Lines, Lines) {
    let lines: Vec<_> = text.lines().enumerate().map(|(i, line)| (i + 1, line.to_owned())).collect();
    if is_test(path) {
        return (Vec::new(), lines);
    }
    let starts = |i: usize| {
        let mut after = lines[i + 1..].iter().map(|(_, l)| l.trim()).skip_while(|l| l.starts_with("#["));
        lines[i].1.starts_with("#[cfg(test)]") && after.next().is_some_and(|l| l.contains("mod ") && l.ends_with('{'))
    };
    let at = (0..lines.len()).find(|&i| starts(i)).unwrap_or(lines.len());
    let tests = lines[at..].to_vec();
    (lines[..at].to_vec(), tests)
}

/// Runs `fault` on each line of code (not of tests) and each line of tests, told apart by its third argument.
fn each_line(repository: &Repository, fault: impl Fn(&str, &str, bool) -> Option<String>) -> Faults {
    let mut faults = Faults::new();
    // The rules' own words and cases are no breach.
    for (path, text) in repository.texts(".rs").filter(|(path, _)| !path.starts_with("crates/tidy/")) {
        let (code, tests) = split(path, text);
        for (lines, in_tests) in [(code, false), (tests, true)] {
            let said =
                lines.iter().filter_map(|(n, line)| Some(format!("{path}:{n}: {}", fault(path, line, in_tests)?)));
            faults.extend(said);
        }
    }
    faults
}

/// No file over 500 lines without its tests; generated tables are exempt.
#[must_use]
pub fn file_lengths(repository: &Repository) -> Faults {
    let generated = |text: &str| text.lines().take(3).any(|line| line.contains("@generated"));
    let files = repository.texts(".rs").filter(|(_, text)| !generated(text));
    let counted = files.map(|(path, text)| (path, split(path, text).0.len()));
    counted
        .filter(|&(_, n)| n > MOST_LINES)
        .map(|(path, n)| format!("{path}: {n} lines without tests; split it"))
        .collect()
}

/// A `TODO` carries the number of its issue.
#[must_use]
pub fn todos(repository: &Repository) -> Faults {
    each_line(repository, |_, line, _| {
        let word = ["TODO", "FIXME", "XXX"].into_iter().find(|word| has_word(line, word))?;
        let after = line.split(word).nth(1).unwrap_or("");
        let numbered = after.strip_prefix("(#").is_some_and(|s| s.starts_with(|c: char| c.is_ascii_digit()));
        (!numbered).then(|| format!("`{word}` without an issue's number: `TODO(#12)`"))
    })
}

/// No test is ignored.
#[must_use]
pub fn ignored_tests(repository: &Repository) -> Faults {
    each_line(repository, |_, line, _| {
        line.trim_start().starts_with("#[ignore").then(|| "a test that nobody runs; make it quick or remove it".into())
    })
}

/// No test waits by the clock.
#[must_use]
pub fn sleeping_tests(repository: &Repository) -> Faults {
    each_line(repository, |_, line, in_tests| {
        let sleeps = in_tests && ["sleep(", "sleep_ms(", "park_timeout("].iter().any(|call| line.contains(call));
        sleeps.then(|| "a test sleeps; wait for the event itself".into())
    })
}

/// Only the command line prints.
#[must_use]
pub fn printing(repository: &Repository) -> Faults {
    each_line(repository, |path, line, in_tests| {
        let may = in_tests || path.starts_with("crates/cli/") || path.ends_with("build.rs");
        let code = line.trim_start();
        let prints = ["println!(", "eprintln!(", "print!(", "eprint!("].iter().any(|call| code.contains(call));
        (!may && prints && !code.starts_with("//")).then(|| "a library prints; return it to the command line".into())
    })
}

/// No family's name outside the families' folder, fixtures and tests.
#[must_use]
pub fn family_names(repository: &Repository) -> Faults {
    each_line(repository, |path, line, in_tests| {
        if in_tests || path.starts_with("crates/model/src/families/") {
            return None;
        }
        let name = FAMILIES.into_iter().find(|name| has_word(line, name))?;
        Some(format!("the family's name `{name}` belongs to crates/model/src/families/"))
    })
}

/// `// SAFETY:` above each unsafe block and impl, `# Safety` in the docs of each unsafe function.
#[must_use]
pub fn safety_notes(repository: &Repository) -> Faults {
    let mut faults = Faults::new();
    for (path, text) in repository.texts(".rs").filter(|(path, _)| !path.starts_with("crates/tidy/")) {
        let lines: Vec<_> = text.lines().collect();
        for (i, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let is_fn = code.contains("unsafe fn ") && !code.contains("(unsafe fn");
            let is_block = has_word(code, "unsafe") && (code.contains("unsafe {") || code.contains("unsafe impl"));
            let wanted = if is_fn { "# Safety" } else { "SAFETY:" };
            if (is_fn || is_block) && !noted(&lines[..i], line, wanted) {
                faults.push(format!("{path}:{}: `{wanted}` is missing above", i + 1));
            }
        }
    }
    faults
}

/// Whether the line, or the comments and attributes right above its statement, contain `note`.
fn noted(above: &[&str], line: &str, note: &str) -> bool {
    let mut seen_comment = false;
    for before in std::iter::once(line).chain(above.iter().rev().copied()) {
        if before.contains(note) {
            return true;
        }
        let text = before.trim();
        let comment = text.starts_with("//");
        // Past its comment a statement's note is no longer this one's; before it, up to the statement's start.
        if (seen_comment && !comment && !text.starts_with('#')) || (text.is_empty() && !std::ptr::eq(before, line)) {
            return false;
        }
        seen_comment |= comment;
        let ended = text.ends_with(';') || text.ends_with('}') || text.ends_with("=> {");
        if ended && !std::ptr::eq(before, line) {
            return false;
        }
    }
    false
}

/// Whether `word` occurs in `line` with no letter, digit or `_` beside it.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word)
        .any(|(at, _)| !joins(line[..at].chars().next_back()) && !joins(line[at + word.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rule` finds `faults` in a file of code and in one of tests.
    fn check(rule: fn(&Repository) -> Faults, text: &str, in_code: usize, in_tests: usize) {
        let code = Repository::of(&[("crates/x/src/lib.rs", text)]);
        let tests = Repository::of(&[("crates/x/tests/a.rs", text)]);
        assert_eq!((rule(&code).len(), rule(&tests).len()), (in_code, in_tests), "{text}");
    }

    #[test]
    fn each_rule_sees_its_breach() {
        let long = "\n".repeat(MOST_LINES + 1);
        check(file_lengths, &long, 1, 0);
        check(file_lengths, &format!("// @generated{long}"), 0, 0);
        check(file_lengths, &format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{{long}}}"), 0, 0);
        check(todos, "// TODO: later", 1, 1);
        check(todos, "// TODO(#12): later", 0, 0);
        check(ignored_tests, "#[ignore]", 1, 1);
        check(ignored_tests, "#[ignore = \"slow\"]", 1, 1);
        check(sleeping_tests, "std::thread::sleep(d);", 0, 1);
        check(sleeping_tests, "#[cfg(test)]\n#[allow(x)]\nmod tests {\n sleep(d);\n}", 1, 1);
        check(printing, "println!(\"x\");", 1, 0);
        check(family_names, "if t == \"qwen3_moe\" {}", 1, 0);
        check(family_names, "// as in olmoe", 1, 0);
        check(family_names, "// DeepSeek-V2, section 2.1; dots10", 0, 0);
    }

    #[test]
    fn unsafe_needs_its_note() {
        check(safety_notes, "fn f() {\n    unsafe { g() }\n}", 1, 1);
        check(safety_notes, "fn f() {\n    // SAFETY: g is fine.\n    unsafe { g() }\n}", 0, 0);
        check(safety_notes, "fn f() {\n    // SAFETY: g is fine.\n    let x =\n        unsafe { g() };\n}", 0, 0);
        check(safety_notes, "// SAFETY: a.\nlet a = unsafe { g() };\nlet b = unsafe { g() };", 1, 1);
        check(safety_notes, "/// Doc.\nunsafe fn f() {}", 1, 1);
        check(safety_notes, "/// Doc.\n///\n/// # Safety\n/// Aligned.\n#[inline]\npub unsafe fn f() {}", 0, 0);
    }
}
