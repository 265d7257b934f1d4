//! The conversion of a checkpoint: planned and refused first, then streamed part by part into a vault.

mod calibration;
mod experts;
mod hashes;
mod layers;
mod prepare;
mod provenance;
mod report;
mod trunk;

use crate::calibrate::{Tamper, TensorReport, Untouched};
use crate::control::{Control, Progress};
use crate::error::{QuantizeError, Result};
use layers::Walk;
use prepare::Prepared;
use serde_json::Value;
use smoe_codec::Codec;
use smoe_model::store::TensorStore;
use smoe_vault::{Assembly, Contents, Existing, Start, Unit, VaultWriter, WriteOptions, WriteStep};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use calibration::{Calibration, HIDDEN_BYTES};
pub(crate) use prepare::add_experts;
pub use report::{CalibrationReport, QuantizeReport, Spread};

/// How the trunk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrunkStorage {
    /// As it came.
    AsPublished,
    /// Projections, embedding and head in `q8`, the rest as it came.
    Q8,
}

impl TrunkStorage {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AsPublished => "bf16",
            Self::Q8 => "q8",
        }
    }

    /// The storage of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::AsPublished, Self::Q8].into_iter().find(|t| t.name() == name)
    }
}

/// What happens to files that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Presence {
    /// Replace a vault of the target's name.
    pub force: bool,
    /// Go on with the partial file of an interrupted conversion.
    pub resume: bool,
}

/// How to convert.
#[derive(Debug, Clone)]
pub struct QuantizeOptions {
    /// The codec of the experts.
    pub codec: Codec,
    /// How the trunk is stored.
    pub trunk: TrunkStorage,
    /// Files that are there already.
    pub presence: Presence,
    /// Plan and refuse, write nothing.
    pub dry_run: bool,
    /// Threads; `None` for one a core.
    pub threads: Option<usize>,
    /// Seed of everything random; recorded.
    pub seed: u64,
    /// The repository's name for the provenance; `None` for the folder's.
    pub source: Option<String>,
    /// Config keys to pass over.
    pub ignore_config: Vec<String>,
    /// How the experts are calibrated; `None` for rounding to nearest.
    pub calibration: Option<Calibration>,
}

impl QuantizeOptions {
    /// Rounding to nearest with `codec`, everything else as by default.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            trunk: TrunkStorage::AsPublished,
            presence: Presence::default(),
            dry_run: false,
            threads: None,
            seed: 0,
            source: None,
            ignore_config: Vec::new(),
            calibration: None,
        }
    }
}

/// Turns a checkpoint folder into a vault. The bytes follow from the checkpoint and the options alone.
///
/// # Errors
/// Whatever refuses the checkpoint or the target before a byte is written; a weight that is not finite (nothing remains
/// then); failed reads and writes and cancellation (the partial file remains for `resume`).
pub fn quantize(
    checkpoint: &Path,
    vault: &Path,
    options: &QuantizeOptions,
    control: &Control<'_>,
) -> Result<QuantizeReport> {
    quantize_under(checkpoint, vault, options, (control, &Untouched))
}

/// [`quantize`] with a hand in the works, for tests of the guards.
pub(crate) fn quantize_under(
    checkpoint: &Path,
    vault: &Path,
    options: &QuantizeOptions,
    (control, tamper): (&Control<'_>, &dyn Tamper),
) -> Result<QuantizeReport> {
    let started = Instant::now();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads.unwrap_or(0))
        .build()
        .map_err(|e| QuantizeError::Refused(format!("cannot start threads: {e}")))?;
    let prepared = prepare::prepare(checkpoint, options, tamper)?;
    refuse_target(vault, options)?;
    let mut report = prepared.report(vault, options);
    if options.dry_run {
        crate::disk::require_space(&crate::disk::parent(vault), prepared.layout.data_end())?;
        report.seconds = started.elapsed().as_secs_f64();
        return Ok(report);
    }
    let how = WriteOptions {
        existing: if options.presence.force { Existing::Replace } else { Existing::Refuse },
        start: if options.presence.resume { Start::Resume } else { Start::Fresh },
        fingerprint: prepared.fingerprint(options)?,
    };
    let writer = VaultWriter::create(vault, prepared.layout.clone(), how)?;
    prepared.say(control);
    let run = Run {
        prepared: &prepared,
        writer: &writer,
        control,
        tamper,
        folder: &crate::disk::parent(vault),
        done: AtomicU64::new(0),
        total: prepared.bytes(),
    };
    let (written, files) = std::thread::scope(|scope| {
        let files = scope.spawn(|| hashes::files(&prepared.checkpoint, control));
        let written = pool.install(|| run.all());
        let files = files.join().unwrap_or_else(|_| Err(QuantizeError::Refused("hashing the files failed".into())));
        (written, files)
    });
    report.resumed = written.as_ref().is_ok_and(|&kept| kept > 0);
    match written.and(files) {
        Ok(files) => {
            let reports = prepared.reports(&writer)?;
            let finished = writer.finish(contents(&prepared, options, (&files, &reports))?)?;
            report.bytes = finished.len_bytes;
            prepared.count(&reports, &mut report);
        }
        Err(error) => {
            // No resume can pass a damaged weight, nor a calibration that fails: it would fail again.
            if matches!(error, QuantizeError::BadWeight(_) | QuantizeError::Calibrate(_)) {
                writer.discard();
            }
            return Err(error);
        }
    }
    report.seconds = started.elapsed().as_secs_f64();
    report.peak_rss_bytes = smoe_engine::peak_rss_bytes();
    Ok(report)
}

