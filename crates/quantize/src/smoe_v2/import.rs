//! From an S-MoE file and its trunk to a vault.

use super::trunk::TrunkFile;
use super::{TRUNK_HEADER, config, trunk};
use crate::control::{Control, Progress};
use crate::error::{QuantizeError, Result};
use crate::opened::vault_dtype;
use crate::sections::{self, Sections};
use serde::Serialize;
use serde_json::{Value, json};
use smoe_codec::Codec;
use smoe_model::checkpoint::bind::{Found, bind_described};
use smoe_model::families::{by_model_type, spec_from_config};
use smoe_model::positional::read_exact_at;
use smoe_model::store::Dtype;
use smoe_model::{Bindings, ModelSpec, OpenOptions};
use smoe_vault::smoe_v2::SmoeFile;
use smoe_vault::{BlobLayout, Contents, Existing, ExpertShape, Layout, Start, VaultWriter, WriteOptions};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of the trunk copied at a time.
const CHUNK: usize = 4 << 20;

/// How to import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The trunk file; `None` for the one beside the file.
    pub trunk: Option<PathBuf>,
    /// A folder with tokenizer files, and perhaps a config.json.
    pub tokenizer: Option<PathBuf>,
    /// Replace a vault of the target's name.
    pub force: bool,
}

/// What was imported.
#[derive(Debug, Clone, Serialize)]
pub struct ImportReport {
    /// The vault's path.
    pub vault: String,
    /// Its bytes.
    pub bytes: u64,
    /// The codec of the experts.
    pub codec: &'static str,
    /// Experts copied.
    pub experts: u64,
    /// The family that the file names.
    pub family: String,
    /// Whether an export gives the same file again.
    pub reproducible: bool,
    /// Time taken.
    pub seconds: f64,
    /// What the reader should know, one line each.
    pub notes: Vec<String>,
}

/// An import, planned.
struct Planned {
    file: SmoeFile,
    trunk: TrunkFile,
    spec: ModelSpec,
    bindings: Bindings,
    codec: Codec,
    sections: Sections,
    layout: Layout,
    notes: Vec<String>,
}

/// Copies codes, scales and trunk of an S-MoE version 2 file into a vault.
///
/// # Errors
/// A file that is no such file, whose groups cross rows, or whose family or trunk is not understood; a target that
/// exists; failed reads and writes; cancellation.
pub fn import(smoe: &Path, vault: &Path, options: &ImportOptions, control: &Control<'_>) -> Result<ImportReport> {
    let started = Instant::now();
    if vault.exists() && !options.force {
        return Err(QuantizeError::Exists(vault.to_owned()));
    }
    let mut planned = plan(smoe, options)?;
    let unlike = planned.file.check_reproducible().err();
    if let Some(error) = &unlike {
        planned.notes.push(format!("an export will not give the same file again: {error}"));
    }
    let how = WriteOptions {
        existing: if options.force { Existing::Replace } else { Existing::Refuse },
        start: Start::Fresh,
        fingerprint: String::new(),
    };
    let writer = VaultWriter::create(vault, planned.layout.clone(), how)?;
    let written = write(&planned, &writer, control);
    if let Err(error) = written {
        writer.discard();
        return Err(error);
    }
    let value = |what: serde_json::Result<Value>| what.map_err(|e| QuantizeError::Refused(format!("manifest: {e}")));
    let contents = Contents {
        spec: value(serde_json::to_value(&planned.spec))?,
        bindings: value(serde_json::to_value(&planned.bindings))?,
        provenance: value(provenance(smoe, &planned, unlike.is_none()))?,
        verdict: None,
    };
    let finished = writer.finish(contents)?;
    Ok(ImportReport {
        vault: vault.display().to_string(),
        bytes: finished.len_bytes,
        codec: planned.codec.name(),
        experts: planned.layout.experts().len() as u64,
        family: planned.spec.family.clone(),
        reproducible: unlike.is_none(),
        seconds: started.elapsed().as_secs_f64(),
        notes: planned.notes,
    })
}

fn provenance(smoe: &Path, planned: &Planned, reproducible: bool) -> serde_json::Result<Value> {
    let index = planned.file.index();
    Ok(json!({
        "smoe": env!("CARGO_PKG_VERSION"),
        "source": { "name": smoe.file_name().unwrap_or_default().to_string_lossy(), "trunk": planned.trunk.name },
        "s_moe_v2": {
            "header": serde_json::to_value(index.header)?,
            "arch": serde_json::to_value(index.arch)?,
            "reproducible": reproducible,
        },
        "experts": {
            "method": "imported",
            "why": "codes and scales of the S-MoE file, as they were",
            "codec": format!("smoe-{}", planned.codec.name()),
            "bits": planned.codec.bits(),
            "matrices": 3 * planned.layout.experts().len(),
        },
    }))
}

