//! Calibrated experts: the engine walks through the layers, each is solved on what it really sees, written, and feeds the
//! next.

use super::Run;
use super::calibration::Calibrating;
use super::experts;
use crate::calibrate::{ExpertResult, Layer, Projection, Shape, Tamper, TensorAt, calibrate_layer, check_reports};
use crate::capture::{CheckpointLayer, Room, Streams};
use crate::error::{QuantizeError, Result};
use smoe_engine::sources::{BlobExperts, CheckpointExperts};
use smoe_engine::{Layerwise, LoadedLayer};
use smoe_model::spec::{Mlp, MoeSpec};
use smoe_model::store::{ExpertReader, TensorStore};
use smoe_vault::Unit;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A walk through the layers.
pub(super) struct Walk<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) calibrating: &'a Calibrating,
    pub(super) tamper: &'a dyn Tamper,
    /// Where hidden states are put that memory does not hold.
    pub(super) folder: &'a Path,
}

impl Walk<'_> {
    /// Calibrates and writes all experts that are not written yet; the number of those that were.
    pub(super) fn all(&self) -> Result<usize> {
        let checkpoint = &*self.run.prepared.checkpoint;
        let Some((last, _)) = checkpoint.spec().moe_layers().last() else { return Ok(0) };
        let model = Layerwise::new(checkpoint, rayon::current_num_threads())?;
        let room = Room { memory_bytes: self.calibrating.hidden_bytes, folder: self.folder };
        let reference = self.calibrating.plan.recipe.needs_reference();
        let mut streams = Streams::embed(&model, &self.calibrating.chosen.rows, reference, room)?;
        let mut kept = 0;
        for index in 0..=last {
            let layer = model.layer(index)?;
            streams.mix(&layer, self.run.control)?;
            let original = self.original();
            match &layer.spec().mlp {
                Mlp::Dense { .. } => streams.feed(&layer, [&original, &original], self.run.control)?,
                Mlp::Moe(moe) => {
                    let (blobs, old) = self.layer(&layer, moe, &mut streams)?;
                    kept += old;
                    if index < last {
                        streams.feed(&layer, [&blobs, &original], self.run.control)?;
                    }
                }
            }
        }
        Ok(kept)
    }

    /// The checkpoint's own experts, read when first needed.
    fn original(&self) -> CheckpointExperts {
        let reader: Arc<dyn ExpertReader> = self.run.prepared.checkpoint.clone();
        CheckpointExperts::new(self.run.prepared.checkpoint.spec(), reader)
    }

    /// The layer's blobs, and how many of them were written before.
    fn layer(&self, layer: &LoadedLayer<'_>, moe: &MoeSpec, streams: &mut Streams) -> Result<(BlobExperts, usize)> {
        let run = self.run;
        let jobs = self.jobs_of(layer.index());
        let blob_bytes = run.prepared.jobs[jobs.start].layout.len_bytes() as u64;
        let old = jobs.clone().filter(|&i| run.is_written(Unit::Expert(i), blob_bytes)).count();
        let blobs = if old == jobs.len() {
            jobs.clone().map(|i| Ok(run.writer.read_expert(i)?)).collect::<Result<Vec<_>>>()?
        } else {
            streams.look(layer, self.tamper, run.control)?;
            let begun = |expert: usize| {
                if !run.writer.is_written(Unit::Expert(jobs.start + expert)) {
                    run.advance("experts", blob_bytes);
                }
            };
            let results = self.solve((layer.index(), moe), streams, &begun)?;
            let reports: Vec<_> = results.iter().flat_map(|r| r.reports.iter().cloned()).collect();
            check_reports(&expected(layer.index(), moe.experts), &reports, self.calibrating.options.arm)?;
            jobs.clone().zip(results).map(|(i, result)| self.write(i, &result)).collect::<Result<Vec<_>>>()?
        };
        Ok((BlobExperts::new(layer.index(), &run.prepared.jobs[jobs.start].layout, blobs), old))
    }

    /// Indices of a layer's jobs.
    fn jobs_of(&self, layer: usize) -> Range<usize> {
        let jobs = &self.run.prepared.jobs;
        let start = jobs.partition_point(|job| job.layer < layer);
        start..jobs.partition_point(|job| job.layer <= layer)
    }

    fn solve(
        &self,
        (index, moe): (usize, &MoeSpec),
        streams: &Streams,
        begun: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<ExpertResult>> {
        let checkpoint = &*self.run.prepared.checkpoint;
        let hidden = checkpoint.spec().hidden;
        let shape = Shape { experts: moe.experts, hidden, width: moe.width, act: moe.act };
        let layer = Layer {
            index,
            shape,
            tokens: streams.tokens(),
            held_from: self.calibrating.chosen.held_from,
            routed: streams.routed(),
        };
        let source = CheckpointLayer {
            checkpoint,
            layer: index,
            shape: (moe.width, hidden),
            inputs: streams.inputs(),
            control: self.run.control,
            begun,
        };
        Ok(calibrate_layer(&layer, &source, &self.calibrating.options, self.tamper)?)
    }

    /// Puts a result into its blob and writes it, unless it is written.
    fn write(&self, index: usize, result: &ExpertResult) -> Result<Vec<u8>> {
        let job = &self.run.prepared.jobs[index];
        let mut blob = vec![0; job.layout.len_bytes()];
        for (i, encoded) in result.encoded.iter().enumerate() {
            blob[job.layout.codes(i)].copy_from_slice(&encoded.codes);
            blob[job.layout.scales(i)].copy_from_slice(&encoded.scales);
        }
        experts::biases(&self.run.prepared.checkpoint, job, &mut blob)?;
        if !self.run.writer.is_written(Unit::Expert(index)) {
            let note =
                serde_json::to_value(&result.reports).map_err(|e| QuantizeError::Refused(format!("note: {e}")))?;
            self.run.writer.write_expert(index, &blob, note)?;
            self.run.advance("written", 0);
        }
        Ok(blob)
    }
}

/// The matrices of a layer.
fn expected(layer: usize, experts: usize) -> Vec<TensorAt> {
    let of = |expert| Projection::ALL.map(|projection| TensorAt { layer, expert, projection });
    (0..experts).flat_map(of).collect()
}
