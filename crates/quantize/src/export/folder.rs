//! An ordinary checkpoint folder of the dequantised weights.

use super::tensors::{self, PROJS, Source, Target, Tensor, shape};
use super::{Element, ExportReport};
use crate::control::{Control, Progress};
use crate::error::{QuantizeError, Result};
use crate::opened::{self, Opened};
use crate::sections::is_released_file;
use crate::shards::{self, Folder, SHARD_BYTES, ShardFile};
use rayon::prelude::*;
use serde_json::Value;
use smoe_codec::{Codec, decode_row, half};
use smoe_model::families::spec_from_config;
use smoe_model::formats::decode_plain;
use smoe_model::role::{ExpertBindings, Proj};
use smoe_model::spec::{Mlp, MoeSpec};
use smoe_model::store::{Dtype, q8_scales_at};
use smoe_model::{Checkpoint, OpenOptions};
use smoe_vault::BlobLayout;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Weights dequantised at a time.
const PIECE: usize = 4 << 20;

/// How to write the folder.
#[derive(Debug, Clone, Copy)]
pub struct HfOptions {
    /// Element type.
    pub element: Element,
    /// Replace what is at the target.
    pub force: bool,
}

/// Writes the vault as a checkpoint folder: the published tensor names and orders, config.json without its quantisation,
/// the tokenizer's files. The folder is opened as a checkpoint before it gets its name.
///
/// # Errors
/// A vault that is damaged or not understood, a target that exists, too little space, failed writes, cancellation.
pub fn to_hf(vault: &Path, target: &Path, options: HfOptions, control: &Control<'_>) -> Result<ExportReport> {
    let started = Instant::now();
    let vault = opened::open(vault)?;
    let config = config(&vault, options.element)?;
    let open = OpenOptions { ignore_config: ignored_keys(&vault) };
    let Target { tensors, experts } = tensors::target(&vault, &spec_from_config(&config, &open)?, options.element)?;
    let entries: Vec<_> = tensors.iter().map(|t| t.entry.clone()).collect();
    let shards = shards::plan(&entries, SHARD_BYTES);
    let bytes: u64 = shards.iter().map(|s| s.bytes).sum();
    shards::check_target(target, options.force)?;
    let parent = crate::disk::parent(target);
    crate::disk::require_writable(&parent)?;
    crate::disk::require_space(&parent, bytes)?;
    let folder = Folder::create(target, options.force)?;
    let mut files = vec!["config.json".to_owned()];
    folder.text("config.json", &config)?;
    let (vault, element) = (&vault, options.element);
    let mut writer = Writer { vault, experts: &experts, element, control, done: 0, total: bytes, blob: None };
    for shard in &shards {
        let mut file = folder.shard(shard)?;
        for tensor in &tensors[shard.entries.clone()] {
            writer.tensor(tensor, &mut file)?;
        }
        file.finish()?;
        files.push(shard.name.clone());
    }
    if shards.len() > 1 {
        folder.text("model.safetensors.index.json", &shards::index(&entries, &shards).to_string())?;
        files.push("model.safetensors.index.json".into());
    }
    files.extend(released_files(vault, &folder)?);
    Checkpoint::open(folder.path(), &open)?;
    folder.finish()?;
    let seconds = started.elapsed().as_secs_f64();
    let notes =
        vec!["weights are those of the vault, dequantised; tensors that the vault left out are not there".into()];
    Ok(ExportReport { path: target.display().to_string(), format: "hf", bytes, files, seconds, notes })
}

/// Config keys that the conversion was told to pass over.
fn ignored_keys(vault: &Opened) -> Vec<String> {
    let keys = vault.file.manifest().provenance.pointer("/options/ignore_config").and_then(Value::as_array);
    keys.into_iter().flatten().filter_map(|key| key.as_str().map(str::to_owned)).collect()
}

/// config.json with the dtype of the export and without a quantisation.
fn config(vault: &Opened, element: Element) -> Result<String> {
    let refused =
        |what: String| QuantizeError::Refused(format!("{}: section `config.json`: {what}", vault.file.name()));
    let bytes = vault.file.section("config.json")?;
    let bytes = bytes.ok_or_else(|| refused("is not there; the vault was not made from a checkpoint folder".into()))?;
    let mut config: Value = serde_json::from_slice(&bytes).map_err(|e| refused(format!("is not valid JSON: {e}")))?;
    fix(&mut config, element);
    if config.get("dtype").is_none() && config.get("torch_dtype").is_none() {
        config["torch_dtype"] = element.config().into();
    }
    Ok(format!("{config:#}\n"))
}

