//! Faults put into whole conversions: each is caught by its name, and nothing is left behind.

use super::{Calibration, QuantizeOptions, QuantizeReport, quantize_under};
use crate::Control;
use crate::calibrate::{
    CalibrateError, Encoded, Moments, Projection, Solver, StatisticFault, Stream, Tamper, TensorAt, Untouched,
};
use crate::capture::{CalibrationText, TextKind};
use crate::error::QuantizeError;
use crate::random::SplitMix64;
use crate::synth::{self, Overrides, SynthOptions};
use serde_json::Value;
use smoe_codec::Codec;
use smoe_codec::half::f16_to_f32;
use smoe_engine::Routes;
use smoe_model::role::Proj;
use smoe_model::store::{ExpertMatrix, ExpertReader};
use smoe_model::{Checkpoint, OpenOptions};
use smoe_vault::{BlobLayout, VaultFile};
use std::fs;
use std::path::{Path, PathBuf};

/// Changes what enters the experts and the router's choice.
type Captured = fn((usize, usize), &mut Vec<f32>, &mut Routes);

/// One fault.
#[derive(Default)]
struct Fault {
    captured: Option<Captured>,
    moments: Option<fn(TensorAt, [&mut Moments; 2])>,
    encoded: Option<fn(TensorAt, &Encoded, &mut Encoded)>,
    cannot: bool,
}

impl Tamper for Fault {
    fn cannot(&self) -> Option<String> {
        self.cannot.then(|| "its experts are hidden".into())
    }

    fn captured(&self, layer: usize, _: Stream, text: usize, (inputs, routes): (&mut Vec<f32>, &mut Routes)) {
        if let Some(change) = self.captured {
            change((layer, text), inputs, routes);
        }
    }

    fn moments(&self, at: TensorAt, seen: &mut Moments, held: &mut Moments) {
        if let Some(change) = self.moments {
            change(at, [seen, held]);
        }
    }

    fn encoded(&self, at: TensorAt, twin: &Encoded, encoded: &mut Encoded) {
        if let Some(change) = self.encoded {
            change(at, twin, encoded);
        }
    }
}

fn checkpoint(folder: &Path) -> PathBuf {
    let target = folder.join("source");
    let options = SynthOptions { shape: "tiny".into(), overrides: Overrides::default(), seed: 1, force: false };
    synth::checkpoint(&target, &options, &Control::silent()).expect("a synthetic checkpoint");
    target
}

/// Random rows below id 200.
fn text(rows: usize, len: usize) -> CalibrationText {
    let mut random = SplitMix64::new(5, 0, 0);
    let mut row = || (0..len).map(|_| (random.next_u64() % 200) as u32).collect::<Vec<u32>>();
    CalibrationText { name: "text".into(), kind: TextKind::Windows, rows: (0..rows).map(|_| row()).collect() }
}

fn options(text: CalibrationText) -> QuantizeOptions {
    QuantizeOptions { calibration: Some(Calibration::new(text)), ..QuantizeOptions::new(Codec::Q2) }
}

/// Converts `source` into `folder/v`.
fn convert(
    (folder, source): (&Path, &Path),
    options: &QuantizeOptions,
    fault: &dyn Tamper,
) -> Result<(QuantizeReport, VaultFile), QuantizeError> {
    let vault = folder.join("v");
    let report = quantize_under(source, &vault, options, (&Control::silent(), fault))?;
    Ok((report, VaultFile::open(&vault).expect("a vault")))
}

