//! An evaluation of two made-up models against numbers that `reference.py` computed with numpy.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use smoe_engine::sampler::SplitMix64;
use smoe_gate::{Control, EvalOptions, GateError, LogitsModel, ModelFault, Outcome, Windows, evaluate};

const VOCAB: usize = 23;
/// Document and length of each row, as in `reference.py`.
const ROWS: [(i32, usize); 11] =
    [(0, 9), (0, 9), (4, 9), (1, 3), (1, 9), (2, 9), (7, 2), (0, 9), (5, 9), (5, 9), (3, 6)];
/// Both sides sum some tens of f64 values of order 1 in different orders.
const TOLERANCE: f64 = 1e-12;

fn windows() -> Windows {
    let mut rng = SplitMix64::new(12345);
    let mut row = |length| (0..length).map(|_| (rng.next_u64() % VOCAB as u64) as u32).collect();
    let rows: Vec<Vec<u32>> = ROWS.iter().map(|(_, length)| row(*length)).collect();
    Windows::from_rows("made up", &rows, &ROWS.map(|(document, _)| document)).expect("rows")
}

/// Logits that depend on every id so far.
struct MadeUp {
    noise: f32,
    damage: Option<f32>,
}

impl MadeUp {
    fn noisy(noise: f32) -> Self {
        Self { noise, damage: None }
    }
}

fn made_up_logits(window: &[u32], seed: u64) -> Vec<f32> {
    let mut key = seed;
    let mut out = Vec::new();
    for id in window {
        key = key.wrapping_mul(31).wrapping_add(u64::from(*id) + 1);
        let mut rng = SplitMix64::new(key);
        out.extend((0..VOCAB).map(|_| ((rng.next_u64() >> 40) as f64 / 2f64.powi(24) * 8.0 - 4.0) as f32));
    }
    out
}

impl LogitsModel for MadeUp {
    fn vocab(&self) -> usize {
        VOCAB
    }

    fn logits(&mut self, window: &[u32]) -> Result<Vec<f32>, ModelFault> {
        let noise = made_up_logits(window, 2);
        let mut logits = made_up_logits(window, 1);
        logits.iter_mut().zip(noise).for_each(|(logit, noise)| *logit += self.noise * noise);
        if let Some(damage) = self.damage {
            logits[5] = damage;
        }
        Ok(logits)
    }
}

fn run(mut candidate: MadeUp, reference: Option<MadeUp>, threads: usize) -> Result<Outcome, GateError> {
    let options = EvalOptions { seed: 7, threads, per_token: true, ..EvalOptions::default() };
    let mut reference = reference;
    let mut steps = 0;
    let mut progress = |step: smoe_gate::Progress| {
        steps += 1;
        assert_eq!((step.rows, step.total), (steps, ROWS.len()));
    };
    let mut control = Control { progress: &mut progress, cancel: &AtomicBool::new(false) };
    let reference = reference.as_mut().map(|model| model as &mut dyn LogitsModel);
    evaluate(&mut candidate, reference, &windows(), &options, &mut control)
}

fn expected() -> Value {
    serde_json::from_str(include_str!("reference.json")).expect("JSON")
}

fn close(name: &str, got: &Value, want: &Value) {
    match (got, want) {
        (Value::Array(got), Value::Array(want)) => {
            assert_eq!(got.len(), want.len(), "{name}");
            got.iter().zip(want).for_each(|(got, want)| close(name, got, want));
        }
        _ => {
            let (got, want) = (got.as_f64().expect(name), want.as_f64().expect(name));
            assert!((got - want).abs() <= TOLERANCE, "{name}: got {got}, want {want}");
        }
    }
}

#[test]
fn every_number_is_that_of_the_independent_computation() {
    let outcome = run(MadeUp::noisy(0.25), Some(MadeUp::noisy(0.0)), 0).expect("evaluates");
    let (got, want) = (serde_json::to_value(&outcome.report).expect("JSON"), expected());
    let keys = [
        "nll",
        "nll_interval",
        "tokens",
        "windows",
        "documents",
        "dnll",
        "dnll_interval",
        "kld",
        "kld_interval",
        "top1",
        "top1_interval",
    ];
    for key in keys {
        close(key, &got[key], &want[key]);
    }
    // Kept as f32: half a unit in the last place of a value below 4.
    let p99 = outcome.report.kld_p99.expect("against a reference");
    assert!((p99 - want["kld_p99"].as_f64().expect("a number")).abs() < 4.0 * f64::from(f32::EPSILON));
    assert_eq!(outcome.report.notes, Vec::<String>::new());
}

