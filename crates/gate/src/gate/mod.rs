//! [`gate`]: whether a vault may be trusted.
//!
//! The candidate and its round-to-nearest twin run over a text beside the unquantised reference. What they say becomes
//! [`Check`]s, each with a value and a bound; the checks become a [`Verdict`]. Nothing here depends on time, threads or
//! paths: the same inputs give the same report.

mod arm;
mod checks;
mod claims;
mod counted;
mod matrices;
mod measures;
mod memory;
mod outputs;
mod overlap;
mod paths;
mod report;
mod size;
mod summary;
mod survey;
mod twin;

use std::path::Path;
use std::sync::atomic::Ordering;

use rayon::ThreadPool;
use smoe_engine::EngineOptions;
use smoe_model::store::TensorStore;

use crate::bootstrap::RESAMPLES;
use crate::error::GateError;
use crate::eval::Control;
use crate::windows::Windows;
use arm::{Arm, Reference};
use claims::Claims;
use matrices::Equality;
use overlap::Dropped;
use paths::PathDifference;
use size::Size;
use survey::{ARMS, Survey};

pub use checks::{Check, Verdict, kld_bound};
pub use claims::Making;
pub use measures::{Difference, Measures};
pub use report::{
    ArmReport, BootstrapReport, DocumentReport, ExpertsReport, LayerReport, OutputShares, ReferenceReport, Report,
    SumsReport, TextReport, WorstDocument, WorstTensor,
};

/// What is judged, and against what.
#[derive(Debug, Clone, Copy)]
pub struct Subjects<'a> {
    /// The vault to judge.
    pub candidate: &'a Path,
    /// The checkpoint folder that it was made from.
    pub reference: &'a Path,
    /// A round-to-nearest vault; where it stores tensors otherwise than the candidate, or there is none, one is made.
    pub baseline: Option<&'a Path>,
}

/// How to judge.
#[derive(Debug, Clone, PartialEq)]
pub struct GateOptions {
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Resamples of the bootstrap; at least [`RESAMPLES`].
    pub resamples: usize,
    /// Threads; 0 takes as many as the machine has. Results do not depend on it.
    pub threads: usize,
    /// Mean KL divergence that is allowed; `None` takes [`kld_bound`] of the experts' bits.
    pub max_kld: Option<f64>,
    /// Config keys of the reference to pass over.
    pub ignore_config: Vec<String>,
    /// Bytes of memory that the run may take.
    pub ram: Option<u64>,
}

impl Default for GateOptions {
    fn default() -> Self {
        Self { seed: 0, resamples: RESAMPLES, threads: 0, max_kld: None, ignore_config: Vec::new(), ram: None }
    }
}

/// Everything that was found, before it is judged.
struct Findings {
    claims: Claims,
    dropped: Dropped,
    /// Tokens of the text before anything was left out.
    text_tokens: usize,
    /// Whether the vault says which text calibrated it.
    text_known: bool,
    size: Size,
    equality: Option<Equality>,
    chunks: PathDifference,
    instruction_sets: Vec<(&'static str, PathDifference)>,
    /// The candidate as it is run against the candidate as it is measured.
    as_run: Option<PathDifference>,
    decode: Option<PathDifference>,
    /// The survey, or the fault of the candidate that ended it.
    survey: Result<Survey, String>,
    /// Experts without a token, and those of them that do not decode.
    decoded: Vec<(usize, usize, bool)>,
}

/// Where each arm of a survey stands.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    baseline: Option<usize>,
    given: Option<usize>,
}

