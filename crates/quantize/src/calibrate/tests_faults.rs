//! Faults put in on purpose: each is caught under its name.

use super::*;
use std::collections::BTreeSet;

/// Changes what the capture or the solver hands on.
struct Hand<M, E> {
    moments: M,
    encoded: E,
}

impl<M, E> Tamper for Hand<M, E>
where
    M: Fn(TensorAt, &mut Moments) + Sync,
    E: Fn(TensorAt, &Encoded, &mut Encoded) + Sync,
{
    fn moments(&self, at: TensorAt, seen: &mut Moments, _: &mut Moments) {
        (self.moments)(at, seen);
    }

    fn encoded(&self, at: TensorAt, twin: &Encoded, encoded: &mut Encoded) {
        (self.encoded)(at, twin, encoded);
    }
}

fn toy() -> Toy {
    Toy::new(21, (3, 64, 64, 200))
}

/// The fault of a statistic that `change` made of a real one.
fn statistic_fault(change: impl Fn(TensorAt, &mut Moments) + Sync) -> (TensorAt, StatisticFault) {
    let (toy, hand) = (toy(), Hand { moments: change, encoded: |_, _: &Encoded, _: &mut Encoded| {} });
    match calibrate_layer(&toy.layer(), &toy, &options(Codec::Q2), &hand) {
        Err(CalibrateError::Statistic { at, fault }) => (at, fault),
        Err(other) => panic!("expected a broken statistic, found {other}"),
        Ok(_) => panic!("expected a broken statistic, found a solution"),
    }
}

fn fill(moments: &mut Moments, value: impl Fn(usize, usize) -> f64) {
    let cols = moments.cols();
    (0..cols * cols).for_each(|at| moments.second[at] = value(at / cols, at % cols));
}

#[test]
fn identity_statistics_are_refused() {
    let (at, fault) = statistic_fault(|at, m| {
        if at.expert == 1 {
            fill(m, |i, j| f64::from(u8::from(i == j)));
        }
    });
    assert_eq!((at.expert, fault), (1, StatisticFault::Identity(1.0)));
}

#[test]
fn constant_statistics_are_refused() {
    let (at, fault) = statistic_fault(|at, m| {
        if at.projection == Projection::Down && at.expert == 2 {
            fill(m, |_, _| 0.5);
        }
    });
    assert_eq!((at.expert, at.projection, fault), (2, Projection::Down, StatisticFault::Constant(0.5)));
}

#[test]
fn statistics_that_are_not_finite_or_negative_are_refused() {
    assert_eq!(statistic_fault(|_, m| m.second[5] = f64::NAN).1, StatisticFault::NotFinite);
    let negative = statistic_fault(|_, m| m.second[2 * 64 + 2] = -1.0).1;
    assert_eq!(negative, StatisticFault::Negative { column: 2, value: -1.0 });
}

/// A hook that never fires, or loses an expert.
#[test]
fn dropped_statistics_are_refused() {
    let (at, fault) = statistic_fault(|at, m| {
        if at.expert == 0 {
            *m = Moments::new(m.cols(), m.cross.is_some());
        }
    });
    assert!(matches!(fault, StatisticFault::Tokens { expected, found } if found < expected), "{at}: {fault}");
    let everything = statistic_fault(|_, m| *m = Moments::new(m.cols(), m.cross.is_some()));
    assert!(matches!(everything.1, StatisticFault::Tokens { .. }));
}

/// The same statistic for every expert.
#[test]
fn repeated_statistics_are_refused() {
    let (_, fault) =
        statistic_fault(|_, m| fill(m, |i, j| 1.0 / (1.0 + i.abs_diff(j) as f64) + (i == j) as u8 as f64 * i as f64));
    assert!(matches!(fault, StatisticFault::Repeated(_)), "{fault}");
}

#[test]
fn one_input_for_all_tokens_is_refused() {
    let mut toy = toy();
    let first = toy.x[..64].to_vec();
    toy.x.chunks_exact_mut(64).for_each(|x| x.copy_from_slice(&first));
    let error = toy.calibrate(&options(Codec::Q2)).expect_err("constant inputs");
    assert!(matches!(error, CalibrateError::Statistic { fault: StatisticFault::OneInput(200), .. }), "{error}");
}