#[test]
fn tokens_are_those_of_the_independent_computation() {
    let per_token = run(MadeUp::noisy(0.25), None, 2).expect("evaluates").per_token.expect("asked for");
    let want = expected();
    assert_eq!((per_token.rows, per_token.width), (11, 8));
    for row in 0..per_token.rows {
        for column in 0..per_token.width {
            let cell = row * per_token.width + column;
            assert_eq!(Value::from(per_token.argmax[cell]), want["per_token_argmax"][row][column], "{row} {column}");
            match want["per_token_nll"][row][column].as_f64() {
                Some(nll) => assert!((f64::from(per_token.nll[cell]) - nll).abs() < 1e-6, "{row} {column}"),
                None => assert!(per_token.nll[cell].is_nan(), "{row} {column}"),
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_and_a_model_equals_itself() {
    let [one, three] = [1, 3].map(|threads| run(MadeUp::noisy(0.25), Some(MadeUp::noisy(0.0)), threads));
    let (one, three) = (one.expect("evaluates"), three.expect("evaluates"));
    assert_eq!((&one.report, &one.documents), (&three.report, &three.documents));
    let same = run(MadeUp::noisy(0.25), Some(MadeUp::noisy(0.25)), 0).expect("evaluates").report;
    assert_eq!((same.dnll, same.kld, same.kld_p99, same.top1), (Some(0.0), Some(0.0), Some(0.0), Some(1.0)));
    assert_eq!((same.dnll_interval, same.kld_interval), (Some([0.0, 0.0]), Some([0.0, 0.0])));
}

#[test]
fn one_document_has_no_interval_and_says_so() {
    let windows = Windows::from_rows("one", &[vec![1, 2, 3], vec![4, 5]], &[9, 9]).expect("rows");
    let mut control = Control { progress: &mut |_| (), cancel: &AtomicBool::new(false) };
    let outcome =
        evaluate(&mut MadeUp::noisy(0.0), None, &windows, &EvalOptions::default(), &mut control).expect("evaluates");
    assert_eq!((outcome.report.tokens, outcome.report.documents, outcome.report.nll_interval), (3, 1, None));
    assert_eq!(outcome.report.notes, ["one document: no interval can be given"]);
    assert_eq!((outcome.report.dnll, outcome.report.kld_interval), (None, None));
}

#[test]
fn faults_are_named() {
    let damaged = |damage| MadeUp { noise: 0.0, damage: Some(damage) };
    for (candidate, reference, message) in [
        (damaged(f32::NAN), None, "candidate, window 0: position 0: expected finite logits, found NaN or infinity"),
        (
            MadeUp::noisy(0.1),
            Some(damaged(f32::INFINITY)),
            "reference, window 0: position 0: expected finite logits, found NaN or infinity",
        ),
    ] {
        assert_eq!(run(candidate, reference, 1).expect_err("damaged").to_string(), message);
    }
    let outside = Windows::from_rows("made up", &[vec![1, 2], vec![3, 23]], &[0, 1]).expect("rows");
    let mut control = Control { progress: &mut |_| panic!("nothing runs"), cancel: &AtomicBool::new(false) };
    let error = evaluate(&mut MadeUp::noisy(0.0), None, &outside, &EvalOptions::default(), &mut control);
    assert_eq!(
        error.expect_err("an id outside").to_string(),
        "made up: row 1, position 1: found the id 23, the model's vocabulary has 23; was this text made with another \
         tokenizer?"
    );
}

#[test]
fn the_flag_stops_it() {
    let cancel = AtomicBool::new(false);
    let mut progress = |step: smoe_gate::Progress| cancel.store(step.rows == 3, Ordering::Relaxed);
    let mut control = Control { progress: &mut progress, cancel: &cancel };
    let stopped = evaluate(&mut MadeUp::noisy(0.0), None, &windows(), &EvalOptions::default(), &mut control);
    assert_eq!(stopped.expect_err("stopped").to_string(), "stopped after 3 of 11 windows");
}
