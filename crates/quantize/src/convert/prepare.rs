//! Everything about a conversion that headers decide: parts, places, provenance.

use super::calibration::{Calibrating, Making};
use super::experts::Job;
use super::provenance;
use super::report::{CalibrationReport, calibration_notes, method_notes};
use super::trunk::{self, Planned};
use super::{QuantizeOptions, QuantizeReport};
use crate::calibrate::{Projection, Tamper, TensorAt, TensorReport, check_reports};
use crate::control::Control;
use crate::error::{QuantizeError, Result};
use crate::opened::vault_dtype;
use crate::sections::{self, Sections};
use serde_json::{Value, json};
use smoe_codec::Codec;
use smoe_gate::{SHINGLES_SECTION, Shingles};
use smoe_model::counts::counts;
use smoe_model::spec::ModelSpec;
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, OpenOptions};
use smoe_vault::{BlobLayout, ExpertShape, Layout, LayoutBuilder, Unit, VaultWriter};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A conversion, planned.
pub(super) struct Prepared {
    pub(super) checkpoint: Arc<Checkpoint>,
    pub(super) making: Making,
    pub(super) sections: Sections,
    pub(super) trunk: Vec<Planned>,
    /// By the index of the layout's experts.
    pub(super) jobs: Vec<Job>,
    pub(super) layout: Layout,
    notes: Vec<String>,
    source: String,
}

pub(super) fn prepare(folder: &Path, options: &QuantizeOptions, tamper: &dyn Tamper) -> Result<Prepared> {
    if options.codec == Codec::Q8 {
        return Err(QuantizeError::Refused("codec q8 is for the trunk only; expected q2 or q4".into()));
    }
    let open = OpenOptions { ignore_config: options.ignore_config.clone() };
    let checkpoint = Checkpoint::open(folder, &open)?.with_bf16_trunk();
    let (mut sections, mut notes) = sections::of_checkpoint(&checkpoint)?;
    let making = Making::new(&checkpoint, options, tamper)?;
    if let Making::Calibrated(calibrating) = &making {
        let shingles = Shingles::of_rows(calibrating.chosen.rows.iter().map(Vec::as_slice));
        sections.push((SHINGLES_SECTION.to_owned(), shingles.to_bytes()));
    }
    let trunk = trunk::plan(&checkpoint, options.trunk == super::TrunkStorage::Q8)?;
    let mut builder = Layout::builder();
    for (name, bytes) in &sections {
        builder.section(name, bytes.len() as u64);
    }
    for tensor in &trunk {
        let shape: Vec<u64> = tensor.from.shape.iter().map(|&n| n as u64).collect();
        builder.trunk(&tensor.name, vault_dtype(tensor.dtype), &shape);
    }
    add_experts(&mut builder, checkpoint.spec(), options.codec)?;
    let layout = builder.build().map_err(|e| QuantizeError::Refused(e.to_string()))?;
    let jobs = jobs(&layout)?;
    if jobs.is_empty() {
        return Err(QuantizeError::Refused("the model has no routed experts: there is nothing to quantise".into()));
    }
    notes.extend(checkpoint.report().notes.iter().cloned());
    let source = source_name(folder, options.source.as_deref());
    let checkpoint = Arc::new(checkpoint);
    Ok(Prepared { checkpoint, making, sections, trunk, jobs, layout, notes, source })
}

/// Adds every expert of the model.
pub(crate) fn add_experts(builder: &mut LayoutBuilder, spec: &ModelSpec, codec: Codec) -> Result<()> {
    let narrow = |n: usize| {
        u32::try_from(n).map_err(|_| QuantizeError::Refused(format!("a size of {n} is beyond the vault's limit")))
    };
    for (layer, moe) in spec.moe_layers() {
        for expert in 0..moe.experts {
            builder.expert(ExpertShape {
                layer: narrow(layer)?,
                expert: narrow(expert)?,
                codecs: [codec; 3],
                hidden: narrow(spec.hidden)?,
                width: narrow(moe.width)?,
                biases: moe.expert_bias,
            });
        }
    }
    Ok(())
}

fn jobs(layout: &Layout) -> Result<Vec<Job>> {
    let job = |record: &smoe_vault::ExpertRecord| {
        let layout = BlobLayout::new(record.codecs, record.hidden, record.width, record.biases)
            .map_err(|e| QuantizeError::Refused(e.to_string()))?;
        Ok(Job { layer: record.layer as usize, expert: record.expert as usize, layout })
    };
    layout.experts().iter().map(job).collect()
}

/// The given name, else the folder's own: never a path of this machine.
fn source_name(folder: &Path, given: Option<&str>) -> String {
    let own = || {
        let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        whole.file_name().map_or_else(|| "unnamed".to_owned(), |n| n.to_string_lossy().into_owned())
    };
    given.map_or_else(own, str::to_owned)
}

impl Prepared {
    /// The calibration, where there is one.
    pub(super) fn calibrating(&self) -> Option<&Calibrating> {
        match &self.making {
            Making::Calibrated(calibrating) => Some(calibrating),
            Making::Rtn(_) => None,
        }
    }

    /// What the user should read before the work begins.
    pub(super) fn say(&self, control: &Control<'_>) {
        if let Some(calibrating) = self.calibrating() {
            calibrating.plan.lines(calibrating.options.arm).iter().for_each(|line| (control.say)(line));
        }
    }