/// Judges a vault. `control` is told of each window.
///
/// # Errors
/// A file that cannot be read or is another model's, text that cannot be used or calibrated the vault
/// ([`GateError::Overlap`]), the caller's stop. A bad vault is no error: it is a verdict.
pub fn gate(
    subjects: Subjects<'_>,
    windows: &Windows,
    options: &GateOptions,
    control: &mut Control<'_>,
) -> Result<Report, GateError> {
    let engine = EngineOptions { threads: options.threads, ..EngineOptions::default() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
    let pool = pool.map_err(|error| GateError::Threads(error.to_string()))?;
    memory::keep_promise(subjects, windows, options)?;
    let reference = Reference::open(subjects.reference, &options.ignore_config, &engine)?;
    check_windows(windows, &reference)?;
    let candidate = Arm::open(subjects.candidate, reference.checkpoint.spec(), &engine)?;
    let claims = Claims::of(&candidate.file.manifest().provenance);
    let calibration = overlap::of_vault(&candidate.file)?;
    let (kept, dropped) = match &calibration {
        Some(shingles) => overlap::without(windows, shingles)?,
        None => (windows.clone(), Dropped::default()),
    };
    let mut arms = vec![candidate];
    let mut places = Places::default();
    add_baselines(&mut arms, &mut places, &claims, (subjects, &reference, &engine), (&pool, control))?;
    let text = (dropped, windows.tokens(), calibration.is_some());
    let as_run = paths::as_run(&mut arms[0].engine, &kept, &pool);
    let mut findings = find(&arms, places, (claims, text), (&reference, &kept), (&pool, control))?;
    findings.as_run = if findings.survey.is_ok() { as_run? } else { None };
    Ok(summary::report(&findings, (&arms, places), &reference, &kept, options))
}

/// Refuses text that the model cannot take in, before anything is computed.
fn check_windows(windows: &Windows, reference: &Reference) -> Result<(), GateError> {
    windows.check_ids(reference.checkpoint.spec().vocab)?;
    let (longest, context) = (windows.longest(), reference.engine.context());
    if longest > context {
        let reason = format!("expected windows within the model's context of {context} tokens, found {longest}");
        return Err(GateError::input(windows.source(), reason));
    }
    Ok(())
}

/// Opens what the candidate is compared with: a given baseline, its own twin where that is not it.
fn add_baselines(
    arms: &mut Vec<Arm>,
    places: &mut Places,
    claims: &Claims,
    (subjects, reference, engine): (Subjects<'_>, &Reference, &EngineOptions),
    (pool, control): (&ThreadPool, &Control<'_>),
) -> Result<(), GateError> {
    let spec = reference.checkpoint.spec();
    let given = subjects.baseline.map(|path| Arm::open(path, spec, engine)).transpose()?;
    let is_twin = |arm: &Arm| {
        let rounded = Claims::of(&arm.file.manifest().provenance).making == Making::Rtn;
        rounded && matrices::same_storage(&arms[0], arm)
    };
    let (twin, given) = match given {
        Some(arm) if is_twin(&arm) => (Some(arm), None),
        Some(arm) => (None, Some(arm)),
        None => (None, None),
    };
    if let Some(arm) = twin {
        arms.push(arm);
        places.baseline = Some(arms.len() - 1);
    } else if claims.making == Making::Calibrated {
        let from = (&*arms[0].file, subjects.candidate);
        let made = twin::write(from, &reference.checkpoint, pool, control.cancel)?;
        let mut arm = Arm::open(&made.path, spec, engine)?;
        arm.name = "round-to-nearest, made on the spot".into();
        arms.push(arm);
        places.baseline = Some(arms.len() - 1);
    }
    if let Some(arm) = given {
        arms.push(arm);
        places.given = Some(arms.len() - 1);
    }
    Ok(())
}

fn find(
    arms: &[Arm],
    places: Places,
    (claims, (dropped, text_tokens, text_known)): (Claims, (Dropped, usize, bool)),
    (reference, windows): (&Reference, &Windows),
    (pool, control): (&ThreadPool, &mut Control<'_>),
) -> Result<Findings, GateError> {
    let candidate = &arms[0];
    let checkpoint = &reference.checkpoint;
    let twin = places.baseline.map(|place| &arms[place]).filter(|_| claims.making == Making::Calibrated);
    let equality = twin.map(|twin| matrices::equality(candidate, twin, &claims)).transpose()?;
    let size = size::size(&candidate.file, checkpoint, &claims)?;
    let chunks = paths::chunks(&reference.engine, windows, pool)?;
    let instruction_sets = paths::instruction_sets(reference, windows, pool)?;
    if control.cancel.load(Ordering::Relaxed) {
        return Err(GateError::Stopped);
    }
    let names = (0..arms.len()).map(|place| if Some(place) == places.given { ARMS[2] } else { ARMS[place] });
    let named: Vec<(&'static str, &Arm)> = names.zip(arms).collect();
    let survey = match survey::survey(reference, &named, windows, pool, control) {
        // The candidate's own fault is a verdict; anybody else's is an error.
        Err(fault @ GateError::Logits { arm, .. }) if arm == ARMS[0] => Err(fault.to_string()),
        other => Ok(other?),
    };
    let decode = survey.is_ok().then(|| paths::decode(&candidate.engine, windows, pool)).transpose()?;
    let decoded = survey.as_ref().map_or(Ok(Vec::new()), |survey| decode_unreached(candidate, survey))?;
    Ok(Findings {
        claims,
        dropped,
        text_tokens,
        text_known,
        size,
        equality,
        chunks,
        instruction_sets,
        as_run: None,
        decode,
        survey,
        decoded,
    })
}

/// Decodes the experts that no token reached; whether each is sound.
fn decode_unreached(candidate: &Arm, survey: &Survey) -> Result<Vec<(usize, usize, bool)>, GateError> {
    let mut decoded = Vec::new();
    for (layer, experts) in survey.arms[0].routed.iter().enumerate() {
        for (expert, id) in (0..experts.len()).zip(0_u32..).filter(|(expert, _)| experts[*expert] == 0) {
            let found = matrices::one(&*candidate.experts, layer, id)?;
            decoded.push((layer, expert, matrices::decodes(&found)));
        }
    }
    Ok(decoded)
}
