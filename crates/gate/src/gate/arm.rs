//! The models that are compared: the reference and the vaults, each with an engine and counters.

use std::path::Path;
use std::sync::Arc;

use smoe_engine::cpu::Cpu;
use smoe_engine::sources::{CheckpointExperts, VaultExperts};
use smoe_engine::{Engine, EngineOptions, ExpertSource, VaultStore};
use smoe_kernels::Isa;
use smoe_model::spec::ModelSpec;
use smoe_model::store::TensorStore;
use smoe_model::{Checkpoint, OpenOptions};
use smoe_vault::VaultFile;

use super::counted::{CountedExperts, CountedStore, Fetches};
use crate::error::GateError;

/// The unquantised model.
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) experts: Arc<dyn ExpertSource>,
    pub(crate) engine: Engine,
    options: EngineOptions,
}

impl Reference {
    pub(crate) fn open(path: &Path, ignore_config: &[String], options: &EngineOptions) -> Result<Self, GateError> {
        let name = short_name(path);
        let checkpoint = Checkpoint::open(path, &OpenOptions { ignore_config: ignore_config.to_vec() })?;
        let checkpoint = Arc::new(checkpoint);
        let experts: Arc<dyn ExpertSource> =
            Arc::new(CheckpointExperts::new(checkpoint.spec(), Arc::clone(&checkpoint) as _));
        let source = shared(&experts, checkpoint.spec()).0;
        let engine = Engine::new(&*checkpoint, source, options)?;
        Ok(Self { name, checkpoint, experts, engine, options: *options })
    }

    /// The same model, its experts shared, on another instruction set.
    pub(crate) fn on(&self, isa: Isa) -> Result<Engine, GateError> {
        let spec = self.checkpoint.spec();
        let backend = Cpu::with_isa(self.options.threads, spec.hidden, isa)?;
        let source = shared(&self.experts, spec).0;
        Ok(Engine::on(Box::new(backend), &*self.checkpoint, source, &self.options)?)
    }
}

/// A vault.
pub(crate) struct Arm {
    /// The file's name, without its folder.
    pub(crate) name: String,
    pub(crate) file: Arc<VaultFile>,
    /// Its experts, uncounted.
    pub(crate) experts: Arc<dyn ExpertSource>,
    pub(crate) fetches: Arc<Fetches>,
    pub(crate) engine: Engine,
    /// Trunk tensors that the engine did not read from end to end.
    pub(crate) unread: Vec<String>,
}

impl Arm {
    /// Opens a vault that must be one of the reference's model.
    pub(crate) fn open(path: &Path, reference: &ModelSpec, options: &EngineOptions) -> Result<Self, GateError> {
        let store = VaultStore::open(path)?;
        same_model(&path.display().to_string(), store.spec(), reference)?;
        let experts: Arc<dyn ExpertSource> = Arc::new(VaultExperts::load(store.file(), store.spec())?);
        let (source, fetches) = shared(&experts, store.spec());
        let counted = CountedStore::new(&store);
        let engine = Engine::new(&counted, source, options)?;
        let read = counted.read();
        let trunk = store.file().manifest().trunk.iter();
        let whole = |name: &str, length: u64| read.get(name).is_some_and(|bytes| *bytes >= length);
        let unread = trunk.filter(|tensor| !whole(&tensor.name, tensor.length)).map(|tensor| tensor.name.clone());
        let unread = unread.collect();
        store.file().check_unread()?;
        Ok(Self { name: short_name(path), file: Arc::clone(store.file()), experts, fetches, engine, unread })
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.index().header.file_length
    }
}

fn shared(experts: &Arc<dyn ExpertSource>, spec: &ModelSpec) -> (Box<dyn ExpertSource>, Arc<Fetches>) {
    let fetches = Arc::new(Fetches::new(spec));
    (Box::new(CountedExperts { inner: Arc::clone(experts), fetches: Arc::clone(&fetches) }), fetches)
}

/// The last part of a path: verdicts travel, folders of one machine do not.
pub(crate) fn short_name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| "unnamed".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Whether two models have the same shape where a comparison needs it.
fn same_model(name: &str, vault: &ModelSpec, reference: &ModelSpec) -> Result<(), GateError> {
    let moe = |spec: &ModelSpec| -> Vec<[usize; 4]> {
        spec.moe_layers().map(|(layer, moe)| [layer, moe.experts, moe.top_k, moe.width]).collect()
    };
    let shape = |spec: &ModelSpec| (spec.vocab, spec.hidden, spec.layers.len());
    if shape(vault) == shape(reference) && moe(vault) == moe(reference) {
        return Ok(());
    }
    let text = |spec: &ModelSpec| {
        let (vocab, hidden, layers) = shape(spec);
        let experts = moe(spec).first().map_or(0, |moe| moe[1]);
        format!("vocabulary {vocab}, width {hidden}, {layers} layers, {experts} experts")
    };
    let reason =
        format!("expected a vault of the reference's model ({}), found another ({})", text(reference), text(vault));
    Err(GateError::input(name, reason))
}
