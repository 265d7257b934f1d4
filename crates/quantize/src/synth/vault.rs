//! A random vault, written directly: codes are random bits, so no weight is ever encoded.

use super::checkpoint::tensor_pieces;
use super::{SynthOptions, SynthReport, config, require_room};
use crate::control::{Control, Progress};
use crate::convert::add_experts;
use crate::error::{QuantizeError, Result};
use crate::random::{SplitMix64, fill_bytes};
use rayon::prelude::*;
use serde_json::{Value, json};
use smoe_codec::{Codec, half};
use smoe_model::checkpoint::bind::{Found, bind_described};
use smoe_model::counts::counts;
use smoe_model::families::spec_from_config;
use smoe_model::{Bindings, ModelSpec, OpenOptions};
use smoe_vault::{BlobLayout, Contents, Dtype, Existing, ExpertRecord, Layout, Start, VaultWriter, WriteOptions};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Random streams of experts come after those of all tensors.
const EXPERT_STREAM: u64 = 1 << 40;

/// Writes a vault whose experts are random codes of `codec` with weights of deviation about `1 / sqrt(cols)`, and whose
/// trunk is that of [`super::checkpoint`]. The bytes follow from options and seed alone.
///
/// # Errors
/// An unknown shape, rows that end within a byte, a target that exists, too little space, failed writes, cancellation.
pub fn vault(target: &Path, options: &SynthOptions, codec: Codec, control: &Control<'_>) -> Result<SynthReport> {
    let started = Instant::now();
    if target.exists() && !options.force {
        return Err(QuantizeError::Exists(target.to_owned()));
    }
    let (config, shape) = config(options)?;
    let tensors = shape.tensors();
    let found = |t: &super::shape::Tensor| {
        let (dtype, shape) = (smoe_model::store::Dtype::Bf16, t.entry.shape.clone());
        Found { name: t.entry.name.clone(), dtype, shape, file: "synth".to_owned() }
    };
    let (spec, bindings) = model(&config, tensors.iter().map(found).collect())?;
    let text = format!("{config:#}\n");
    let mut builder = Layout::builder();
    builder.section("config.json", text.len() as u64);
    let stored: std::collections::BTreeSet<&str> = bindings.trunk.values().map(|b| b.tensor.as_str()).collect();
    let trunk: Vec<(usize, &super::shape::Tensor)> =
        tensors.iter().enumerate().filter(|(_, t)| stored.contains(t.entry.name.as_str())).collect();
    for (_, tensor) in &trunk {
        let axes: Vec<u64> = tensor.entry.shape.iter().map(|&n| n as u64).collect();
        builder.trunk(&tensor.entry.name, Dtype::Bf16, &axes);
    }
    add_experts(&mut builder, &spec, codec)?;
    let layout = builder.build().map_err(|e| QuantizeError::Refused(e.to_string()))?;
    require_room(target, layout.data_end(), control)?;
    let existing = if options.force { Existing::Replace } else { Existing::Refuse };
    let how = WriteOptions { existing, start: Start::Fresh, fingerprint: String::new() };
    let writer = VaultWriter::create(target, layout.clone(), how)?;
    let run = Run { writer: &writer, layout: &layout, options, control, done: AtomicU64::new(0) };
    let written = writer.write_section(0, text.as_bytes()).map_err(Into::into);
    let written = written.and_then(|()| run.trunk(&trunk)).and_then(|()| run.experts());
    if let Err(error) = written {
        writer.discard();
        return Err(error);
    }
    let value = |what: serde_json::Result<Value>| what.map_err(|e| QuantizeError::Refused(format!("manifest: {e}")));
    let finished = writer.finish(Contents {
        spec: value(serde_json::to_value(&spec))?,
        bindings: value(serde_json::to_value(&bindings))?,
        provenance: json!({
            "smoe": env!("CARGO_PKG_VERSION"),
            "source": { "name": format!("synth {}", options.shape) },
            "options": { "codec": codec.name(), "seed": options.seed },
            "experts": { "method": "random", "why": "a synthetic vault, to measure with" },
        }),
        verdict: None,
    })?;
    Ok(SynthReport {
        path: target.display().to_string(),
        bytes: finished.len_bytes,
        files: 1,
        parameters: counts(&spec).total,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// The model of a config and these tensors, bound as its family says.
fn model(config: &Value, tensors: Vec<Found>) -> Result<(ModelSpec, Bindings)> {
    let plan = spec_from_config(&config.to_string(), &OpenOptions::default())?;
    let (bindings, _) = bind_described(&plan, tensors)?;
    Ok((plan.spec, bindings))
}

struct Run<'a> {
    writer: &'a VaultWriter,
    layout: &'a Layout,
    options: &'a SynthOptions,
    control: &'a Control<'a>,
    done: AtomicU64,
}

impl Run<'_> {
    fn advance(&self, phase: &'static str, bytes: usize) -> Result<()> {
        let done = self.done.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        (self.control.progress)(Progress { phase, done, total: self.layout.data_end() });
        self.control.check()
    }

    fn trunk(&self, tensors: &[(usize, &super::shape::Tensor)]) -> Result<()> {
        for (i, &(stream, tensor)) in tensors.iter().enumerate() {
            let mut sink = self.writer.trunk_sink(i);
            tensor_pieces(self.options.seed, stream as u64, tensor, &mut |bytes| {
                sink.write(bytes)?;
                self.advance("trunk", bytes.len())
            })?;
            sink.finish(Value::Null)?;
        }
        Ok(())
    }

    fn experts(&self) -> Result<()> {
        let one = |blob: &mut Vec<u8>, (i, record): (usize, &ExpertRecord)| {
            let layout = BlobLayout::new(record.codecs, record.hidden, record.width, record.biases)
                .map_err(|e| QuantizeError::Refused(e.to_string()))?;
            blob.clear();
            blob.resize(layout.len_bytes(), 0);
            fill(&layout, &mut SplitMix64::new(self.options.seed, EXPERT_STREAM, i as u64), blob)?;
            self.writer.write_expert(i, blob, Value::Null)?;
            self.advance("experts", blob.len())
        };
        self.layout.experts().par_iter().enumerate().try_for_each_init(Vec::new, one)
    }
}

/// Random codes, and scales of four neighbouring sizes.
fn fill(layout: &BlobLayout, rng: &mut SplitMix64, blob: &mut [u8]) -> Result<()> {
    for proj in 0..3 {
        let ((_, cols), codec) = (layout.shape(proj), layout.codec(proj));
        if !(cols * codec.bits()).is_multiple_of(8) {
            return Err(QuantizeError::Refused(format!(
                "rows of {cols} codes end within a byte; choose another shape"
            )));
        }
        fill_bytes(rng, &mut blob[layout.codes(proj)]);
        // Uniform codes over ±s deviate by about s / sqrt(3).
        let scale = (3.0 / cols as f32).sqrt();
        let sizes = [0.75, 0.9, 1.1, 1.25].map(|f| half::f32_to_f16(scale * f).to_le_bytes());
        for block in blob[layout.scales(proj)].chunks_mut(64) {
            let mut word = rng.next_u64();
            for out in block.as_chunks_mut::<2>().0 {
                *out = sizes[(word & 3) as usize];
                word >>= 2;
            }
        }
    }
    Ok(())
}
