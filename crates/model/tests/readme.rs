//! The README's table of families is the code's.

mod forge;

use forge::{golden_configs, of_config};
use smoe_model::families;
use std::collections::BTreeSet;
use std::path::Path;

/// The `model_type`s of each row.
fn rows() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(path).expect("the README");
    let table = text.lines().skip_while(|line| !line.starts_with("| family (`model_type`)")).skip(2);
    let cell = |line: &str| line.split('|').nth(1).unwrap_or("").to_owned();
    let words = |cell: String| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    table.take_while(|line| line.starts_with('|')).map(|line| words(cell(line))).collect()
}

#[test]
fn its_rows_are_the_families_and_their_types() {
    let types = |types: &[&str]| types.iter().map(|t| (*t).to_owned()).collect::<BTreeSet<_>>();
    let ours: BTreeSet<_> = families::ALL.iter().map(|family| types(family.model_types)).collect();
    let theirs: BTreeSet<BTreeSet<String>> = rows().into_iter().map(|row| row.into_iter().collect()).collect();
    assert_eq!(theirs, ours);
}

/// What the table says was verified was verified: each family has a golden config, from which a checkpoint opens.
#[test]
fn every_row_has_a_golden_model() {
    let mut verified = BTreeSet::new();
    for (name, config) in golden_configs() {
        let model = of_config(config).open().unwrap_or_else(|e| panic!("{name}: {e}"));
        verified.insert(model.plan().spec.family.clone());
    }
    let all: BTreeSet<_> = families::ALL.iter().map(|family| family.name.to_owned()).collect();
    assert_eq!(verified, all);
}
