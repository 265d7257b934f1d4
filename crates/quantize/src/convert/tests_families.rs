//! Every family that has a golden folder is calibrated, on what the plain forward pass sees.

use super::{Calibration, QuantizeOptions, quantize_under};
use crate::Control;
use crate::calibrate::{Stream, Tamper};
use crate::capture::{CalibrationText, TextKind};
use crate::random::SplitMix64;
use smoe_codec::Codec;
use smoe_engine::observer::{At, Wants};
use smoe_engine::sources::CheckpointExperts;
use smoe_engine::{Engine, EngineOptions, Observer, Routes, Want};
use smoe_model::spec::ModelSpec;
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, OpenOptions};
use smoe_vault::VaultFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What enters the experts of a layer for a text, and the router's choice.
type Seen = (Vec<f32>, Routes);

/// What the capture saw, by stream, layer and text.
#[derive(Default)]
struct Listener(Mutex<BTreeMap<(bool, usize, usize), Seen>>);

impl Tamper for Listener {
    fn captured(&self, layer: usize, stream: Stream, text: usize, (inputs, routes): (&mut Vec<f32>, &mut Routes)) {
        let (at, seen) = ((stream == Stream::Reference, layer, text), (inputs.clone(), routes.clone()));
        let old = self.0.lock().expect("no panic").insert(at, seen);
        assert!(old.is_none(), "layer {layer}, text {text}: seen twice");
    }
}

/// What a plain forward pass sees, by layer.
#[derive(Default)]
struct Plain(BTreeMap<usize, Seen>);

impl Observer for Plain {
    fn wants(&self) -> Wants {
        Wants { moe_input: true, router: true, ..Wants::default() }
    }

    fn moe_input(&mut self, at: At, x: &[f32]) {
        self.0.entry(at.layer).or_default().0.extend_from_slice(x);
    }

    fn router(&mut self, at: At, routes: &Routes) {
        let own = &mut self.0.entry(at.layer).or_default().1;
        own.k = routes.k;
        own.ids.extend_from_slice(&routes.ids);
        own.weights.extend_from_slice(&routes.weights);
    }
}

/// Golden folders of the repository and, where it is there, of the reference material beside it.
fn folders() -> Vec<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("SMOE_SHARED").map_or_else(|| repository.join("../shared"), PathBuf::from);
    let roots = [repository.join("tests/golden"), shared.join("golden")];
    let entries = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten();
    let mut folders: Vec<_> = entries.map(|e| e.path()).filter(|p| p.join("golden.safetensors").is_file()).collect();
    folders.sort();
    folders
}

/// Enough random text for the second stream.
fn text(spec: &ModelSpec) -> CalibrationText {
    let bound = spec.moe_layers().map(|(_, moe)| moe.width * moe.experts / moe.top_k + 1).max().unwrap_or(1);
    let len = spec.context.min(64);
    let mut random = SplitMix64::new(11, 0, 0);
    let mut row = || (0..len).map(|_| (random.next_u64() % spec.vocab as u64) as u32).collect::<Vec<u32>>();
    let rows = (0..(8 * bound).div_ceil(len)).map(|_| row()).collect();
    CalibrationText { name: "text".into(), kind: TextKind::Windows, rows }
}

fn check(folder: &Path) {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The trunk as a vault has it: fp8 becomes bf16.
    let checkpoint = Checkpoint::open(folder, &OpenOptions::default()).expect("a checkpoint").with_bf16_trunk();
    let checkpoint = Arc::new(checkpoint);
    let experts = Box::new(CheckpointExperts::new(checkpoint.spec(), checkpoint.clone()));
    let engine = Engine::new(&*checkpoint, experts, &EngineOptions::default()).expect("an engine");
    let spec = engine.spec();
    let text = text(spec);
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let (vault, listener) = (scratch.path().join("v"), Listener::default());
    let options =
        QuantizeOptions { calibration: Some(Calibration::new(text.clone())), ..QuantizeOptions::new(Codec::Q2) };
    let report = quantize_under(folder, &vault, &options, (&Control::silent(), &listener));
    let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
    let matrices: usize = spec.moe_layers().map(|(_, moe)| 3 * moe.experts).sum();
    assert_eq!((report.calibrated_tensors as usize, report.rtn_tensors), (matrices, 0), "{name}");

    let seen = listener.0.into_inner().expect("no panic");
    let first = spec.moe_layers().next().map(|(layer, _)| layer);
    for (i, row) in text.rows.iter().enumerate() {
        let mut plain = Plain::default();
        engine.forward(&mut engine.session(), row, &mut plain, Want::Nothing).expect("a forward pass");
        assert_eq!(plain.0.len(), spec.moe_layers().count(), "{name}");
        for ((layer, (inputs, routes)), (_, moe)) in plain.0.iter().zip(spec.moe_layers()) {
            for reference in [false, true] {
                let found = &seen[&(reference, *layer, i)];
                assert_eq!(found.1.ids.len(), row.len() * moe.top_k, "{name}: layer {layer}, text {i}");
                // Behind a quantised layer the other stream sees and routes otherwise.
                if reference || Some(*layer) == first {
                    assert!(
                        found.1 == *routes,
                        "{name}: layer {layer}, text {i}: other choices than the plain forward's"
                    );
                    assert!(
                        found.0 == *inputs,
                        "{name}: layer {layer}, text {i}: other inputs than the plain forward's"
                    );
                }
            }
        }
    }
    let file = VaultFile::open(&vault).expect("a vault");
    let tensors = file.manifest().provenance["experts"]["tensors"].as_array().expect("a list").clone();
    for (layer, moe) in spec.moe_layers() {
        let tokens: u64 = tensors
            .iter()
            .filter(|t| t["layer"] == layer && t["projection"] == "down")
            .filter_map(|t| t["tokens"].as_u64())
            .sum();
        assert_eq!(tokens as usize, text.tokens() * moe.top_k, "{name}: layer {layer}");
    }
}

#[test]
fn every_golden_family_is_calibrated_on_what_the_plain_forward_sees() {
    let folders = folders();
    assert!(!folders.is_empty(), "the repository has goldens of its own");
    folders.iter().for_each(|folder| check(folder));
}