fn plan(smoe: &Path, options: &ImportOptions) -> Result<Planned> {
    let file = SmoeFile::open(smoe)?;
    let index = file.index();
    let refused = |what: String| QuantizeError::Refused(format!("{}: {what}", smoe.display()));
    if !index.rows_are_whole_groups() {
        return Err(refused(
            "its rows are not multiples of 64, so its groups of 64 run across rows: that cannot be kept as it is, and \
             an import requantises nothing; quantise the original checkpoint"
                .into(),
        ));
    }
    let codec = if index.header.bits == 2 { Codec::Q2 } else { Codec::Q4 };
    let trunk = trunk::open(&trunk::locate(smoe, options.trunk.as_deref())?)?;
    let (spec, bindings, config, mut notes) = model(&file, &trunk, options)?;
    let mut sections = vec![
        ("config.json".to_owned(), format!("{config:#}\n").into_bytes()),
        (TRUNK_HEADER.to_owned(), trunk.header.clone()),
    ];
    match &options.tokenizer {
        Some(folder) => notes.extend(sections::text(folder, &mut sections)?),
        None => notes.push("no --tokenizer: the vault runs with --ids only".into()),
    }
    let mut builder = Layout::builder();
    for (name, bytes) in &sections {
        builder.section(name, bytes.len() as u64);
    }
    for (tensor, dtype) in &trunk.tensors {
        let shape: Vec<u64> = tensor.shape.iter().map(|&n| n as u64).collect();
        builder.trunk(&tensor.name, vault_dtype(*dtype), &shape);
    }
    for part in &index.experts {
        let (layer, expert, hidden, width) = (part.layer, part.expert, index.header.d_model, part.tensors[0].rows);
        builder.expert(ExpertShape { layer, expert, codecs: [codec; 3], hidden, width, biases: false });
    }
    let layout = builder.build().map_err(|e| refused(e.to_string()))?;
    Ok(Planned { file, trunk, spec, bindings, codec, sections, layout, notes })
}

/// The model that block and trunk describe, bound as a checkpoint of its family would be.
fn model(
    file: &SmoeFile,
    trunk: &TrunkFile,
    options: &ImportOptions,
) -> Result<(ModelSpec, Bindings, Value, Vec<String>)> {
    let index = file.index();
    let mut tensors = Vec::new();
    for (t, dtype) in &trunk.tensors {
        let file = trunk.name.clone();
        tensors.push(Found { name: t.name.to_string(), dtype: *dtype, shape: t.shape.clone(), file });
    }
    let model_type = index.arch.as_ref().and_then(|arch| arch.model_type()).unwrap_or_default();
    let family = by_model_type(model_type)?;
    let tied = !tensors.iter().any(|t| t.name == family.head());
    let (config, notes) = config::of(index, tied, options.tokenizer.as_deref())?;
    let plan = spec_from_config(&config.to_string(), &OpenOptions::default())?;
    for part in &index.experts {
        let names = family.expert_tensors(part.layer as usize, part.expert as usize).ok_or_else(|| {
            QuantizeError::Refused(format!("family {model_type} stacks its experts, which S-MoE files do not say how"))
        })?;
        for (name, tensor) in names.into_iter().zip(&part.tensors) {
            let shape = vec![tensor.rows as usize, tensor.cols as usize];
            tensors.push(Found { name, dtype: Dtype::F32, shape, file: "the S-MoE file".into() });
        }
    }
    let (bindings, skipped) = bind_described(&plan, tensors)?;
    if let Some((rule, name)) = skipped.first() {
        return Err(QuantizeError::Refused(format!("{}: `{name}` would be skipped ({rule})", trunk.name)));
    }
    Ok((plan.spec, bindings, config, notes))
}

fn write(planned: &Planned, writer: &VaultWriter, control: &Control<'_>) -> Result<()> {
    let total = planned.layout.data_end();
    let mut done = 0;
    let mut advance = |phase, bytes: usize| {
        done += bytes as u64;
        (control.progress)(Progress { phase, done, total });
        control.check()
    };
    for (i, (_, bytes)) in planned.sections.iter().enumerate() {
        writer.write_section(i, bytes)?;
    }
    let mut buffer = vec![0; CHUNK];
    for (i, (tensor, _)) in planned.trunk.tensors.iter().enumerate() {
        let mut sink = writer.trunk_sink(i);
        let mut at = 0;
        while at < tensor.len {
            let piece = &mut buffer[..(tensor.len - at).min(CHUNK as u64) as usize];
            read_exact_at(&planned.trunk.file, tensor.offset + at, piece)
                .map_err(QuantizeError::io(Path::new(&planned.trunk.name), "read"))?;
            sink.write(piece)?;
            at += piece.len() as u64;
            advance("trunk", piece.len())?;
        }
        sink.finish(Value::Null)?;
    }
    for number in 0..planned.file.index().experts.len() {
        let expert = planned.file.read_expert(number)?;
        let (layer, index) = (expert.part().layer, expert.part().expert);
        let slot = planned.layout.expert_index(layer, index).expect("the layout was built from this table");
        let record = &planned.layout.experts()[slot];
        let layout = BlobLayout::new(record.codecs, record.hidden, record.width, record.biases)
            .map_err(|e| QuantizeError::Refused(e.to_string()))?;
        let mut blob = vec![0; layout.len_bytes()];
        for proj in 0..3 {
            blob[layout.codes(proj)].copy_from_slice(expert.codes(proj));
            blob[layout.scales(proj)].copy_from_slice(expert.scales(proj));
        }
        writer.write_expert(slot, &blob, Value::Null)?;
        advance("experts", blob.len())?;
    }
    Ok(())
}