/// The error of a fault; nothing is left in the folder.
fn caught(fault: &Fault) -> CalibrateError {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    let failed = convert((folder.path(), &source), &options(text(8, 40)), fault);
    let error = failed.map(|(report, _)| report).expect_err("a fault");
    assert!(error.is_negative_result(), "{error}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "something was left");
    match error {
        QuantizeError::Calibrate(error) => error,
        other => panic!("{other}"),
    }
}

/// Writes a statistic.
fn fill(moments: &mut Moments, value: impl Fn(usize, usize) -> f64) {
    let cols = moments.cols();
    (0..cols * cols).for_each(|at| moments.second[at] = value(at / cols, at % cols));
}

fn tensors(vault: &VaultFile) -> Vec<Value> {
    vault.manifest().provenance["experts"]["tensors"].as_array().expect("a list").clone()
}

#[test]
fn hooks_that_never_fire_are_named() {
    let error = caught(&Fault { captured: Some(|_, inputs, _| inputs.clear()), ..Fault::default() });
    assert!(matches!(error, CalibrateError::Capture { layer: 0, text: 0, found: 0, .. }), "{error}");
    let silent_later: Captured = |(layer, text), _, routes| {
        if (layer, text) == (2, 3) {
            routes.ids.clear();
        }
    };
    let error = caught(&Fault { captured: Some(silent_later), ..Fault::default() });
    assert!(matches!(error, CalibrateError::Capture { layer: 2, text: 3, expected: 80, found: 0, .. }), "{error}");
}

#[test]
fn a_model_that_cannot_be_calibrated_is_refused_or_labelled() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    let fault = Fault { cannot: true, ..Fault::default() };
    let mut options = options(text(8, 40));
    let refused = convert((folder.path(), &source), &options, &fault).map(|_| ()).expect_err("it cannot");
    let said = refused.to_string();
    assert!(said.contains("its experts are hidden") && said.contains("--allow-rtn-fallback"), "{said}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "something was left");

    options.calibration.as_mut().expect("there is one").allow_rtn_fallback = true;
    let (report, vault) = convert((folder.path(), &source), &options, &fault).expect("labelled");
    assert_eq!((report.calibrated_tensors, report.rtn_tensors), (0, 72));
    assert!(report.notes.iter().any(|n| n.contains("its experts are hidden")), "{:?}", report.notes);
    let experts = &vault.manifest().provenance["experts"];
    assert_eq!(experts["method"], "rtn");
    let why = experts["why"].as_str().expect("a reason");
    assert!(why.contains("calibration was asked for") && why.contains("its experts are hidden"), "{why}");
}

#[test]
fn dropped_statistics_of_one_expert_are_named() {
    let drop = |at: TensorAt, [seen, _]: [&mut Moments; 2]| {
        if (at.layer, at.expert) == (1, 6) {
            *seen = Moments::new(seen.cols(), seen.cross.is_some());
        }
    };
    let error = caught(&Fault { moments: Some(drop), ..Fault::default() });
    let CalibrateError::Statistic { at, fault: StatisticFault::Tokens { .. } } = error else { panic!("{error}") };
    assert_eq!((at.layer, at.expert, at.projection), (1, 6, Projection::Gate));
}

#[test]
fn statistics_equal_to_the_identity_are_named() {
    let identity = |_: TensorAt, [seen, _]: [&mut Moments; 2]| fill(seen, |i, j| f64::from(u8::from(i == j)));
    let error = caught(&Fault { moments: Some(identity), ..Fault::default() });
    assert!(matches!(error, CalibrateError::Statistic { fault: StatisticFault::Identity(_), .. }), "{error}");
}

/// Whatever no activations give is refused under the name of its matrix, before a code is chosen from it.
#[test]
fn statistics_that_cannot_be_real_are_named() {
    type Change = fn(TensorAt, [&mut Moments; 2]);
    let spoil: [(Change, &str); 4] = [
        (|_, [seen, _]| fill(seen, |_, _| 0.5), "constant"),
        (|_, [seen, _]| seen.second[130] = f64::NAN, "not finite"),
        (|_, [seen, _]| seen.second[0] = -1.0, "negative diagonal"),
        (|_, parts| parts.into_iter().for_each(|m| fill(m, |i, j| 1.0 / (1.0 + (i + j) as f64))), "that of expert"),
    ];
    for (change, said) in spoil {
        let error = caught(&Fault { moments: Some(change), ..Fault::default() });
        assert!(matches!(error, CalibrateError::Statistic { .. }), "{error}");
        let error = error.to_string();
        assert!(error.starts_with("layer 0 expert ") && error.contains(said), "{error}");
    }
}

/// A statistic without a factor: the damping is raised twice at most, and then the conversion fails by name; nothing is
/// rounded to nearest in its place.
#[test]
fn a_statistic_without_a_factor_is_named() {
    let break_it: fn(TensorAt, [&mut Moments; 2]) = |at, parts| {
        if (at.layer, at.expert, at.projection) == (1, 2, Projection::Down) {
            parts.into_iter().for_each(|m| m.second[1] = 1e9);
        }
    };
    let error = caught(&Fault { moments: Some(break_it), ..Fault::default() });
    let CalibrateError::NotPositiveDefinite { at, damping, .. } = error else { panic!("{error}") };
    assert_eq!((at.layer, at.expert, at.projection), (1, 2, Projection::Down));
    assert!((damping - 10.0).abs() < 1e-5, "0.1, raised tenfold twice: {damping}");
}

#[test]
fn damping_that_was_raised_is_recorded_and_counted() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    // Diagonal 1, but for the first pair of columns a negative direction of 0.05.
    let weaken: fn(TensorAt, [&mut Moments; 2]) = |at, [seen, held]| {
        if (at.layer, at.expert, at.projection) == (2, 4, Projection::Down) {
            fill(seen, |i, j| {
                if i == j {
                    1.0
                } else if i + j == 1 {
                    1.05
                } else {
                    0.0
                }
            });
            fill(held, |_, _| 0.0);
        }
    };
    let fault = Fault { moments: Some(weaken), ..Fault::default() };
    let mut options = options(text(8, 40));
    options.calibration.as_mut().expect("there is one").solver = Solver::GptqPlain;
    let (report, vault) = convert((folder.path(), &source), &options, &fault).expect("with more damping");
    assert_eq!(report.calibration.expect("a report").damping_raised, 1);
    let raised: Vec<_> = tensors(&vault).into_iter().filter(|t| t["damping"].is_number()).collect();
    assert_eq!(raised.len(), 1);
    assert_eq!((&raised[0]["layer"], &raised[0]["expert"], &raised[0]["damping"]), (&2.into(), &4.into(), &0.1.into()));
}

