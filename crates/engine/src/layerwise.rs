//! [`Layerwise`]: the same forward pass, one decoder layer at a time over many texts, for jobs that keep one layer of
//! weights in memory (calibration). The caller keeps the hidden states between layers.
//!
//! Each text starts from nothing and is independent of the others. Values are bit for bit those of
//! [`Engine::forward`](crate::Engine::forward).

use crate::backend::{Backend, Buffer, Span};
use crate::check::check;
use crate::cpu::Cpu;
use crate::error::EngineError;
use crate::experts::{Expert, ExpertSource};
use crate::forward::{Layer, Memory, Model, Pass};
use crate::observer::{Observer, Silent};
use crate::weights::{LayerWeights, load_embedding};
use smoe_model::spec::{LayerSpec, ModelSpec};
use smoe_model::store::TensorStore;

/// Tokens of a pass; results do not depend on it.
const CHUNK: usize = 512;

/// A model whose layers are loaded one by one.
pub struct Layerwise<'a> {
    store: &'a dyn TensorStore,
    backend: Box<dyn Backend>,
}

impl<'a> Layerwise<'a> {
    /// A model on the CPU (`threads` 0: as many as the machine has); loads nothing yet.
    ///
    /// # Errors
    /// When the spec cannot be computed.
    pub fn new(store: &'a dyn TensorStore, threads: usize) -> Result<Self, EngineError> {
        check(store.spec())?;
        let backend = Cpu::new(threads, store.spec().hidden)?;
        Ok(Self { store, backend: Box::new(backend) })
    }

    /// The model.
    #[must_use]
    pub fn spec(&self) -> &ModelSpec {
        self.store.spec()
    }

    /// What enters layer 0, `[ids.len(), hidden]`, handed on in pieces of whole tokens in their order.
    ///
    /// # Errors
    /// An id outside the vocabulary, a tensor that cannot be read, or `sink`'s own.
    pub fn embed<E: From<EngineError>>(
        &self,
        ids: &[u32],
        mut sink: impl FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let spec = self.spec();
        if let Some((position, &id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= spec.vocab) {
            return Err(EngineError::TokenId { id, position, vocab: spec.vocab }.into());
        }
        let table = load_embedding(self.store, &*self.backend)?;
        for ids in ids.chunks(CHUNK) {
            let mut values = vec![0.0; ids.len() * spec.hidden];
            let mut read = Ok(());
            self.backend.run(&mut |rec| {
                let mut x = rec.buffer(values.len());
                rec.embed(&table, ids, spec.multipliers.embedding, &mut x);
                read = rec.read(&x, &mut values);
            });
            read?;
            sink(&values)?;
        }
        Ok(())
    }

    /// Loads a layer's trunk.
    ///
    /// # Errors
    /// As [`Engine::new`](crate::Engine::new).
    ///
    /// # Panics
    /// If the model has no such layer.
    pub fn layer(&self, index: usize) -> Result<LoadedLayer<'_>, EngineError> {
        let weights = LayerWeights::load(self.store, &*self.backend, index)?;
        Ok(LoadedLayer { model: self.spec(), backend: &*self.backend, index, weights })
    }
}

/// One decoder layer, its experts elsewhere.
pub struct LoadedLayer<'a> {
    model: &'a ModelSpec,
    backend: &'a dyn Backend,
    index: usize,
    weights: LayerWeights,
}

impl LoadedLayer<'_> {
    /// Which it is.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> &LayerSpec {
        &self.model.layers[self.index]
    }

    /// The first half on one text: `x += mixer(norm(x))`, `x` `[tokens, hidden]`.
    ///
    /// # Errors
    /// The device's.
    pub fn mix(&self, x: &mut [f32]) -> Result<(), EngineError> {
        let mut state = self.backend.state(&self.spec().mixer);
        self.each_chunk(x, &mut Silent, &NoExperts, &mut state, |pass, layer, state, x| {
            pass.mix(layer, Memory::One(state), x)
        })
    }

    /// Reports what enters the experts and the router's choice, as [`LoadedLayer::feed`] would, on the `x` that
    /// [`LoadedLayer::mix`] left. A layer without experts reports nothing.
    ///
    /// # Errors
    /// The device's.
    pub fn look(&self, x: &mut [f32], observer: &mut dyn Observer) -> Result<(), EngineError> {
        self.each_chunk(x, observer, &NoExperts, &mut (), |pass, layer, (), x| pass.look(layer, x))
    }

    /// The second half: `x += mlp(norm(x))` with the routed experts of `source`.
    ///
    /// # Errors
    /// An expert that cannot be read, or the device's.
    pub fn feed(
        &self,
        x: &mut [f32],
        source: &dyn ExpertSource,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        self.each_chunk(x, observer, source, &mut (), |pass, layer, (), x| pass.feed(layer, x))
    }

    /// Runs `step` on the device over the tokens of `x` in their order.
    fn each_chunk<S: Send>(
        &self,
        x: &mut [f32],
        observer: &mut dyn Observer,
        source: &dyn ExpertSource,
        state: &mut S,
        step: impl Fn(&mut Pass<'_>, Layer<'_>, &mut S, &mut Buffer) -> Result<(), EngineError> + Send + Sync,
    ) -> Result<(), EngineError> {
        let (hidden, mut start) = (self.model.hidden, 0);
        let layer = Layer { index: self.index, spec: self.spec(), weights: &self.weights, next: None };
        let model = Model { spec: self.model, source, random_routing: None };
        for x in x.chunks_mut(CHUNK * hidden) {
            let span = Span { start, n: x.len() / hidden };
            start += span.n;
            let mut result = Ok(());
            self.backend.run(&mut |rec| {
                let mut buffer = rec.buffer(x.len());
                rec.write(x, &mut buffer);
                let mut pass = Pass { model: &model, rec, observer: &mut *observer, span };
                result = step(&mut pass, layer, state, &mut buffer);
                if result.is_ok() {
                    result = pass.rec.read(&buffer, x);
                }
            });
            result?;
        }
        Ok(())
    }
}

/// For steps that ask no expert.
struct NoExperts;

impl ExpertSource for NoExperts {
    fn fetch(&self, layer: usize, _: &[u32]) -> Result<Vec<Expert>, EngineError> {
        Err(EngineError::Spec(format!("layer {layer}: experts are not run here")))
    }

    fn resident_bytes(&self) -> u64 {
        0
    }
}
