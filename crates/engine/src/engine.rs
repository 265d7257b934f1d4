//! [`Engine`]: a model ready to compute, and the sessions that use it.

use crate::backend::{Backend, Span};
use crate::check::{check, rope_limit};
use crate::cpu::{Activations, Cpu};
use crate::error::EngineError;
use crate::experts::ExpertSource;
use crate::forward::{Memory, Model, Pass, Want};
use crate::memory::MemoryEstimate;
use crate::observer::Observer;
use crate::observer::Silent;
use crate::session::{Batch, Session};
use crate::weights::Trunk;
use smoe_model::spec::{LayerSpec, ModelSpec};
use smoe_model::store::TensorStore;

/// How to open a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Threads; 0 takes as many as the machine has.
    pub threads: usize,
    /// Positions of a session; `None` takes the model's.
    pub context: Option<usize>,
    /// Tokens that one pass of a prefill takes. Results do not depend on it; memory and speed do.
    pub chunk: usize,
    /// How activations enter products with coded matrices, on the CPU.
    pub activations: Activations,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { threads: 0, context: None, chunk: 512, activations: Activations::F32 }
    }
}

/// A model on a backend.
pub struct Engine {
    spec: ModelSpec,
    trunk: Trunk,
    source: Box<dyn ExpertSource>,
    backend: Box<dyn Backend>,
    options: EngineOptions,
    context: usize,
    random_routing: Option<u64>,
}

impl Engine {
    /// An engine on the CPU over a store's trunk and a source's experts.
    ///
    /// # Errors
    /// When the spec cannot be computed, a tensor is missing or misshapen, or the context is beyond the model's.
    pub fn new(
        store: &dyn TensorStore,
        source: Box<dyn ExpertSource>,
        options: &EngineOptions,
    ) -> Result<Self, EngineError> {
        check(store.spec())?;
        let backend = Cpu::new(options.threads, store.spec().hidden)?.with_activations(options.activations);
        Self::on(Box::new(backend), store, source, options)
    }

    /// An engine on a given backend.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn on(
        backend: Box<dyn Backend>,
        store: &dyn TensorStore,
        source: Box<dyn ExpertSource>,
        options: &EngineOptions,
    ) -> Result<Self, EngineError> {
        let spec = store.spec().clone();
        check(&spec)?;
        let limit = rope_limit(&spec);
        let context = options.context.unwrap_or(spec.context.min(limit.unwrap_or(usize::MAX)));
        if context == 0 {
            return Err(EngineError::Spec("a context of 0".into()));
        }
        if let Some(limit) = limit.filter(|limit| context > *limit) {
            return Err(EngineError::ContextLimit { wanted: context, limit });
        }
        let trunk = Trunk::load(store, &*backend)?;
        Ok(Self { spec, trunk, source, backend, options: *options, context, random_routing: None })
    }

    /// The model.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Positions of a session.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The device, for people.
    pub fn backend(&self) -> String {
        self.backend.describe()
    }

    /// Takes activations so from now on; `false` where the backend knows no such choice.
    pub fn set_activations(&mut self, activations: Activations) -> bool {
        self.backend.set_activations(activations)
    }

    /// The routed experts.
    pub fn experts(&self) -> &dyn ExpertSource {
        &*self.source
    }

    /// Routes every token at random by this seed from now on, whatever the routers say: to measure a drive and a cache
    /// without a model that could be predicted.
    pub fn route_randomly(&mut self, seed: u64) {
        self.random_routing = Some(seed);
    }

    /// A session that remembers nothing yet.
    pub fn session(&self) -> Session {
        let states = self.spec.layers.iter().map(|layer| self.backend.state(&layer.mixer)).collect();
        Session::new(states, self.context, self.options.chunk)
    }

    /// Several texts that remember nothing yet, to be decoded in step.
    pub fn batch(&self, texts: usize) -> Batch {
        let of = |layer: &LayerSpec| (0..texts).map(|_| self.backend.state(&layer.mixer)).collect();
        Batch { states: self.spec.layers.iter().map(of).collect(), texts, len: 0, torn: false }
    }

    /// Takes one more token of each text in and returns the logits after them, `[texts, vocab]`: bit for bit those of
    /// [`Engine::forward`] on each text by itself, and the weights are read once for all of them.
    ///
    /// # Errors
    /// As [`Engine::forward`], or another number of ids than of texts.
    pub fn step(&self, batch: &mut Batch, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        if ids.is_empty() || ids.len() != batch.texts {
            return Err(EngineError::NoTokens);
        }
        if batch.torn {
            return Err(EngineError::SessionTorn);
        }
        if let Some((position, &id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= self.spec.vocab) {
            return Err(EngineError::TokenId { id, position, vocab: self.spec.vocab });
        }
        if batch.len == self.context {
            return Err(EngineError::ContextFull { wanted: batch.len + 1, context: self.context });
        }
        let model = Model { spec: &self.spec, source: &*self.source, random_routing: self.random_routing };
        let span = Span { start: batch.len, n: ids.len() };
        let (mut logits, mut result) = (Vec::new(), Ok(()));
        self.backend.run(&mut |rec| {
            let mut pass = Pass { model: &model, rec, observer: &mut Silent, span };
            let memories = batch.states.iter_mut().map(|states| Memory::Each(states));
            result = pass.run(&self.trunk, ids, memories, (Want::All, &mut logits));
        });
        batch.torn = result.is_err();
        result?;
        batch.len += 1;
        Ok(logits)
    }

    /// What this model needs in memory with `tokens` positions in use.
    pub fn memory_estimate(&self, tokens: usize) -> MemoryEstimate {
        MemoryEstimate::new(&self.spec, self.trunk.bytes, self.source.resident_bytes(), tokens, self.options.chunk)
    }

    /// Takes `ids` in after what the session holds and returns the wanted logits, `[n, vocab]`, `[vocab]` or nothing.
    ///
    /// # Errors
    /// An id outside the vocabulary, no room in the context (nothing is taken in then), or an expert that cannot be
    /// read (the session then answers no more: some layers have taken the tokens in and some have not).
    pub fn forward(
        &self,
        session: &mut Session,
        ids: &[u32],
        observer: &mut dyn Observer,
        want: Want,
    ) -> Result<Vec<f32>, EngineError> {
        if ids.is_empty() {
            return Err(EngineError::NoTokens);
        }
        if session.torn {
            return Err(EngineError::SessionTorn);
        }
        if let Some((position, &id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= self.spec.vocab) {
            return Err(EngineError::TokenId { id, position, vocab: self.spec.vocab });
        }
        if ids.len() > session.room() {
            return Err(EngineError::ContextFull { wanted: session.len() + ids.len(), context: session.context() });
        }
        let model = Model { spec: &self.spec, source: &*self.source, random_routing: self.random_routing };
        let (mut logits, chunks) = (Vec::new(), ids.len().div_ceil(session.chunk));
        for (i, chunk) in ids.chunks(session.chunk).enumerate() {
            let want = if want == Want::Last && i + 1 < chunks { Want::Nothing } else { want };
            let span = Span { start: session.len, n: chunk.len() };
            let states = &mut session.states;
            let mut result = Ok(());
            self.backend.run(&mut |rec| {
                let mut pass = Pass { model: &model, rec, observer: &mut *observer, span };
                let memories = states.iter_mut().map(Memory::One);
                result = pass.run(&self.trunk, chunk, memories, (want, &mut logits));
            });
            session.torn = result.is_err();
            result?;
            session.len += chunk.len();
        }
        Ok(logits)
    }
}