#[test]
fn codes_rounded_to_nearest_in_one_layer_only_are_named() {
    let overwrite = |at: TensorAt, twin: &Encoded, encoded: &mut Encoded| {
        if at.layer == 1 {
            encoded.clone_from(twin);
        }
    };
    let error = caught(&Fault { encoded: Some(overwrite), ..Fault::default() });
    let CalibrateError::EqualsTwin(tensors) = error else { panic!("{error}") };
    assert_eq!(tensors.len(), 24);
    assert!(tensors.iter().all(|at| at.layer == 1));
}

#[test]
fn a_skipped_down_projection_is_named() {
    let skip = |at: TensorAt, twin: &Encoded, encoded: &mut Encoded| {
        if at.projection == Projection::Down {
            encoded.clone_from(twin);
        }
    };
    let error = caught(&Fault { encoded: Some(skip), ..Fault::default() });
    assert!(error.to_string().contains("layer 0 expert 0 down"), "{error}");
    let CalibrateError::EqualsTwin(tensors) = error else { panic!("{error}") };
    assert!(tensors.iter().all(|at| at.projection == Projection::Down));
}

#[test]
fn a_value_that_is_not_finite_names_layer_and_token() {
    for value in [f32::NAN, f32::INFINITY] {
        let spoil: Captured = if value.is_nan() {
            |(layer, text), inputs, _| {
                if (layer, text) == (1, 2) {
                    inputs[7 * 128 + 3] = f32::NAN;
                }
            }
        } else {
            |(layer, text), inputs, _| {
                if (layer, text) == (1, 2) {
                    inputs[7 * 128 + 3] = f32::INFINITY;
                }
            }
        };
        let error = caught(&Fault { captured: Some(spoil), ..Fault::default() });
        assert!(matches!(error, CalibrateError::NotFinite { layer: 1, token: 87, .. }), "{value}: {error}");
    }
}

/// Whoever chose expert 5 of layer 0 gets the first expert that it did not choose.
fn unpopular((layer, _): (usize, usize), _: &mut Vec<f32>, routes: &mut Routes) {
    for chosen in routes.ids.chunks_mut(2).filter(|_| layer == 0) {
        let other = (0..8).find(|id| *id != 5 && !chosen.contains(id)).expect("eight experts");
        chosen.iter_mut().filter(|id| **id == 5).for_each(|id| *id = other);
    }
}