/// Exact length of the vault that a conversion with `options` would write: the writer's own places and manifest, with
/// checksums and hashes, whose lengths are fixed, left at zero.
pub(crate) fn vault_bytes(checkpoint: &Path, options: &QuantizeOptions) -> Result<u64> {
    let prepared = prepare::prepare(checkpoint, options, &Untouched)?;
    let mut assembly = Assembly::new(prepared.layout.clone());
    while let Some(unit) = assembly.missing() {
        assembly.accept(unit, 0);
    }
    let files = hashes::placeholders(&prepared.checkpoint);
    let steps = assembly.close(contents(&prepared, options, (&files, &[]))?);
    let steps = steps.map_err(|e| QuantizeError::Refused(e.to_string()))?;
    let length = steps.iter().find_map(|step| match step {
        WriteStep::SetLen(length) => Some(*length),
        _ => None,
    });
    Ok(length.expect("a vault is given its length"))
}

/// Refuses a target before anything long begins.
fn refuse_target(vault: &Path, options: &QuantizeOptions) -> Result<()> {
    if vault.exists() && !options.presence.force {
        return Err(QuantizeError::Exists(vault.to_owned()));
    }
    let parent = crate::disk::parent(vault);
    crate::disk::require_writable(&parent)
}

/// What the manifest says beside places and checksums.
fn contents(
    prepared: &Prepared,
    options: &QuantizeOptions,
    (files, reports): (&[Value], &[TensorReport]),
) -> Result<Contents> {
    let value = |what: serde_json::Result<Value>| what.map_err(|e| QuantizeError::Refused(format!("manifest: {e}")));
    Ok(Contents {
        spec: value(serde_json::to_value(prepared.checkpoint.spec()))?,
        bindings: value(serde_json::to_value(prepared.checkpoint.bindings()))?,
        provenance: prepared.provenance(options, files, reports),
        verdict: None,
    })
}

/// A conversion that is being written.
struct Run<'a> {
    prepared: &'a Prepared,
    writer: &'a VaultWriter,
    control: &'a Control<'a>,
    tamper: &'a dyn Tamper,
    /// The vault's folder.
    folder: &'a Path,
    done: AtomicU64,
    total: u64,
}

impl Run<'_> {
    /// Writes every part that is not written yet; the number of those that were.
    fn all(&self) -> Result<usize> {
        let mut kept = 0;
        for (i, (_, bytes)) in self.prepared.sections.iter().enumerate() {
            if self.is_written(Unit::Section(i), bytes.len() as u64) {
                kept += 1;
            } else {
                self.writer.write_section(i, bytes)?;
                self.advance("text", bytes.len() as u64);
            }
        }
        for (i, tensor) in self.prepared.trunk.iter().enumerate() {
            if self.is_written(Unit::Trunk(i), tensor.bytes) {
                kept += 1;
                continue;
            }
            let mut sink = self.writer.trunk_sink(i);
            trunk::stream(&self.prepared.checkpoint, tensor, &mut |bytes| {
                self.control.check()?;
                self.advance("trunk", bytes.len() as u64);
                Ok(sink.write(bytes)?)
            })?;
            sink.finish(Value::Null)?;
        }
        let experts = match self.prepared.calibrating() {
            Some(calibrating) => Walk { run: self, calibrating, tamper: self.tamper, folder: self.folder }.all()?,
            None => self.experts()?,
        };
        Ok(kept + experts)
    }

    /// Encodes batch after batch; the one before is written meanwhile.
    fn experts(&self) -> Result<usize> {
        let waiting = |&i: &usize| !self.is_written(Unit::Expert(i), self.prepared.jobs[i].layout.len_bytes() as u64);
        let indices: Vec<usize> = (0..self.prepared.jobs.len()).filter(waiting).collect();
        let jobs: Vec<_> = indices.iter().map(|&i| self.prepared.jobs[i].clone()).collect();
        let (mut at, threads) = (0, rayon::current_num_threads());
        let (mut encoding, mut writing) = (Vec::new(), Vec::new());
        let mut write_from: &[usize] = &[];
        while at < jobs.len() || !write_from.is_empty() {
            let batch = &jobs[at..at + experts::batch_len(&jobs[at..], threads)];
            let (encoded, written) = rayon::join(
                || experts::encode(&self.prepared.checkpoint, batch, &mut encoding, self.control),
                || self.write(write_from, &writing),
            );
            encoded.and(written)?;
            write_from = &indices[at..at + batch.len()];
            at += batch.len();
            std::mem::swap(&mut encoding, &mut writing);
        }
        Ok(self.prepared.jobs.len() - jobs.len())
    }

    fn write(&self, indices: &[usize], blobs: &[Vec<u8>]) -> Result<()> {
        for (&i, blob) in indices.iter().zip(blobs) {
            self.writer.write_expert(i, blob, Value::Null)?;
            self.advance("experts", blob.len() as u64);
        }
        Ok(())
    }

    fn is_written(&self, unit: Unit, bytes: u64) -> bool {
        let written = self.writer.is_written(unit);
        if written {
            self.advance("finished before", bytes);
        }
        written
    }

    fn advance(&self, phase: &'static str, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.control.progress)(Progress { phase, done, total: self.total });
    }
}

#[cfg(test)]
mod tests_families;
#[cfg(test)]
mod tests_faults;