    /// How each matrix was made, judged: by this attempt and by earlier ones. Nothing without calibration.
    pub(super) fn reports(&self, writer: &VaultWriter) -> Result<Vec<TensorReport>> {
        let Some(calibrating) = self.calibrating() else { return Ok(Vec::new()) };
        let mut reports: Vec<TensorReport> = Vec::with_capacity(3 * self.jobs.len());
        let mut expected = Vec::with_capacity(3 * self.jobs.len());
        for (i, job) in self.jobs.iter().enumerate() {
            let note = writer.note(Unit::Expert(i)).unwrap_or_default();
            let unreadable = |e| QuantizeError::Refused(format!("the journal's note of expert {i}: {e}"));
            // Through text, as a journal keeps it, whether this attempt wrote it or an earlier one.
            let of_expert: [TensorReport; 3] = serde_json::from_str(&note.to_string()).map_err(unreadable)?;
            reports.extend(of_expert);
            let at = |projection| TensorAt { layer: job.layer, expert: job.expert, projection };
            expected.extend(Projection::ALL.map(at));
        }
        check_reports(&expected, &reports, calibrating.options.arm)?;
        Ok(reports)
    }

    /// Adds what was calibrated to a report.
    pub(super) fn count(&self, reports: &[TensorReport], report: &mut QuantizeReport) {
        if let Some(calibrating) = self.calibrating() {
            let calibrated = CalibrationReport::new(calibrating, reports);
            report.calibrated_tensors = calibrated.calibrated as u64;
            report.rtn_tensors = calibrated.rtn as u64;
            report.notes.extend(calibration_notes(reports));
            report.calibration = Some(calibrated);
        }
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.sections.iter().map(|(_, b)| b.len() as u64).sum::<u64>() + self.trunk_bytes() + self.expert_bytes()
    }

    fn trunk_bytes(&self) -> u64 {
        self.trunk.iter().map(|t| t.bytes).sum()
    }

    fn expert_bytes(&self) -> u64 {
        self.jobs.iter().map(|j| j.layout.len_bytes() as u64).sum()
    }

    /// Bits of codes and scales over weights.
    fn bits_per_weight(&self) -> f64 {
        let (mut bytes, mut weights) = (0, 0);
        for job in &self.jobs {
            for proj in 0..3 {
                bytes += job.layout.codes(proj).len() + job.layout.scales(proj).len();
                let (rows, cols) = job.layout.shape(proj);
                weights += rows * cols;
            }
        }
        8.0 * bytes as f64 / weights as f64
    }

    /// What the partial file of a conversion must agree in to be continued: options, files, program.
    pub(super) fn fingerprint(&self, options: &QuantizeOptions) -> Result<String> {
        let mut files = Vec::new();
        for shard in self.checkpoint.files() {
            let path = self.checkpoint.folder().join(&shard.name);
            let meta = std::fs::metadata(&path).map_err(QuantizeError::io(&path, "read"))?;
            let changed = meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
            files.push(json!([shard.name, shard.len, changed.map(|t| t.as_nanos().to_string())]));
        }
        let sections: Vec<_> = self.sections.iter().map(|(n, b)| json!([n, smoe_vault::checksum(b)])).collect();
        Ok(json!([env!("CARGO_PKG_VERSION"), self.options(options), self.source, files, sections]).to_string())
    }

    /// The options that affect bytes.
    fn options(&self, options: &QuantizeOptions) -> Value {
        json!({
            "codec": options.codec.name(),
            "trunk": options.trunk.name(),
            "seed": options.seed,
            "ignore_config": options.ignore_config,
            "calibration": self.calibrating().map(Calibrating::describe),
        })
    }

    /// How the vault was made: no times, paths or thread counts.
    pub(super) fn provenance(&self, options: &QuantizeOptions, files: &[Value], reports: &[TensorReport]) -> Value {
        let encoded: Vec<_> = self.trunk.iter().filter(|t| t.dtype != t.from.dtype).map(|t| t.name.as_str()).collect();
        let skipped = self.skipped();
        json!({
            "smoe": env!("CARGO_PKG_VERSION"),
            "source": { "name": self.source, "files": files },
            "options": self.options(options),
            "experts": provenance::experts(self, options.codec, reports),
            "trunk": { "as_published": self.trunk.len() - encoded.len(), "q8": encoded },
            "skipped": skipped,
        })
    }

    /// Skipped tensors, counted by rule.
    fn skipped(&self) -> BTreeMap<&str, usize> {
        let mut by_rule = BTreeMap::new();
        for (rule, _) in &self.checkpoint.report().skipped {
            *by_rule.entry(rule.as_str()).or_default() += 1;
        }
        by_rule
    }

    /// The report as far as it is known before anything is written.
    pub(super) fn report(&self, vault: &Path, options: &QuantizeOptions) -> QuantizeReport {
        let mut notes = self.notes.clone();
        if let Making::Rtn(why) = &self.making {
            notes.extend(method_notes(options.codec, why));
        }
        let ignored = &self.checkpoint.report().ignored_files;
        if !ignored.is_empty() {
            notes.push(format!("no part of the checkpoint, ignored: {}", ignored.join(", ")));
        }
        QuantizeReport {
            vault: vault.display().to_string(),
            bytes: self.layout.data_end(),
            codec: options.codec.name(),
            trunk: options.trunk.name(),
            bits_per_weight: self.bits_per_weight(),
            experts: self.jobs.len() as u64,
            parameters: counts(self.checkpoint.spec()).total,
            trunk_bytes: self.trunk_bytes(),
            expert_bytes: self.expert_bytes(),
            seconds: 0.0,
            peak_rss_bytes: None,
            calibrated_tensors: 0,
            rtn_tensors: 3 * self.jobs.len() as u64,
            calibration: None,
            resumed: false,
            dry_run: options.dry_run,
            skipped: self.skipped().into_iter().map(|(rule, n)| (rule.to_owned(), n)).collect(),
            notes,
        }
    }
}