#[test]
fn an_expert_that_no_token_reached_is_calibrated_on_the_prior_and_counted() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    let fault = Fault { captured: Some(unpopular), ..Fault::default() };
    let (report, vault) =
        convert((folder.path(), &source), &options(text(8, 40)), &fault).expect("calibrated all the same");
    assert_eq!(report.calibration.expect("a report").experts_without_tokens, 1);
    assert!(
        report.notes.iter().any(|n| n.contains("no token") && n.contains("layer 0 expert 5")),
        "{:?}",
        report.notes
    );
    let on_prior: Vec<_> = tensors(&vault).into_iter().filter(|t| t["why"].is_string()).collect();
    assert_eq!(on_prior.len(), 3);
    for tensor in on_prior {
        assert_eq!(
            (&tensor["layer"], &tensor["expert"], &tensor["made"]),
            (&0.into(), &5.into(), &"calibrated".into())
        );
        assert!(tensor["why"].as_str().is_some_and(|why| why.contains("prior")), "{tensor}");
    }
}

/// Textbook GPTQ has nothing to calibrate the down projection of such an expert on, and says so; the others are.
#[test]
fn plain_gptq_leaves_an_expert_without_tokens_by_name() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    let fault = Fault { captured: Some(unpopular), ..Fault::default() };
    let mut options = options(text(8, 40));
    options.calibration.as_mut().expect("there is one").solver = Solver::GptqPlain;
    let (report, vault) = convert((folder.path(), &source), &options, &fault).expect("calibrated but for one");
    assert_eq!((report.calibrated_tensors, report.rtn_tensors), (71, 1));
    let rounded: Vec<_> = tensors(&vault).into_iter().filter(|t| t["made"] == "rtn").collect();
    assert_eq!((rounded.len(), &rounded[0]["expert"], &rounded[0]["projection"]), (1, &5.into(), &"down".into()));
    assert!(rounded[0]["why"].as_str().is_some_and(|why| why.contains("no token was routed")), "{}", rounded[0]);
}

/// Writes bf16 zeros over some values of a tensor.
fn silence(checkpoint: &Path, tensor: &str, values: std::ops::Range<usize>) {
    let path = checkpoint.join("model.safetensors");
    let mut bytes = fs::read(&path).expect("a shard");
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + len]).expect("a header");
    let at = 8 + len + header[tensor]["data_offsets"][0].as_u64().expect("an offset") as usize;
    bytes[at + 2 * values.start..at + 2 * values.end].fill(0);
    fs::write(path, bytes).expect("written");
}

/// Gate zero: its output is, and so is what down sees. Both are rounded, by name; all others are calibrated.
#[test]
fn a_dead_expert_is_exempt_by_name() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    silence(&source, "model.layers.1.mlp.experts.3.gate_proj.weight", 0..64 * 128);
    let (report, vault) = convert((folder.path(), &source), &options(text(8, 40)), &Untouched).expect("calibrated");
    assert_eq!((report.calibrated_tensors, report.rtn_tensors), (70, 2));
    let named = "layer 1 expert 3 gate (its weights are all zero), layer 1 expert 3 down";
    assert!(report.notes.iter().any(|note| note.contains(named)), "{:?}", report.notes);
    let rounded: Vec<_> = tensors(&vault).into_iter().filter(|t| t["made"] == "rtn").collect();
    let says = |t: &Value| (t["layer"].clone(), t["expert"].clone(), t["projection"].clone(), t["why"].clone());
    let expected = [("gate", "its weights are all zero"), ("down", "its inputs are zero on every token")];
    let expected = expected.map(|(projection, why)| (1.into(), 3.into(), projection.into(), why.into()));
    assert_eq!(rounded.iter().map(says).collect::<Vec<_>>(), expected);
}

