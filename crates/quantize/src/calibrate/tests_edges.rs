//! The edge cases that QUANT-RECIPE.md, section 10, names and that concern the core.

use super::*;

/// No token, one token, fewer tokens than the width: all calibrated, on the prior where need be, and counted.
#[test]
fn starved_experts_lean_on_the_prior() {
    let mut toy = Toy::new(11, (4, 64, 64, 200));
    toy.redirect(3, 0);
    let one = toy.ids.iter().position(|&id| id == 2).expect("chosen");
    let token = one / 2 * 2;
    for (slot, id) in toy.ids.iter_mut().enumerate() {
        if *id == 2 && slot != one {
            *id = 1;
        }
    }
    assert_ne!(toy.ids[token], toy.ids[token + 1]);
    let found = reports(&toy.calibrate(&options(Codec::Q2)).expect("solved"));
    let summary = check_reports(&toy.expected(), &found, Arm::Both).expect("all calibrated");
    assert_eq!((summary.calibrated, summary.experts_without_tokens), (12, 1));
    let (single, none) = (&found[6], &found[9]);
    assert_eq!((single.tokens, none.tokens), (1, 0));
    assert!((single.own_share - 1.0 / (1.0 + 3.0 * 64.0)).abs() < 1e-9 && none.own_share == 0.0);
    assert!((single.tokens_per_column - 1.0 / 64.0).abs() < 1e-9);
}

/// Dead input columns, none of them, one, most of a group, a whole one, nearly all: their codes are those nearest to the weights
/// under the stored scales, and no zeros. With all of them dead there is nothing to calibrate.
#[test]
fn dead_columns_round_to_nearest() {
    for dead in [0..0, 5..6, 3..61, 64..128, 0..120, 0..128] {
        let mut toy = Toy::new(12, (2, 128, 64, 300));
        for x in [&mut toy.x, &mut toy.reference] {
            x.chunks_exact_mut(128).for_each(|x| x[dead.clone()].fill(0.0));
        }
        let results = toy.calibrate(&options(Codec::Q2)).unwrap_or_else(|error| panic!("{dead:?}: {error}"));
        let all = dead.len() == 128;
        assert_eq!(check_reports(&toy.expected(), &reports(&results), Arm::Both).is_err(), all, "{dead:?}");
        for (e, result) in results.iter().enumerate().filter(|_| !all) {
            for i in [0, 1] {
                assert_eq!(facts(&result.reports[i]).dead_columns, dead.len());
                let (decoded, scales) = (result.encoded[i].decode(128), &result.encoded[i].scales);
                for (row, scales) in scales.chunks_exact(4).enumerate() {
                    for j in dead.clone() {
                        let s = &scales[j / 64 * 2..][..2];
                        let s = smoe_codec::half::f16_to_f32(u16::from_le_bytes([s[0], s[1]]));
                        let w = toy.weights[e][i][row * 128 + j];
                        let want = smoe_codec::q2::LEVELS[smoe_codec::q2::code(w, s) as usize] * s;
                        assert_eq!(decoded[row * 128 + j], want, "{dead:?}: expert {e}, row {row}, column {j}");
                    }
                }
            }
        }
    }
}

/// Widths that are no multiple of 64, and groups of zeros, which stay exact zeros.
#[test]
fn short_groups_and_groups_of_zeros() {
    let mut toy = Toy::new(13, (2, 100, 72, 300));
    for matrix in &mut toy.weights[0] {
        matrix[..64].fill(0.0);
    }
    let results = toy.calibrate(&options(Codec::Q4)).expect("solved");
    for (i, cols) in [(0, 100usize), (1, 100), (2, 72)] {
        let encoded = &results[0].encoded[i];
        assert_eq!(encoded.codes.len() * 8, 7200 / cols * (cols * 4).next_multiple_of(8));
        let decoded = encoded.decode(cols);
        assert!(decoded[..64].iter().all(|w| w.to_bits() == 0) && decoded[64..].iter().any(|&w| w != 0.0));
        assert_eq!(encoded.codes[..32], [0; 32]);
    }
    check_reports(&toy.expected(), &reports(&results), Arm::Both).expect("all calibrated");
}

/// NaN or infinity in one token stops the layer, naming it and the token, in either stream.
#[test]
fn a_value_that_is_not_finite_names_layer_and_token() {
    for (token, value, second) in [(0, f32::NAN, false), (77, f32::INFINITY, false), (199, f32::NEG_INFINITY, true)] {
        let mut toy = Toy::new(14, (3, 64, 64, 200));
        let x = if second { &mut toy.reference } else { &mut toy.x };
        x[token * 64 + 9] = value;
        let error = toy.calibrate(&options(Codec::Q2)).expect_err("not finite");
        assert!(matches!(error, CalibrateError::NotFinite { layer: 3, token: t, .. } if t == token), "{error}");
        assert!(error.to_string().contains(&format!("layer 3, token {token}")), "{error}");
    }
    let mut toy = Toy::new(14, (3, 64, 64, 200));
    toy.gates[7] = f32::NAN;
    let error = toy.calibrate(&options(Codec::Q2)).expect_err("not finite");
    assert!(matches!(error, CalibrateError::NotFinite { token: 3, .. }), "{error}");
    // An activation that overflows f32 behind finite inputs.
    let mut toy = Toy::new(14, (3, 64, 64, 200));
    toy.x[50 * 64..51 * 64].fill(1e25);
    let error = toy.calibrate(&options(Codec::Q2)).expect_err("overflows");
    assert!(!matches!(error, CalibrateError::Solver { .. }), "{error}");
}