fn fix(config: &mut Value, element: Element) {
    let Some(map) = config.as_object_mut() else { return };
    map.shift_remove("quantization_config");
    for key in ["dtype", "torch_dtype"] {
        if let Some(value) = map.get_mut(key) {
            *value = element.config().into();
        }
    }
    if let Some(text) = map.get_mut("text_config") {
        fix(text, element);
    }
}

fn released_files(vault: &Opened, folder: &Folder) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for section in &vault.file.manifest().sections {
        if is_released_file(&section.name)
            && let Some(bytes) = vault.file.section(&section.name)?
        {
            folder.bytes(&section.name, &bytes)?;
            names.push(section.name.clone());
        }
    }
    Ok(names)
}

/// An expert's blob, and whose it is.
struct Blob {
    key: (usize, usize),
    layout: BlobLayout,
    bytes: Vec<u8>,
}

struct Writer<'a> {
    vault: &'a Opened,
    /// Where the experts lie in the folder.
    experts: &'a BTreeMap<usize, ExpertBindings>,
    element: Element,
    control: &'a Control<'a>,
    done: u64,
    total: u64,
    /// The last one read: its three matrices are usually asked for one after another.
    blob: Option<Blob>,
}

impl Writer<'_> {
    fn put(&mut self, file: &mut ShardFile, bytes: &[u8]) -> Result<()> {
        self.control.check()?;
        file.write(bytes)?;
        self.done += bytes.len() as u64;
        (self.control.progress)(Progress { phase: "weights", done: self.done, total: self.total });
        Ok(())
    }

    fn put_values(&mut self, file: &mut ShardFile, values: &[f32]) -> Result<()> {
        let bytes = to_bytes(self.element, values);
        self.put(file, &bytes)
    }

    fn tensor(&mut self, tensor: &Tensor, file: &mut ShardFile) -> Result<()> {
        match &tensor.source {
            Source::Trunk(name) => self.trunk(name, file),
            &Source::Matrix { layer, expert, proj } => self.matrix(layer, expert, proj, file),
            &Source::Bias { layer, expert, proj } => {
                let values = bias(self.blob(layer, expert)?, proj);
                self.put_values(file, &values)
            }
            Source::Stack { layer, tensor, stride } => self.stack(*layer, tensor, *stride, file),
            Source::BiasStack { layer, tensor, stride } => self.bias_stack(*layer, tensor, *stride, file),
        }
    }

    fn moe(&self, layer: usize) -> Result<&MoeSpec> {
        match self.vault.spec.layers.get(layer).map(|l| &l.mlp) {
            Some(Mlp::Moe(moe)) => Ok(moe),
            _ => Err(QuantizeError::Refused(format!("layer {layer} has no experts"))),
        }
    }

    fn blob(&mut self, layer: usize, expert: usize) -> Result<&Blob> {
        if self.blob.as_ref().is_none_or(|b| b.key != (layer, expert)) {
            let record = u32::try_from(layer).ok().zip(u32::try_from(expert).ok());
            let record = record.and_then(|(l, e)| self.vault.file.expert(l, e)).ok_or_else(|| {
                QuantizeError::Refused(format!("{}: no expert {expert} of layer {layer}", self.vault.file.name()))
            })?;
            let layout = BlobLayout::new(record.codecs, record.hidden, record.width, record.biases)
                .map_err(|e| QuantizeError::Refused(e.to_string()))?;
            let bytes = self.vault.file.read_blob(record)?;
            self.blob = Some(Blob { key: (layer, expert), layout, bytes });
        }
        Ok(self.blob.as_ref().expect("read above"))
    }

    fn matrix(&mut self, layer: usize, expert: usize, proj: Proj, file: &mut ShardFile) -> Result<()> {
        let [rows, cols] = shape(self.vault.spec.hidden, self.moe(layer)?, proj);
        let step = (PIECE / cols).max(1);
        for first in (0..rows).step_by(step) {
            let values = decode(self.blob(layer, expert)?, proj, first..rows.min(first + step))?;
            self.put_values(file, &values)?;
        }
        Ok(())
    }

    fn stack(&mut self, layer: usize, tensor: &str, stride: usize, file: &mut ShardFile) -> Result<()> {
        let moe = self.moe(layer)?.clone();
        let views = &self.experts[&layer].weights;
        let mut values = vec![0.0; stride];
        for expert in 0..moe.experts {
            for proj in PROJS {
                let view = &views[proj as usize];
                if view.tensor != tensor {
                    continue;
                }
                let [rows, cols] = shape(self.vault.spec.hidden, &moe, proj);
                let decoded = decode(self.blob(layer, expert)?, proj, 0..rows)?;
                for (r, row) in decoded.chunks_exact(cols).enumerate() {
                    for (c, &value) in row.iter().enumerate() {
                        values[view.offset + r * view.row_stride + c * view.col_stride] = value;
                    }
                }
            }
            self.put_values(file, &values)?;
        }
        Ok(())
    }

    fn bias_stack(&mut self, layer: usize, tensor: &str, stride: usize, file: &mut ShardFile) -> Result<()> {
        let experts = self.moe(layer)?.experts;
        let Some(views) = &self.experts[&layer].biases else { return Ok(()) };
        let mut values = vec![0.0; stride];
        for expert in 0..experts {
            for proj in PROJS {
                let view = &views[proj as usize];
                if view.tensor == tensor {
                    for (r, value) in bias(self.blob(layer, expert)?, proj).into_iter().enumerate() {
                        values[view.offset + r * view.row_stride] = value;
                    }
                }
            }
            self.put_values(file, &values)?;
        }
        Ok(())
    }

    fn trunk(&mut self, name: &str, file: &mut ShardFile) -> Result<()> {
        let tensor = self.vault.file.manifest().trunk.iter().find(|t| t.name == name);
        let tensor = tensor.ok_or_else(|| QuantizeError::Refused(format!("no trunk tensor `{name}`")))?;
        let dtype = opened::dtype(tensor.dtype);
        let cols = tensor.shape.last().copied().unwrap_or(1) as usize;
        let rows = tensor.shape.iter().rev().skip(1).product::<u64>() as usize;
        let element = if dtype == Dtype::F32 { Element::F32 } else { self.element };
        let step = (PIECE / cols).max(1);
        let mut values = Vec::new();
        for first in (0..rows).step_by(step) {
            let n = step.min(rows - first);
            values.resize(n * cols, 0.0);
            if dtype == Dtype::Q8 {
                self.q8_rows(name, (rows, cols), first, &mut values)?;
            } else {
                let mut bytes = vec![0; dtype.bytes(n, cols)];
                self.vault.file.read_trunk(name, dtype.bytes(first, cols) as u64, &mut bytes)?;
                decode_plain(dtype, &bytes, &mut values);
            }
            let bytes = to_bytes(element, &values);
            self.put(file, &bytes)?;
        }
        Ok(())
    }

    fn q8_rows(&self, name: &str, (rows, cols): (usize, usize), first: usize, out: &mut [f32]) -> Result<()> {
        let n = out.len() / cols;
        let (code_row, scale_row) = (Codec::Q8.code_bytes(cols), Codec::Q8.scale_bytes(cols));
        let (mut codes, mut scales) = (vec![0; n * code_row], vec![0; n * scale_row]);
        self.vault.file.read_trunk(name, (first * code_row) as u64, &mut codes)?;
        let at = q8_scales_at(rows, cols) + first * scale_row;
        self.vault.file.read_trunk(name, at as u64, &mut scales)?;
        out.par_chunks_mut(cols).enumerate().for_each(|(r, row)| {
            decode_row(Codec::Q8, &codes[r * code_row..][..code_row], &scales[r * scale_row..][..scale_row], row);
        });
        Ok(())
    }
}

