//! A checkpoint folder: everything planned from headers, weights read when they are asked for.

pub mod bind;
pub mod described;
mod encoded;
mod expert_layout;
mod files;
pub mod header;
mod read;
mod shards;

pub use shards::Shard;

use crate::error::{CheckpointError, list};
use crate::families;
use crate::formats;
use crate::plan::{self, ConfigPlan, OpenOptions};
use crate::role::{Bindings, ExpertView, Proj, Role};
use crate::spec::{Mlp, ModelSpec, MoeSpec};
use crate::store::{Dtype, ExpertMatrix, ExpertReader, StoreError, Stored, TensorStore};
use encoded::Encoded;
use read::Weight;
use shards::{Located, Shards};
use smoe_codec::half;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
/// Released configs stay below 200 kB.
const MAX_CONFIG_BYTES: u64 = 2 << 20;
/// A tokenizer has at most this many bytes.
const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

/// A checkpoint whose every tensor is understood.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    shards: Shards,
    plan: ConfigPlan,
    bindings: Bindings,
    /// The trunk tensors that are handed out, by name.
    stored: BTreeMap<String, Stored>,
    decoded: Dtype,
    report: Report,
    config_json: String,
    generation_config: Option<String>,
}

/// What was made of the folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Tensors in use.
    pub used: usize,
    /// Weights in use by storage format ("BF16", "F8_E4M3 in blocks").
    pub formats: BTreeMap<String, usize>,
    /// Rule and name of each tensor that was skipped.
    pub skipped: Vec<(String, String)>,
    /// `.safetensors` files that are no part of the checkpoint.
    pub ignored_files: Vec<String>,
    /// Defaults taken and the like, one line each.
    pub notes: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder: config, headers, nothing of the weights (save a head that a tied config should not have).
    ///
    /// # Errors
    /// Whenever something is not understood: see [`CheckpointError`].
    pub fn open(folder: &Path, options: &OpenOptions) -> Result<Self, CheckpointError> {
        let json = |name: &str| files::read_small(folder, name, MAX_CONFIG_BYTES);
        let config = json(CONFIG)?.ok_or_else(|| {
            let text = "has no config.json; give a checkpoint folder as downloaded";
            CheckpointError::file(folder.display().to_string(), text)
        })?;
        let generation = json(GENERATION)?;
        let settings = Settings::parse(&config, generation.as_deref())?;
        let selection = files::select(folder)?;
        let taken = settings.take(selection, options, |selection| Shards::open(folder, selection))?;
        let Taken { shards, plan, bound, report } = taken;
        let mut this = Self {
            folder: folder.into(),
            report,
            shards,
            bindings: bound.bindings,
            stored: BTreeMap::new(),
            decoded: Dtype::F32,
            config_json: text(CONFIG, config)?,
            generation_config: generation.map(|bytes| text(GENERATION, bytes)).transpose()?,
            plan,
        };
        this.describe_trunk()?;
        if let Some(head) = bound.spare_head {
            this.compare_spare_head(&head)?;
        }
        if this.plan.spec.tokens.eos.is_empty() {
            this.report.notes.push("no stop ids: generation ends at the token limit only".into());
        }
        Ok(this)
    }

    fn describe_trunk(&mut self) -> Result<(), CheckpointError> {
        for binding in self.bindings.trunk.values() {
            let weight = encoded::find(&self.shards, self.plan.format, &binding.tensor)?;
            let stored = match weight {
                Some(Encoded::Plain { tensor, dtype }) => Stored { dtype, shape: tensor.entry.shape.clone() },
                Some(Encoded::Fp8 { tensor, .. }) => Stored { dtype: self.decoded, shape: tensor.entry.shape.clone() },
                _ => Stored { dtype: self.decoded, shape: binding.shape.clone() },
            };
            self.stored.insert(binding.tensor.clone(), stored);
        }
        Ok(())
    }

    /// A tied model's own head must be the embedding, byte for byte.
    fn compare_spare_head(&mut self, head: &str) -> Result<(), CheckpointError> {
        let embedding = self.bindings.trunk.get(&Role::Embedding).map_or("", |b| &b.tensor);
        let (Some(a), Some(b)) = (self.shards.get(head), self.shards.get(embedding)) else { return Ok(()) };
        let same = a.entry.dtype == b.entry.dtype && a.entry.shape == b.entry.shape && self.same_bytes(a, b)?;
        if !same {
            let text = format!(
                "config.json ties the head to `{embedding}`, and this head differs from it; set tie_word_embeddings to the truth"
            );
            return Err(CheckpointError::item(self.shards.file_of(a), head, text));
        }
        self.report.notes.push(format!("`{head}` equals `{embedding}` and is dropped: the head is tied"));
        Ok(())
    }

    fn same_bytes(&self, a: &Located, b: &Located) -> Result<bool, CheckpointError> {
        let len = a.entry.len;
        let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut at = 0;
        while at < len {
            let n = usize::try_from(len - at).unwrap_or(usize::MAX).min(x.len());
            for (tensor, out) in [(a, &mut x), (b, &mut y)] {
                let read = self.shards.read(tensor, at, &mut out[..n]);
                read.map_err(|e| CheckpointError::item(e.file, e.item, e.fault))?;
            }
            if x[..n] != y[..n] {
                return Ok(false);
            }
            at += n as u64;
        }
        Ok(true)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The model with what its config says beside it.
    #[must_use]
    pub fn plan(&self) -> &ConfigPlan {
        &self.plan
    }

    /// What was made of the folder.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The files that hold the weights, in order.
    #[must_use]
    pub fn files(&self) -> &[Shard] {
        self.shards.shards()
    }

    /// Trunk tensors in a block format come out rounded to bf16, as a vault stores them, in place of exact f32.
    #[must_use]
    pub fn with_bf16_trunk(mut self) -> Self {
        self.decoded = Dtype::Bf16;
        for (name, stored) in &mut self.stored {
            if self.shards.get(name).is_none_or(|tensor| formats::plain(&tensor.entry.dtype).is_none()) {
                stored.dtype = Dtype::Bf16;
            }
        }
        self
    }

    /// Names of the stored trunk tensors, each once.
    #[must_use]
    pub fn trunk_tensors(&self) -> BTreeSet<&str> {
        self.stored.keys().map(String::as_str).collect()
    }

    /// The file that holds a tensor.
    #[must_use]
    pub fn file_of(&self, tensor: &str) -> Option<&str> {
        let packed = || self.shards.get(&format!("{tensor}_packed"));
        self.shards.get(tensor).or_else(packed).map(|tensor| self.shards.file_of(tensor))
    }

    /// `config.json` as it came.
    #[must_use]
    pub fn config_json(&self) -> &str {
        &self.config_json
    }

    /// `generation_config.json` as it came.
    #[must_use]
    pub fn generation_config(&self) -> Option<&str> {
        self.generation_config.as_deref()
    }

    /// `tokenizer.json` as it came; `None` where the folder has none.
    ///
    /// # Errors
    /// A file that cannot be read or is no text.
    pub fn tokenizer_json(&self) -> Result<Option<String>, CheckpointError> {
        let name = "tokenizer.json";
        files::read_small(&self.folder, name, MAX_TOKENIZER_BYTES)?.map(|bytes| text(name, bytes)).transpose()
    }

    /// The name of the tensor that stands for an expert matrix, and the storage format of it, for reports.
    #[must_use]
    pub fn expert_source(&self, at: ExpertMatrix) -> Option<(String, String)> {
        let name = self.bindings.experts.get(&at.layer)?.weights[proj_index(at.proj)].tensor_of(at.expert);
        let weight = encoded::find(&self.shards, self.plan.format, &name).ok()??;
        Some((weight.main().entry.name.to_string(), weight.format().to_owned()))
    }

    fn moe(&self, layer: usize) -> Option<&MoeSpec> {
        match &self.plan.spec.layers.get(layer)?.mlp {
            Mlp::Moe(moe) => Some(moe),
            Mlp::Dense { .. } => None,
        }
    }

    fn weight(&self, name: &str, cols: usize) -> Result<Weight<'_>, StoreError> {
        let fault = |fault: String| StoreError { file: self.shards.all(), item: name.into(), fault };
        let encoded = encoded::find(&self.shards, self.plan.format, name).map_err(|e| fault(e.to_string()))?;
        let encoded = encoded.ok_or_else(|| fault("not in this checkpoint".into()))?;
        Ok(Weight { shards: &self.shards, encoded, cols })
    }

    /// The view of an expert matrix with its rows and columns.
    fn view(&self, at: ExpertMatrix, bias: bool) -> Result<Option<(&ExpertView, usize, usize)>, StoreError> {
        let fault = || StoreError {
            file: self.shards.all(),
            item: format!("expert {} of layer {}", at.expert, at.layer),
            fault: "the model has no such expert".into(),
        };
        let moe = self.moe(at.layer).filter(|moe| at.expert < moe.experts).ok_or_else(fault)?;
        let bound = self.bindings.experts.get(&at.layer).ok_or_else(fault)?;
        let (rows, cols) = match at.proj {
            Proj::Gate | Proj::Up => (moe.width, self.plan.spec.hidden),
            Proj::Down => (self.plan.spec.hidden, moe.width),
        };
        let views = if bias { bound.biases.as_ref() } else { Some(&bound.weights) };
        Ok(views.map(|views| (&views[proj_index(at.proj)], rows, cols)))
    }
}

