//! `diagnose`: vaults with nothing, gate and up, down, and all calibrated, at the given tokens and at a quarter of them,
//! each measured on a text; and what their figures mean.

mod judge;

pub use judge::{Cause, Divergence, Figures, judge};

use crate::calibrate::Arm;
use crate::control::{Control, Progress};
use crate::convert::{Calibration, Presence, QuantizeOptions, quantize};
use crate::error::{QuantizeError, Result};
use serde::Serialize;
use smoe_engine::{Engine, EngineOptions, VaultStore};
use smoe_gate::{EngineModel, EvalOptions, Windows, evaluate};
use smoe_model::{Checkpoint, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// One vault and what it scored.
#[derive(Debug, Clone, Serialize)]
pub struct ArmReport {
    /// `none`, `gate-up`, `down` or `both`.
    pub arm: &'static str,
    /// Tokens that calibrated it; 0 without calibration.
    pub tokens: usize,
    /// Its divergence from the checkpoint.
    #[serde(flatten)]
    pub divergence: Divergence,
    /// Its loss above the checkpoint's, nats a token.
    pub dnll: f64,
}

/// A diagnosis.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// What is the matter.
    pub cause: Cause,
    /// Why, in plain words.
    pub words: Vec<String>,
    /// The arms, in the order that they were made.
    pub arms: Vec<ArmReport>,
    /// Tokens over the rank bound of the down statistic.
    pub rank_bounds: f64,
}

/// Diagnoses a calibration: `options.calibration` is what is asked for, `windows` what it is measured on.
///
/// # Errors
/// Whatever a conversion or an evaluation fails with; no calibration to diagnose.
pub fn diagnose(
    checkpoint: &Path,
    options: &QuantizeOptions,
    windows: &Windows,
    control: &Control<'_>,
) -> Result<Diagnosis> {
    let Some(calibration) = &options.calibration else {
        return Err(QuantizeError::Refused("diagnose: expected a calibration text, found none".into()));
    };
    let open = OpenOptions { ignore_config: options.ignore_config.clone() };
    let source = Arc::new(Checkpoint::open(checkpoint, &open)?);
    let engine_options = EngineOptions { threads: options.threads.unwrap_or(0), ..EngineOptions::default() };
    let bench = Bench {
        checkpoint,
        options,
        windows,
        control,
        reference: Engine::of_checkpoint(&source, &engine_options)?,
        engine_options,
    };
    let mut arms = vec![bench.measure(0, None)?.0];
    let (mut tokens, mut bounds) = (calibration.tokens, None);
    for _ in 0..2 {
        for arm in [Arm::GateUp, Arm::Down, Arm::Both] {
            let (report, ratio) =
                bench.measure(arms.len(), Some(&Calibration { tokens, arm, ..calibration.clone() }))?;
            bounds.get_or_insert(ratio);
            arms.push(report);
        }
        // A quarter of what was really used.
        tokens = arms.last().map(|arm| arm.tokens / 4);
    }
    let (bounds, kld) = (bounds.unwrap_or(0.0), |arm: usize| arms[arm].divergence.kld);
    let [gate_up, down, both] = [1, 2, 3].map(|arm| [kld(arm), kld(arm + 3)]);
    let (cause, words) = judge(&Figures { none: kld(0), gate_up, down, both, bounds });
    Ok(Diagnosis { cause, words, arms, rank_bounds: bounds })
}

/// Arms of a diagnosis.
const ARMS: usize = 7;

/// What every arm is measured with.
struct Bench<'a> {
    checkpoint: &'a Path,
    options: &'a QuantizeOptions,
    windows: &'a Windows,
    control: &'a Control<'a>,
    reference: Engine,
    engine_options: EngineOptions,
}

impl Bench<'_> {
    /// Converts into a temporary file and measures it; also the tokens over the rank bound.
    fn measure(&self, number: usize, calibration: Option<&Calibration>) -> Result<(ArmReport, f64)> {
        let folder = std::env::temp_dir();
        let folder = tempfile::tempdir_in(&folder).map_err(QuantizeError::io(&folder, "put a vault into it"))?;
        let vault = folder.path().join("arm.vault");
        let options = QuantizeOptions {
            calibration: calibration.cloned(),
            presence: Presence::default(),
            ..self.options.clone()
        };
        let silent = Control { progress: &|_| {}, ..*self.control };
        let made = quantize(self.checkpoint, &vault, &options, &silent)?;
        let plan = made.calibration.as_ref().map(|calibration| &calibration.plan);
        let engine = Engine::of_vault(&VaultStore::open(&vault)?, &self.engine_options)?;
        let total = (ARMS * self.windows.rows()) as u64;
        let before = (number * self.windows.rows()) as u64;
        let mut progress = |step: smoe_gate::Progress| {
            (self.control.progress)(Progress { phase: "measuring", done: before + step.rows as u64, total });
        };
        let mut control = smoe_gate::Control { progress: &mut progress, cancel: self.control.cancel };
        let how = EvalOptions {
            seed: self.options.seed,
            threads: self.options.threads.unwrap_or(0),
            ..EvalOptions::default()
        };
        let (mut candidate, mut reference) = (EngineModel(&engine), EngineModel(&self.reference));
        let found = evaluate(&mut candidate, Some(&mut reference), self.windows, &how, &mut control)
            .map_err(|error| match error {
                smoe_gate::GateError::Cancelled { .. } => QuantizeError::Cancelled,
                other => QuantizeError::Refused(other.to_string()),
            })?
            .report;
        let (Some(kld), Some(dnll)) = (found.kld, found.dnll) else {
            return Err(QuantizeError::Refused("an evaluation against the checkpoint gave no divergence".into()));
        };
        let report = ArmReport {
            arm: calibration.map_or("none", |c| match c.arm {
                Arm::Both => "both",
                Arm::GateUp => "gate-up",
                Arm::Down => "down",
            }),
            tokens: plan.map_or(0, |plan| plan.tokens),
            divergence: Divergence { kld, interval: found.kld_interval },
            dnll,
        };
        Ok((report, plan.map_or(0.0, |plan| plan.tokens as f64 / plan.rank_bound)))
    }
}