#[test]
fn a_weight_that_cannot_be_stored_names_its_matrix() {
    let mut toy = Toy::new(15, (2, 64, 64, 100));
    toy.weights[1][2][64 * 3 + 1] = f32::NAN;
    let error = toy.calibrate(&options(Codec::Q2)).expect_err("a NaN");
    assert!(error.to_string().starts_with("layer 3 expert 1 down: row 3: column 1"), "{error}");
}

/// Lengths that do not belong together are refused before any work.
#[test]
fn shapes_are_checked() {
    let toy = Toy::new(16, (2, 64, 64, 100));
    let check = |change: &dyn Fn(&mut Toy)| {
        let mut toy = toy.clone();
        change(&mut toy);
        toy.calibrate(&options(Codec::Q2)).expect_err("does not fit").to_string()
    };
    assert!(check(&|t| t.ids.truncate(10)).contains("expected 200, found 10"));
    assert!(check(&|t| t.gates.truncate(10)).contains("expected 200, found 10"));
    assert!(check(&|t| t.ids[3] = 9).contains("token 1 chose number 9"));
    assert!(check(&|t| t.held_from = 101).contains("held-out"));
    assert!(check(&|t| t.weights[1][0].truncate(64)).contains("weights of expert 1 gate"));
    let empty = |t: &mut Toy| {
        t.tokens = 0;
        t.ids.clear();
        t.gates.clear();
    };
    assert!(check(&empty).contains("no token"));
}

/// Expert biases enter the hidden activation, not the codes.
#[test]
fn biases_change_what_down_sees() {
    struct Biased(Toy);
    impl LayerSource for Biased {
        fn block(&self, stream: Stream, tokens: Range<usize>) -> Result<Cow<'_, [f32]>, SourceError> {
            self.0.block(stream, tokens)
        }
        fn rows(&self, stream: Stream, tokens: &[u32]) -> Result<Vec<f32>, SourceError> {
            self.0.rows(stream, tokens)
        }
        fn weights(&self, expert: usize, projection: Projection) -> Result<Vec<f32>, SourceError> {
            LayerSource::weights(&self.0, expert, projection)
        }
        fn bias(&self, _: usize, _: Projection) -> Result<Option<Vec<f32>>, SourceError> {
            Ok(Some((0..64).map(|i| i as f32 / 32.0 - 1.0).collect()))
        }
    }
    let mut toy = Toy::new(17, (2, 64, 64, 200));
    toy.shape.act = Activation::ClampedSwiGlu { limit: 7.0, alpha: 1.702 };
    let (plain, biased) = (toy.calibrate(&options(Codec::Q2)), Biased(toy.clone()));
    let plain = plain.expect("solved");
    let biased = calibrate_layer(&toy.layer(), &biased, &options(Codec::Q2), &Untouched).expect("solved");
    assert_eq!(plain[0].encoded[..2], biased[0].encoded[..2]);
    assert_ne!(plain[0].encoded[2], biased[0].encoded[2]);
}

/// A sample of the down prior changes down alone; the sample is the same each time.
#[test]
fn the_down_prior_may_be_sampled() {
    let toy = Toy::new(18, (2, 64, 64, 400));
    let sampled = |prior_tokens| {
        let recipe = Recipe { prior_tokens, ..options(Codec::Q2).recipe };
        toy.calibrate(&Options { recipe, ..options(Codec::Q2) }).expect("solved")
    };
    let (all, some) = (sampled(None), sampled(Some(100)));
    assert_eq!(all[0].encoded[..2], some[0].encoded[..2]);
    assert_ne!(all[0].encoded[2], some[0].encoded[2]);
    assert_eq!(some, sampled(Some(100)));
    assert_eq!(all, sampled(Some(400)));
}

/// Too little damping for a statistic of few tokens: raised tenfold, recorded; twice at most.
#[test]
fn damping_is_raised_and_recorded() {
    // A negative direction of 0.05: more than a damping of 0.01 lifts, less than 0.1.
    let statistic = |a: Vec<f32>| Statistic { cols: 2, a, cross: None, own_share: 1.0, effective: 1.0, tokens: 1 };
    let levels = Levels::of(Codec::Q2).expect("uniform");
    let (w, s) = ([0.5, -0.25, 0.125, 1.0], statistic(vec![1.0, 1.05, 1.05, 1.0]));
    let recipe = Recipe { damping: 0.01, ..Recipe::for_tokens(100, 1.0) };
    let problem = Problem { weights: &w, statistic: &s, levels, recipe: &recipe };
    let (_, facts) = solve(Isa::detect(), problem).expect("solved with more damping");
    assert!(facts.damping_raised == 1 && (facts.damping - 0.1).abs() < 1e-6, "{facts:?}");
    let s = statistic(vec![1.0, 5.0, 5.0, 1.0]);
    let error = solve(Isa::detect(), Problem { statistic: &s, ..problem }).expect_err("indefinite");
    assert!(
        matches!(error, Unsolved::NotPositiveDefinite { damping, .. } if (damping - 1.0).abs() < 1e-6),
        "{error:?}"
    );
}