/// What the small files say.
struct Settings {
    source: crate::config::Source,
    family: &'static families::Family,
    generation: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Settings {
    fn parse(config: &[u8], generation: Option<&[u8]>) -> Result<Self, CheckpointError> {
        let source = crate::config::parse_config(config)?;
        let family = families::by_model_type(source.model_type()?)?;
        let generation = generation.map(parse_generation).transpose()?;
        Ok(Self { source, family, generation })
    }

    /// Binds the chosen files, or all of the folder where no index says which and the chosen ones are not enough.
    fn take(
        &self,
        selection: files::Selection,
        options: &OpenOptions,
        open: impl Fn(&files::Selection) -> Result<Shards, CheckpointError>,
    ) -> Result<Taken, CheckpointError> {
        let bind = |selection: &files::Selection| {
            let shards = open(selection)?;
            let (plan, bound) = self.bind(&shards, options)?;
            Ok((shards, plan, bound))
        };
        let (shards, plan, bound, ignored, more) = match (bind(&selection), selection.with_rest()) {
            (Ok((shards, plan, bound)), _) => (shards, plan, bound, selection.ignored, Vec::new()),
            (Err(first), None) => return Err(first),
            (Err(first), Some(all)) => {
                let (shards, plan, bound) = bind(&all).map_err(|_: CheckpointError| first)?;
                (shards, plan, bound, Vec::new(), selection.ignored)
            }
        };
        let mut report = report(&shards, &plan, &bound, ignored);
        if !more.is_empty() {
            let text = "there is no index, and tensors of the model lie in";
            report.notes.push(format!("{text} {}, too: read as well", list(&more, 8)));
        }
        Ok(Taken { shards, plan, bound, report })
    }

    /// Plans the model and binds the tensors, which must be those of the family.
    fn bind(&self, shards: &Shards, options: &OpenOptions) -> Result<(ConfigPlan, bind::Bound), CheckpointError> {
        families::confirm(self.family, &|mark| shards.tensors().iter().any(|t| t.entry.name.contains(mark)))?;
        let plan = plan::plan(&self.source, self.family, self.generation.as_ref(), options)?;
        let bound = bind::bind(shards, self.family, &plan)?;
        Ok((plan, bound))
    }
}

/// A folder's files, bound.
struct Taken {
    shards: Shards,
    plan: ConfigPlan,
    bound: bind::Bound,
    report: Report,
}

fn report(shards: &Shards, plan: &ConfigPlan, bound: &bind::Bound, ignored_files: Vec<String>) -> Report {
    Report {
        used: shards.tensors().len() - bound.skipped.len(),
        formats: bound.formats.clone(),
        skipped: bound.skipped.clone(),
        ignored_files,
        notes: plan.notes.clone(),
    }
}

fn proj_index(proj: Proj) -> usize {
    match proj {
        Proj::Gate => 0,
        Proj::Up => 1,
        Proj::Down => 2,
    }
}

fn text(file: &str, bytes: Vec<u8>) -> Result<String, CheckpointError> {
    String::from_utf8(bytes).map_err(|_| CheckpointError::file(file, "not UTF-8; download it again"))
}

fn parse_generation(bytes: &[u8]) -> Result<serde_json::Map<String, serde_json::Value>, CheckpointError> {
    match crate::json::parse(bytes) {
        Ok(serde_json::Value::Object(map)) => Ok(map),
        Ok(_) => Err(CheckpointError::file(GENERATION, "expected a JSON object")),
        Err(e) => Err(CheckpointError::file(GENERATION, format!("not valid JSON: {e}; download it again"))),
    }
}

impl TensorStore for Checkpoint {
    fn spec(&self) -> &ModelSpec {
        &self.plan.spec
    }

    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn stored(&self, tensor: &str) -> Option<Stored> {
        self.stored.get(tensor).cloned()
    }

