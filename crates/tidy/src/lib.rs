//! The house rules of STYLE.md as functions: each takes the repository's files and returns what breaks the rule.
//!
//! `tests/house_rules.rs` runs them over this repository; the tests here show that each rule sees what it is for.
#![forbid(unsafe_code)]

mod docs;
mod layout;
mod repository;
mod source;

pub use docs::{links_are_alive, named_tests_exist, readme_commands_exist};
pub use layout::{arrows_point_up, crate_tables_are_true, crates_forbid_unsafe, file_names, file_sizes, lints_are_on};
pub use repository::{File, Repository};
pub use source::{family_names, file_lengths, ignored_tests, printing, safety_notes, sleeping_tests, todos};

/// What breaks a rule, one line each: `path:line: what to do`.
pub type Faults = Vec<String>;
