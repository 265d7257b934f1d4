//! The fuzzer's corpus, and a few thousand fresh cases. The long run is `examples/fuzz.rs`.
//!
//! After a change of messages that is meant: `SMOE_BLESS=1 cargo test --release -p smoe-model --test fuzz`.

mod forge;
mod fuzzing;

use fuzzing::judge::past_lengths;
use fuzzing::{Case, Edit, ROOM, Rng, Seed, Verdict, folder, judge, mutate, seeds, signature};
use peak_alloc::PeakAlloc;
use std::path::Path;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs a case; a panic, too much memory, or an outcome that does not hold fails the test. Also whether it came past the
/// check of the header's length.
fn run(what: &str, seed: &Seed, edits: &[Edit]) -> (Verdict, bool) {
    let folder = folder(seed, edits);
    let small = folder.config.len() + folder.index.as_ref().map_or(0, Vec::len);
    let size = folder.files.iter().fold(small as u64, |n, file| n.saturating_add(file.len));
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let verdict = judge(&folder).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let used = MEMORY.peak_usage().saturating_sub(before) as u64;
    assert!(used <= size.saturating_add(ROOM), "{what}: took {used} B for an input of {size} B");
    let past = past_lengths(&folder, &verdict);
    (verdict, past)
}

/// One test, so that nothing else takes memory beside a case.
#[test]
fn the_corpus_replays_and_fresh_cases_hold() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzzing/corpus.jsonl");
    let text = std::fs::read_to_string(&path).expect("the corpus");
    let seeds = seeds();
    for seed in &seeds {
        assert_eq!(run(&seed.name, seed, &[]), (Verdict::Accepted, true), "{}", seed.name);
    }
    let mut blessed = String::new();
    for (i, line) in text.lines().enumerate() {
        let mut case: Case = serde_json::from_str(line).expect("a case");
        let what = format!("corpus.jsonl:{}", i + 1);
        let seed = seeds.iter().find(|seed| seed.name == case.seed).unwrap_or_else(|| panic!("{what}: no such seed"));
        let (verdict, _) = run(&what, seed, &case.edits);
        let ends = signature(&verdict);
        if std::env::var_os("SMOE_BLESS").is_some() {
            case.ends = ends;
            blessed += &(serde_json::to_string(&case).expect("JSON") + "\n");
        } else {
            assert_eq!(ends, case.ends, "{what}: {verdict:?}");
        }
    }
    if !blessed.is_empty() {
        std::fs::write(&path, blessed).expect("written");
    }
    let cases = std::env::var("SMOE_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(5000);
    let (mut past, mut accepted) = (0, 0);
    for case in 0..cases {
        let mut rng = Rng(case);
        let seed = rng.pick(&seeds);
        let edits = mutate(&seeds, seed, &mut rng);
        let (verdict, came) = run(&format!("case {case}, {}, {edits:?}", seed.name), seed, &edits);
        past += u64::from(came);
        accepted += u64::from(verdict == Verdict::Accepted);
    }
    println!("{cases} fresh cases: {past} past the header's length, {accepted} understood");
    assert!(2 * past >= cases && accepted > 0, "{past} and {accepted} of {cases}: the edits reach too little");
}