/// Rows of a matrix, decoded.
fn decode(blob: &Blob, proj: Proj, rows: std::ops::Range<usize>) -> Result<Vec<f32>> {
    let i = proj as usize;
    let ((_, cols), codec) = (blob.layout.shape(i), blob.layout.codec(i));
    let (codes, scales) = (&blob.bytes[blob.layout.codes(i)], &blob.bytes[blob.layout.scales(i)]);
    if let Some(at) = smoe_codec::bad_scale(scales) {
        return Err(QuantizeError::Refused(format!(
            "layer {} expert {}: {proj:?}: scale {at} is negative, infinite or NaN; the vault is damaged",
            blob.key.0, blob.key.1
        )));
    }
    let (code_row, scale_row) = (codec.code_bytes(cols), codec.scale_bytes(cols));
    let mut values = vec![0.0; rows.len() * cols];
    values.par_chunks_mut(cols).enumerate().for_each(|(r, row)| {
        let r = rows.start + r;
        decode_row(codec, &codes[r * code_row..][..code_row], &scales[r * scale_row..][..scale_row], row);
    });
    Ok(values)
}

fn bias(blob: &Blob, proj: Proj) -> Vec<f32> {
    let range = blob.layout.bias(proj as usize).unwrap_or(0..0);
    blob.bytes[range].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn to_bytes(element: Element, values: &[f32]) -> Vec<u8> {
    match element {
        Element::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Element::Bf16 => values.iter().flat_map(|&v| half::f32_to_bf16(v).to_le_bytes()).collect(),
    }
}