/// Codes overwritten by round-to-nearest: in one matrix, in a projection, in a layer.
#[test]
fn codes_equal_to_the_twin_fail_by_name() {
    type Hit = fn(TensorAt) -> bool;
    let hit: [(&str, Hit); 3] = [
        ("layer 3 expert 1 up", |at| at.expert == 1 && at.projection == Projection::Up),
        ("layer 3 expert 0 down, layer 3 expert 1 down, layer 3 expert 2 down", |at| at.projection == Projection::Down),
        ("layer 3 expert 2 gate", |_| true),
    ];
    for (names, hit) in hit {
        let toy = toy();
        let overwrite = |at, twin: &Encoded, encoded: &mut Encoded| {
            if hit(at) {
                encoded.clone_from(twin);
            }
        };
        let hand = Hand { moments: |_, _: &mut Moments| {}, encoded: overwrite };
        let results = calibrate_layer(&toy.layer(), &toy, &options(Codec::Q2), &hand).expect("solved");
        let error = check_reports(&toy.expected(), &reports(&results), Arm::Both).expect_err("a twin");
        assert!(matches!(&error, CalibrateError::EqualsTwin(_)), "{error}");
        assert!(error.to_string().contains(names), "{error}");
    }
}

/// Skipped matrices, layers and projections; a report given twice.
#[test]
fn what_was_not_calibrated_fails_by_name() {
    let toy = toy();
    let all = reports(&toy.calibrate(&options(Codec::Q2)).expect("solved"));
    let expected = toy.expected();
    let without_down: Vec<_> = all.iter().filter(|r| r.at.projection != Projection::Down).cloned().collect();
    let error = check_reports(&expected, &without_down, Arm::Both).expect_err("down is missing");
    assert!(error.to_string().contains("layer 3 expert 2 down"), "{error}");
    let twice: Vec<_> = all.iter().chain(&all[..1]).cloned().collect();
    assert!(matches!(check_reports(&expected, &twice, Arm::Both), Err(CalibrateError::Missing { .. })));
    let exempt_where = |hit: fn(TensorAt) -> bool, exempt| {
        let mut reports = all.clone();
        reports.iter_mut().filter(|r| hit(r.at)).for_each(|r| r.outcome = Outcome::Rtn { exempt });
        check_reports(&expected, &reports, Arm::Both).map_err(|e| e.to_string())
    };
    let error = exempt_where(|_| true, Exempt::NoSignal).expect_err("a layer");
    assert!(error.starts_with("layer 3: no matrix was calibrated"), "{error}");
    let error = exempt_where(|at| at.projection == Projection::Down, Exempt::NotAskedFor).expect_err("a projection");
    assert!(error.starts_with("projection down"), "{error}");
    let one = exempt_where(|at| at.expert == 0, Exempt::ZeroWeights).expect("others are calibrated");
    assert_eq!((one.calibrated, one.rtn), (6, 3));
}

/// A dead expert (zero weights) is exempt and counted; its reason is recorded.
#[test]
fn dead_experts_are_exempt_by_reason() {
    let mut toy = toy();
    toy.weights[1][0].fill(0.0);
    let found = reports(&toy.calibrate(&options(Codec::Q2)).expect("solved"));
    let exempt: BTreeSet<String> = found
        .iter()
        .filter_map(|r| match r.outcome {
            Outcome::Rtn { exempt } => Some(format!("{}: {}", r.at, exempt.reason())),
            Outcome::Calibrated { .. } => None,
        })
        .collect();
    let want = [
        "layer 3 expert 1 down: its inputs are zero on every token",
        "layer 3 expert 1 gate: its weights are all zero",
    ];
    assert_eq!(exempt.iter().map(String::as_str).collect::<Vec<_>>(), want);
    check_reports(&toy.expected(), &found, Arm::Both).expect("the others are calibrated");
}

#[test]
fn loops_of_nothing_are_refused() {
    let mut options = options(Codec::Q2);
    options.recipe.sweeps = 0;
    let error = toy().calibrate(&options).expect_err("nothing to do");
    assert!(error.to_string().contains("0 sweeps"), "{error}");
    options.recipe.sweeps = 2;
    options.codecs[2] = Codec::Q8;
    assert!(toy().calibrate(&options).expect_err("no levels").to_string().contains("q8 cannot be calibrated"));
}
