//! A checkpoint folder: planned from its headers, then read by rows.

pub mod files;
pub mod header;

use crate::bind::{Found, bind};
use crate::config::{self, Config};
use crate::error::CheckpointError;
use crate::families;
use crate::formats;
use crate::positional::read_exact_at;
use crate::resolve;
use crate::role::{Bindings, ExpertView, Proj};
use crate::spec::{Mlp, ModelSpec};
use crate::store::{ExpertMatrix, ExpertReader, StoreError, Stored, TensorStore};
use files::{Files, Shard};
use header::RawTensor;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The largest text file that is read whole.
const MAX_TEXT: u64 = 256 << 20;

/// How to open a checkpoint.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Config keys that may be there although nothing is known of them.
    pub ignore_config: Vec<String>,
}

/// What was found beside the tensors in use.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Report {
    /// Tensors in use.
    pub used: usize,
    /// Rule and name of each tensor that was skipped.
    pub skipped: Vec<(String, String)>,
    /// `.safetensors` files that are no part of the checkpoint.
    pub ignored_files: Vec<String>,
    /// Defaults taken and the like, one line each.
    pub notes: Vec<String>,
}

/// A checkpoint whose every tensor is understood.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    files: Files,
    spec: ModelSpec,
    bindings: Bindings,
    report: Report,
    config: String,
    generation: Option<String>,
}

impl Checkpoint {
    /// Plans the checkpoint from its config and headers.
    ///
    /// # Errors
    /// Whatever makes it incomplete, contradictory or unknown, naming file and tensor or key.
    pub fn open(folder: &Path, options: &OpenOptions) -> Result<Self, CheckpointError> {
        if !folder.is_dir() {
            return Err(CheckpointError::file(
                folder.display().to_string(),
                "expected a checkpoint folder, found no folder",
            ));
        }
        let text = files::read_text(folder, config::FILE, MAX_TEXT)?;
        let config = Config::parse(&text)?;
        let family = families::by_model_type(&config.model_type()?)?;
        let mut spec = (family.resolve)(&config)?;
        config.finish(family.idle, &options.ignore_config)?;
        let generation = optional_text(folder, "generation_config.json")?;
        stop_ids(&mut spec, generation.as_deref())?;
        let files = files::open(folder)?;
        let tensors: BTreeMap<String, Found> = files
            .tensors
            .iter()
            .map(|(name, (shard, t))| {
                (name.clone(), Found { shape: t.shape.clone(), file: files.shards[*shard].name.clone() })
            })
            .collect();
        let bound = bind(family, &spec, &tensors)?;
        let report = Report {
            used: tensors.len() - bound.skipped.len(),
            skipped: bound.skipped.into_iter().map(|(rule, name)| (rule.to_owned(), name)).collect(),
            ignored_files: files.ignored.clone(),
            notes: Vec::new(),
        };
        let checkpoint =
            Self { folder: folder.to_owned(), files, spec, bindings: bound.bindings, report, config: text, generation };
        checkpoint.check_dtypes()?;
        Ok(checkpoint)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was used, skipped and ignored.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The checkpoint's files in name order.
    pub fn files(&self) -> &[Shard] {
        &self.files.shards
    }

    /// `config.json` as released.
    pub fn config_json(&self) -> &str {
        &self.config
    }

    /// `generation_config.json`, where there is one.
    pub fn generation_config(&self) -> Option<&str> {
        self.generation.as_deref()
    }

    /// Names of the stored trunk tensors, each once.
    pub fn trunk_tensors(&self) -> BTreeSet<&str> {
        self.bindings.trunk.values().map(|b| b.tensor.as_str()).collect()
    }

    /// The file that holds a tensor.
    pub fn file_of(&self, tensor: &str) -> Option<&str> {
        self.files.tensors.get(tensor).map(|(shard, _)| self.files.shards[*shard].name.as_str())
    }

    fn check_dtypes(&self) -> Result<(), CheckpointError> {
        let skipped: BTreeSet<&str> = self.report.skipped.iter().map(|s| s.1.as_str()).collect();
        for (name, (shard, t)) in &self.files.tensors {
            if !skipped.contains(name.as_str()) && formats::plain(&t.dtype).is_none() {
                return Err(formats::unsupported(&self.files.shards[*shard].name, name, &t.dtype));
            }
        }
        Ok(())
    }

    fn raw(&self, name: &str) -> Result<(&Shard, &RawTensor), StoreError> {
        let (shard, t) = self.files.tensors.get(name).ok_or_else(|| StoreError {
            file: "checkpoint".into(),
            item: name.into(),
            fault: "no such tensor".into(),
        })?;
        Ok((&self.files.shards[*shard], t))
    }

    /// Fills `out` with elements from `first` on.
    fn read_elements(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), StoreError> {
        let (_, t) = self.raw(name)?;
        let dtype = formats::plain(&t.dtype).expect("`check_dtypes` refused every other");
        let size = dtype.bytes(1, 1);
        let mut bytes = vec![0; out.len() * size];
        self.read_stored(name, (first * size) as u64, &mut bytes)?;
        formats::decode_plain(dtype, &bytes, out);
        Ok(())
    }

    /// `[rows, cols]` and the place of an expert matrix.
    fn expert(&self, at: ExpertMatrix) -> Result<(usize, &ExpertView), StoreError> {
        let fault =
            || StoreError { file: "checkpoint".into(), item: format!("{at:?}"), fault: "no such expert".into() };
        let Mlp::Moe(moe) = &self.spec.layers.get(at.layer).ok_or_else(fault)?.mlp else { return Err(fault()) };
        let experts = self.bindings.experts.get(&at.layer).ok_or_else(fault)?;
        if at.expert >= moe.experts {
            return Err(fault());
        }
        Ok(match at.proj {
            Proj::Gate => (self.spec.hidden, &experts.weights[0]),
            Proj::Up => (self.spec.hidden, &experts.weights[1]),
            Proj::Down => (moe.width, &experts.weights[2]),
        })
    }
}

fn optional_text(folder: &Path, name: &str) -> Result<Option<String>, CheckpointError> {
    folder.join(name).exists().then(|| files::read_text(folder, name, MAX_TEXT)).transpose()
}

/// `generation_config.json` has the last word on stop ids.
fn stop_ids(spec: &mut ModelSpec, generation: Option<&str>) -> Result<(), CheckpointError> {
    const FILE: &str = "generation_config.json";
    let Some(text) = generation else { return Ok(()) };
    let json: Value =
        serde_json::from_str(text).map_err(|e| CheckpointError::file(FILE, format!("is not valid JSON: {e}")))?;
    if let Some(eos) = json.get("eos_token_id").filter(|v| !v.is_null()) {
        spec.tokens.eos = resolve::ids("eos_token_id", eos)?;
        spec.tokens.eos_source = format!("{FILE} eos_token_id");
    }
    Ok(())
}

impl TensorStore for Checkpoint {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn stored(&self, tensor: &str) -> Option<Stored> {
        let (_, t) = self.files.tensors.get(tensor)?;
        Some(Stored { dtype: formats::plain(&t.dtype)?, shape: t.shape.clone() })
    }