/// Every column of a layer dead; every up matrix of a layer zero: nothing is left to calibrate there.
#[test]
fn a_layer_or_projection_with_no_calibrated_matrix_fails_by_name() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    let whole = fs::read(source.join("model.safetensors")).expect("a shard");
    let up = |expert: usize| (format!("model.layers.2.mlp.experts.{expert}.up_proj.weight"), 64 * 128);
    for (dead, place) in [
        (vec![("model.layers.1.post_attention_layernorm.weight".to_owned(), 128)], "layer 1: no matrix was calibrated"),
        ((0..8).map(up).collect(), "projection up: no matrix was calibrated"),
    ] {
        fs::write(source.join("model.safetensors"), &whole).expect("written");
        dead.iter().for_each(|(tensor, len)| silence(&source, tensor, 0..*len));
        let failed = convert((folder.path(), &source), &options(text(8, 40)), &Untouched);
        let error = failed.map(|_| ()).expect_err("nothing to calibrate");
        assert!(error.is_negative_result() && error.to_string().starts_with(place), "{error}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "something was left");
    }
}

/// One dead column, and most of a group: each code is the nearest one under the scale that is stored.
#[test]
fn a_dead_input_column_keeps_its_nearest_codes() {
    for dead in [70..71, 64..124] {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let source = checkpoint(folder.path());
        silence(&source, "model.layers.1.post_attention_layernorm.weight", dead.clone());
        let (_, vault) = convert((folder.path(), &source), &options(text(8, 40)), &Untouched).expect("calibrated");
        for tensor in tensors(&vault).iter().filter(|t| t["layer"] == 1 && t["projection"] != "down") {
            assert_eq!(tensor["dead_columns"], dead.len(), "{tensor}");
        }
        let checkpoint = Checkpoint::open(&source, &OpenOptions::default()).expect("a checkpoint");
        for record in vault.experts().iter().filter(|record| record.layer == 1) {
            let mut weights = vec![0.0; 64 * 128];
            let at = ExpertMatrix { layer: 1, expert: record.expert as usize, proj: Proj::Gate };
            checkpoint.read_expert_rows(at, 0, &mut weights).expect("a matrix");
            let blob = vault.read_blob(record).expect("a blob");
            let layout = BlobLayout::new(record.codecs, 128, 64, false).expect("a layout");
            let rows = blob[layout.codes(0)].chunks(32).zip(blob[layout.scales(0)].chunks(4)).zip(weights.chunks(128));
            for (row, ((codes, scales), weights)) in rows.enumerate() {
                let scale = f16_to_f32(u16::from_le_bytes([scales[2], scales[3]]));
                for j in dead.clone() {
                    let code = codes[j / 4] >> (2 * (j % 4)) & 3;
                    assert_eq!(code, smoe_codec::q2::code(weights[j], scale), "{at:?}: row {row}, column {j}");
                }
            }
        }
    }
}

#[test]
fn fewer_tokens_than_the_width_are_warned_of_and_calibrated() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    let said = std::sync::Mutex::new(String::new());
    let say = |line: &str| said.lock().expect("no panic").push_str(line);
    let control = Control { say: &say, ..Control::silent() };
    let vault = folder.path().join("v");
    let report = quantize_under(&source, &vault, &options(text(1, 20)), (&control, &Untouched)).expect("calibrated");
    assert_eq!((report.calibrated_tensors, report.rtn_tensors), (72, 0));
    let calibration = report.calibration.expect("a report");
    assert!(calibration.gate_up_tokens_per_column.max < 1.0 && calibration.down_tokens_per_column.max < 1.0);
    let said = said.into_inner().expect("no panic");
    // 64 rows of down, 8 experts, 2 a token.
    assert!(said.contains("WARNING: 20 tokens") && said.contains("2048 are wanted"), "{said}");
}

#[test]
fn a_loop_of_nothing_is_refused_before_any_work() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let source = checkpoint(folder.path());
    for (text, said) in [(text(0, 0), "empty"), (text(3, 3000), "context of 2048")] {
        let refused = convert((folder.path(), &source), &options(text), &Untouched).map(|_| ()).expect_err("unusable");
        assert!(!refused.is_negative_result() && refused.to_string().contains(said), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "something was left");
    }
}
