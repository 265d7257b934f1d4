//! Counters on what an engine takes from a model: whether every tensor was read is asked of them, not of the code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use smoe_engine::experts::Expert;
use smoe_engine::{EngineError, ExpertSource};
use smoe_model::role::Bindings;
use smoe_model::spec::ModelSpec;
use smoe_model::store::{StoreError, Stored, TensorStore};

/// A store that counts the bytes read of each tensor.
pub(crate) struct CountedStore<'a> {
    inner: &'a dyn TensorStore,
    read: Mutex<BTreeMap<String, u64>>,
}

impl<'a> CountedStore<'a> {
    pub(crate) fn new(inner: &'a dyn TensorStore) -> Self {
        Self { inner, read: Mutex::default() }
    }

    /// Bytes read so far, by tensor.
    pub(crate) fn read(self) -> BTreeMap<String, u64> {
        self.read.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TensorStore for CountedStore<'_> {
    fn spec(&self) -> &ModelSpec {
        self.inner.spec()
    }

    fn bindings(&self) -> &Bindings {
        self.inner.bindings()
    }

    fn stored(&self, tensor: &str) -> Option<Stored> {
        self.inner.stored(tensor)
    }

    fn read_stored(&self, tensor: &str, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.inner.read_stored(tensor, offset, out)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        *read.entry(tensor.to_owned()).or_default() += out.len() as u64;
        Ok(())
    }
}

/// How often each expert was fetched, by layer and expert.
#[derive(Debug)]
pub(crate) struct Fetches(Vec<Vec<AtomicU64>>);

impl Fetches {
    pub(crate) fn new(spec: &ModelSpec) -> Self {
        let mut layers: Vec<Vec<AtomicU64>> = spec.layers.iter().map(|_| Vec::new()).collect();
        for (layer, moe) in spec.moe_layers() {
            layers[layer].resize_with(moe.experts, AtomicU64::default);
        }
        Self(layers)
    }

    /// Fetches of an expert; 0 for one that does not exist.
    pub(crate) fn of(&self, layer: usize, expert: usize) -> u64 {
        self.0.get(layer).and_then(|experts| experts.get(expert)).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// A source that several engines share, counted.
pub(crate) struct CountedExperts {
    pub(crate) inner: Arc<dyn ExpertSource>,
    pub(crate) fetches: Arc<Fetches>,
}

impl ExpertSource for CountedExperts {
    fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError> {
        let experts = self.inner.fetch(layer, ids)?;
        for id in ids {
            if let Some(count) = self.fetches.0.get(layer).and_then(|layer| layer.get(*id as usize)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(experts)
    }

    fn at_once(&self) -> usize {
        self.inner.at_once()
    }

    fn expect(&self, layer: usize, ids: &[u32]) {
        self.inner.expect(layer, ids);
    }

    fn resident_bytes(&self) -> u64 {
        self.inner.resident_bytes()
    }
}