    fn read_stored(&self, tensor: &str, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (shard, t) = self.raw(tensor)?;
        let fault = |fault: String| StoreError { file: shard.name.clone(), item: tensor.into(), fault };
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > t.len) {
            return Err(fault(format!("bytes {offset}..+{} lie outside its {} B", out.len(), t.len)));
        }
        read_exact_at(&shard.file, t.offset + offset, out)
            .map_err(|e| fault(format!("cannot be read at offset {}: {e}", t.offset + offset)))
    }
}

impl ExpertReader for Checkpoint {
    fn read_expert_rows(&self, at: ExpertMatrix, first_row: usize, out: &mut [f32]) -> Result<(), StoreError> {
        let (cols, view) = self.expert(at)?;
        let name = view.tensor_of(at.expert);
        let start = view.offset + at.expert * view.expert_stride + first_row * view.row_stride;
        if view.col_stride == 1 && view.row_stride == cols {
            return self.read_elements(&name, start, out);
        }
        if view.col_stride == 1 {
            for (r, row) in out.chunks_mut(cols).enumerate() {
                self.read_elements(&name, start + r * view.row_stride, row)?;
            }
            return Ok(());
        }
        // Stored [in, out]: one run of neighbouring rows for each column.
        let rows = out.len() / cols;
        let mut run = vec![0.0; rows.saturating_sub(1) * view.row_stride + 1];
        for c in 0..cols {
            self.read_elements(&name, start + c * view.col_stride, &mut run)?;
            for r in 0..rows {
                out[r * cols + c] = run[r * view.row_stride];
            }
        }
        Ok(())
    }

    fn read_expert_bias(&self, at: ExpertMatrix) -> Result<Option<Vec<f32>>, StoreError> {
        self.expert(at)?;
        let Some(biases) = &self.bindings.experts[&at.layer].biases else { return Ok(None) };
        let Mlp::Moe(moe) = &self.spec.layers[at.layer].mlp else { return Ok(None) };
        let (view, rows) = match at.proj {
            Proj::Gate => (&biases[0], moe.width),
            Proj::Up => (&biases[1], moe.width),
            Proj::Down => (&biases[2], self.spec.hidden),
        };
        let mut run = vec![0.0; (rows - 1) * view.row_stride + 1];
        self.read_elements(&view.tensor_of(at.expert), view.offset + at.expert * view.expert_stride, &mut run)?;
        Ok(Some(run.into_iter().step_by(view.row_stride).collect()))
    }
}
