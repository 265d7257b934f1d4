//! Fuzzes the reading of configs and headers: `cargo run --release -p smoe-model --example fuzz [CASES [FIRST [NEW]]]`.
//!
//! Runs the cases FIRST .. FIRST + CASES (each is made from its number alone), and prints speed, the share that comes
//! past the check of the header's length, how the cases end, and the slowest and the largest. A panic, a case of more
//! than ten seconds, an allocation beyond the input's size plus 64 MiB, or an outcome that does not hold ends the run
//! with the case's number and edits. Kinds of outcome that the corpus lacks are written to the file NEW.

#[path = "../tests/forge/mod.rs"]
mod forge;
#[path = "../tests/fuzzing/mod.rs"]
mod fuzzing;

use fuzzing::judge::past_lengths;
use fuzzing::{Case, Edit, ROOM, Rng, Seed, Verdict, folder, judge, mutate, seeds, signature};
use peak_alloc::PeakAlloc;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A case takes microseconds; this is a hang.
const LONGEST: Duration = Duration::from_secs(10);

/// The case that runs now.
static NOW: AtomicU64 = AtomicU64::new(0);

struct Totals {
    cases: u64,
    past: u64,
    accepted: u64,
    slowest: (Duration, u64),
    largest: (usize, u64),
    kinds: BTreeMap<String, u64>,
}

fn main() {
    let mut numbers = std::env::args().skip(1);
    let mut number = |default| numbers.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (cases, first): (u64, u64) = (number(100_000), number(0));
    let new = std::env::args().nth(3);
    let seeds = seeds();
    let known: Vec<Case> = corpus();
    let mut totals = Totals {
        cases: 0,
        past: 0,
        accepted: 0,
        slowest: (Duration::ZERO, 0),
        largest: (0, 0),
        kinds: known.iter().map(|case| (case.ends.clone(), 0)).collect(),
    };
    let mut out = new.map(|path| std::fs::File::create(path).expect("the file for new cases"));
    let (_run, ended) = channel();
    std::thread::spawn(move || watch(&ended));
    let start = Instant::now();
    for case in first..first + cases {
        NOW.store(case, Ordering::Relaxed);
        one(case, &seeds, &mut totals, out.as_mut());
        if totals.cases.is_multiple_of(500_000) {
            report(&totals, start);
        }
    }
    report(&totals, start);
    for (kind, count) in &totals.kinds {
        println!("{count:9} {kind}");
    }
}

/// The committed cases.
fn corpus() -> Vec<Case> {
    let lines = include_str!("../tests/fuzzing/corpus.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).expect("a case")).collect()
}

/// Ends the process when one case does not end.
fn watch(run: &Receiver<()>) {
    let (mut last, mut since) = (u64::MAX, Instant::now());
    while run.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let now = NOW.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > 6 * LONGEST {
            eprintln!("case {now} hangs");
            std::process::exit(3);
        }
    }
}

/// A case by its number.
fn made(case: u64, seeds: &[Seed]) -> (&Seed, Vec<Edit>) {
    let mut rng = Rng(case.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let seed = rng.pick(seeds);
    let edits = mutate(seeds, seed, &mut rng);
    (seed, edits)
}

fn one(case: u64, seeds: &[Seed], totals: &mut Totals, out: Option<&mut std::fs::File>) {
    let (seed, edits) = made(case, seeds);
    let folder = folder(seed, &edits);
    let small = folder.config.len() + folder.index.as_ref().map_or(0, Vec::len);
    let size = folder.files.iter().fold(small as u64, |n, file| n.saturating_add(file.len));
    MEMORY.reset_peak_usage();
    let (before, start) = (MEMORY.current_usage(), Instant::now());
    let outcome = catch_unwind(AssertUnwindSafe(|| judge(&folder)));
    let (taken, used) = (start.elapsed(), MEMORY.peak_usage().saturating_sub(before));
    let fail = |what: &str| -> ! {
        println!("case {case}: {what}\n{}\n{}", seed.name, serde_json::to_string(&edits).expect("JSON"));
        std::process::exit(1);
    };
    let verdict = match outcome {
        Err(_) => fail("panicked"),
        Ok(Err(fault)) => fail(&fault),
        Ok(Ok(verdict)) => verdict,
    };
    if taken > LONGEST {
        fail(&format!("took {taken:?}"));
    }
    if used as u64 > size.saturating_add(ROOM) {
        fail(&format!("took {used} B for an input of {size} B"));
    }
    totals.cases += 1;
    totals.past += u64::from(past_lengths(&folder, &verdict));
    totals.accepted += u64::from(verdict == Verdict::Accepted);
    totals.slowest = totals.slowest.max((taken, case));
    totals.largest = totals.largest.max((used, case));
    let ends = signature(&verdict);
    let count = totals.kinds.entry(ends.clone()).or_default();
    *count += 1;
    if *count == 1
        && let Some(out) = out
        && seed.tensors.len() < 1 << 12
    {
        let case = Case { seed: seed.name.clone(), edits: smaller(seed, edits, &ends), ends };
        let line = serde_json::to_string(&case).expect("JSON");
        if line.len() < 1500 {
            writeln!(out, "{line}").expect("written");
        }
    }
}

/// The edits without those that change nothing about how the case ends.
fn smaller(seed: &Seed, mut edits: Vec<Edit>, ends: &str) -> Vec<Edit> {
    let mut at = 0;
    while at < edits.len() {
        let mut fewer = edits.clone();
        fewer.remove(at);
        match judge(&folder(seed, &fewer)) {
            Ok(verdict) if signature(&verdict) == ends => edits = fewer,
            _ => at += 1,
        }
    }
    edits
}

fn report(totals: &Totals, start: Instant) {
    let Totals { cases, past, accepted, slowest, largest, kinds } = totals;
    let (seconds, share) = (start.elapsed().as_secs_f64(), |n: &u64| 100.0 * *n as f64 / *cases as f64);
    println!(
        "{cases} cases in {seconds:.0} s, {:.0} a second; {:.1} % past the header's length, {:.1} % accepted; {} kinds; \
         slowest {:.1} ms (case {}), largest {:.1} MiB (case {})",
        *cases as f64 / seconds,
        share(past),
        share(accepted),
        kinds.len(),
        slowest.0.as_secs_f64() * 1e3,
        slowest.1,
        largest.0 as f64 / f64::from(1 << 20),
        largest.1
    );
}
