//! This repository keeps the house rules of STYLE.md.

use smoe_tidy::{Faults, Repository};
use std::path::Path;

fn check(rule: fn(&Repository) -> Faults) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let faults = rule(&Repository::open(&root));
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

macro_rules! rules {
    ($($rule:ident),* $(,)?) => {$(
        #[test]
        fn $rule() {
            check(smoe_tidy::$rule);
        }
    )*};
}

rules![
    arrows_point_up,
    crate_tables_are_true,
    crates_forbid_unsafe,
    family_names,
    file_lengths,
    file_names,
    file_sizes,
    ignored_tests,
    links_are_alive,
    lints_are_on,
    named_tests_exist,
    printing,
    readme_commands_exist,
    safety_notes,
    sleeping_tests,
    todos,
];
