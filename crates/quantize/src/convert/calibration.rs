//! Calibration as it is asked for, and what it comes to for one checkpoint: the rows, the plan, the recipe.

use super::QuantizeOptions;
use crate::calibrate::{Arm, Options, Solver, Tamper};
use crate::capture::{CalibrationText, CapturePlan, Chosen, Given, hour_of_tokens};
use crate::error::{QuantizeError, Result};
use serde_json::{Value, json};
use smoe_codec::Codec;
use smoe_engine::Layerwise;
use smoe_kernels::Isa;
use smoe_model::Checkpoint;
use smoe_model::spec::ModelSpec;
use smoe_model::store::TensorStore;

/// Hidden states beyond this go to a temporary file.
pub const HIDDEN_BYTES: u64 = 2 << 30;

/// How to calibrate.
#[derive(Debug, Clone)]
pub struct Calibration {
    /// The text.
    pub text: CalibrationText,
    /// Tokens of it to use; `None` for as many as the recipe wants, the text has, and an hour of this machine allows.
    pub tokens: Option<usize>,
    /// Which projections.
    pub arm: Arm,
    /// How codes are chosen.
    pub solver: Solver,
    /// Round to nearest, and say so, where the model cannot be calibrated.
    pub allow_rtn_fallback: bool,
    /// Hidden states that stay in memory; more of them go to a temporary file beside the vault.
    pub hidden_bytes: u64,
}

impl Calibration {
    /// The recipe on `text`, everything else as by default.
    #[must_use]
    pub fn new(text: CalibrationText) -> Self {
        Self {
            text,
            tokens: None,
            arm: Arm::Both,
            solver: Solver::Recipe,
            allow_rtn_fallback: false,
            hidden_bytes: HIDDEN_BYTES,
        }
    }

    /// Why a vault made so is a diagnosis and not for use; `None` where it is for use.
    pub(super) fn diagnostic(&self) -> Option<String> {
        let solver = (self.solver == Solver::GptqPlain).then_some("textbook GPTQ");
        let arm = match self.arm {
            Arm::Both => None,
            Arm::GateUp => Some("only gate and up were calibrated"),
            Arm::Down => Some("only down was calibrated"),
        };
        let why: Vec<_> = solver.into_iter().chain(arm).collect();
        (!why.is_empty()).then(|| why.join(", "))
    }
}

/// What a conversion does for its experts.
pub(super) enum Making {
    /// Rounds to nearest, for this reason.
    Rtn(String),
    /// Calibrates.
    Calibrated(Box<Calibrating>),
}

impl Making {
    /// Refuses a calibration that cannot be; nothing is computed yet.
    pub(super) fn new(checkpoint: &Checkpoint, options: &QuantizeOptions, tamper: &dyn Tamper) -> Result<Self> {
        let Some(how) = &options.calibration else { return Ok(Self::Rtn("no calibration was asked for".into())) };
        let engine = Layerwise::new(checkpoint, 1).err().map(|e| e.to_string());
        if let Some(why) = engine.or_else(|| tamper.cannot()) {
            let why = format!("{} cannot be calibrated: {why}", checkpoint.spec().family);
            if how.allow_rtn_fallback {
                return Ok(Self::Rtn(format!("calibration was asked for; {why}; --allow-rtn-fallback was given")));
            }
            return Err(QuantizeError::Refused(format!("{why}; --allow-rtn-fallback rounds to nearest instead")));
        }
        let threads = options.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        let resolved = Calibrating::new(checkpoint.spec(), options.codec, (how, options.seed), threads.unwrap_or(1))?;
        Ok(Self::Calibrated(Box::new(resolved)))
    }
}

/// A calibration, resolved for a model.
pub(super) struct Calibrating {
    pub(super) chosen: Chosen,
    pub(super) plan: CapturePlan,
    pub(super) options: Options,
    pub(super) hidden_bytes: u64,
    pub(super) diagnostic: Option<String>,
}

impl Calibrating {
    /// Refuses what cannot be calibrated; nothing is computed yet.
    pub(super) fn new(
        spec: &ModelSpec,
        codec: Codec,
        (how, seed): (&Calibration, u64),
        threads: usize,
    ) -> Result<Self> {
        how.text.check(spec)?;
        let wanted = how.tokens.unwrap_or_else(|| hour_of_tokens(spec));
        let chosen = how.text.choose(wanted, seed)?;
        let given = Given {
            tokens: chosen.tokens,
            available: chosen.available,
            solver: how.solver,
            threads,
            memory_bytes: how.hidden_bytes,
            held_bytes: smoe_engine::rss_bytes().unwrap_or(0),
        };
        let plan = CapturePlan::new(spec, given);
        let options = Options { codecs: [codec; 3], recipe: plan.recipe.clone(), arm: how.arm, isa: Isa::detect() };
        options.recipe.check(&options.codecs)?;
        Ok(Self { chosen, plan, options, hidden_bytes: how.hidden_bytes, diagnostic: how.diagnostic() })
    }

    /// Everything that the bytes depend on.
    pub(super) fn describe(&self) -> Value {
        json!({
            "text": self.chosen.description,
            "tokens": self.plan.tokens,
            "rank_bound": self.plan.rank_bound,
            "only": self.options.arm,
            "recipe": self.plan.recipe,
            // Sums are rounded as it does: another set may choose some other codes, as good.
            "instruction_set": self.options.isa.name(),
        })
    }
}