    fn read_stored(&self, tensor: &str, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let fault = |fault: String| StoreError { file: self.shards.all(), item: tensor.into(), fault };
        let stored = self.stored.get(tensor).ok_or_else(|| fault("not a trunk tensor of this checkpoint".into()))?;
        let (rows, cols) = stored.rows_cols();
        let weight = self.weight(tensor, cols)?;
        if let Encoded::Plain { tensor, .. } = weight.encoded {
            return self.shards.read(tensor, offset, out);
        }
        let size = stored.dtype.bytes(1, 1);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if start % size != 0 || !out.len().is_multiple_of(size) || (start + out.len()) / size > rows * cols {
            let text = format!("{} B from {offset} B on are no run of its {} elements", out.len(), rows * cols);
            return Err(fault(text));
        }
        weight.check_packed_shape(rows)?;
        let mut values = vec![0.0; (out.len() / size).min(1 << 18)];
        for (i, part) in out.chunks_mut((1 << 18) * size).enumerate() {
            let values = &mut values[..part.len() / size];
            weight.read(start / size + i * (1 << 18), values)?;
            match stored.dtype {
                Dtype::Bf16 => part
                    .as_chunks_mut::<2>()
                    .0
                    .iter_mut()
                    .zip(values)
                    .for_each(|(b, v)| *b = half::f32_to_bf16(*v).to_le_bytes()),
                _ => part.as_chunks_mut::<4>().0.iter_mut().zip(values).for_each(|(b, v)| *b = v.to_le_bytes()),
            }
        }
        Ok(())
    }
}

impl ExpertReader for Checkpoint {
    fn read_expert_rows(&self, at: ExpertMatrix, first_row: usize, out: &mut [f32]) -> Result<(), StoreError> {
        let Some((view, rows, cols)) = self.view(at, false)? else { return Ok(()) };
        let name = view.tensor_of(at.expert);
        if !out.len().is_multiple_of(cols) || first_row.saturating_add(out.len() / cols) > rows {
            let fault = format!("{} values from row {first_row} on are no rows of [{rows}, {cols}]", out.len());
            return Err(StoreError { file: self.shards.all(), item: name, fault });
        }
        if out.is_empty() {
            return Ok(());
        }
        // The last axis of the decoded tensor: of a view's two strides the one that is not 1 spans it.
        let cols_stored = if view.col_stride == 1 { cols } else { view.col_stride };
        let weight = self.weight(&name, cols_stored)?;
        if first_row == 0 {
            weight.check_packed_shape(rows)?;
        }
        weight.read_view(view, at.expert, (first_row, cols), out)
    }

    fn read_expert_bias(&self, at: ExpertMatrix) -> Result<Option<Vec<f32>>, StoreError> {
        let Some((view, rows, _)) = self.view(at, true)? else { return Ok(None) };
        let weight = self.weight(&view.tensor_of(at.expert), rows)?;
        let mut out = vec![0.0; rows];
        let flat = ExpertView { col_stride: view.row_stride, ..view.clone() };
        // One row whose columns are the bias.
        let flat = ExpertView { row_stride: flat.col_stride * rows, ..flat };
        weight.read_view(&flat, at.expert, (0, rows), &mut out)?;
        Ok(Some(out))
    }
}
