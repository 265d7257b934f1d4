//! The trunk on a backend: every role that the spec asks for, loaded, checked against the spec's shapes, handed over.

use crate::backend::{Backend, Buffer, Matrix};
use crate::error::EngineError;
use smoe_codec::half;
use smoe_model::role::{Part, Role, Rows};
use smoe_model::spec::{DeltaNet, Gqa, Head, LayerSpec, Mixer, Mla, Mlp, MoeSpec, NormKind, QkNorm};
use smoe_model::store::{Dtype, Tensor, TensorStore, load_role};

/// A norm's formula; unit offsets are already in the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormFormula {
    /// `x / sqrt(mean(x^2) + eps) * w`.
    Rms,
    /// `(x - mean) / sqrt(var + eps) * w + b`.
    LayerNorm,
}

/// A norm over rows of `cols` values.
pub struct Norm {
    /// The formula.
    pub formula: NormFormula,
    /// Added before the root.
    pub eps: f32,
    /// Width.
    pub cols: usize,
    /// `w`.
    pub weight: Buffer,
    /// `b`, LayerNorm only.
    pub bias: Option<Buffer>,
}

/// A projection.
pub struct Linear {
    /// `[out, in]`.
    pub weight: Matrix,
    /// `[out]`.
    pub bias: Option<Buffer>,
}

/// Grouped-query attention.
pub struct GqaWeights {
    /// Query projection (with the output gate's rows, where there is one).
    pub q: Linear,
    /// Key projection.
    pub k: Linear,
    /// Value projection.
    pub v: Linear,
    /// Output projection.
    pub o: Linear,
    /// Norm of queries.
    pub q_norm: Option<Norm>,
    /// Norm of keys.
    pub k_norm: Option<Norm>,
    /// One logit a head.
    pub sinks: Option<Buffer>,
}

/// The query side of latent attention.
pub enum MlaQuery {
    /// One projection.
    Direct(Linear),
    /// Down to a latent, norm, up.
    Latent {
        /// `[q_rank, hidden]`.
        a: Linear,
        /// Over `q_rank`.
        norm: Norm,
        /// `[heads * (nope_dim + rope_dim), q_rank]`.
        b: Linear,
    },
}

/// Multi-head latent attention.
pub struct MlaWeights {
    /// Queries.
    pub query: MlaQuery,
    /// `[kv_rank + rope_dim, hidden]`.
    pub kv_a: Linear,
    /// Over `kv_rank`.
    pub kv_norm: Norm,
    /// `[heads * (nope_dim + v_dim), kv_rank]`: per head the key rows, then the value rows.
    pub kv_b: Matrix,
    /// Output projection.
    pub o: Linear,
}

/// Gated delta net.
pub struct DeltaWeights {
    /// q | k | v.
    pub qkv: Linear,
    /// Gate of the output norm.
    pub z: Linear,
    /// Write strength.
    pub b: Linear,
    /// Decay.
    pub a: Linear,
    /// `[channels, kernel]`.
    pub conv: Buffer,
    /// `[value_heads]`.
    pub a_log: Buffer,
    /// `[value_heads]`.
    pub dt_bias: Buffer,
    /// Over `value_dim`.
    pub norm: Norm,
    /// Output projection.
    pub out: Linear,
}

/// Gated short convolution.
pub struct ConvWeights {
    /// B | C | x.
    pub input: Linear,
    /// `[hidden, kernel]`.
    pub taps: Buffer,
    /// `[hidden]`.
    pub bias: Option<Buffer>,
    /// Output projection.
    pub output: Linear,
}

/// A layer's mixer.
pub enum MixerWeights {
    /// Grouped-query attention.
    Gqa(GqaWeights),
    /// Latent attention.
    Mla(MlaWeights),
    /// Gated delta net.
    Delta(DeltaWeights),
    /// Short convolution.
    Conv(ConvWeights),
}

/// A gated mlp: the dense one or the shared expert.
pub struct GatedMlp {
    /// `[width, hidden]`.
    pub gate: Linear,
    /// `[width, hidden]`.
    pub up: Linear,
    /// `[hidden, width]`.
    pub down: Linear,
}

/// A router's biases and its projection.
pub struct RouterWeights {
    /// `[experts, hidden]` with the logit bias.
    pub logits: Linear,
    /// Added to the scores for the choice only.
    pub selection_bias: Option<Buffer>,
}

/// A layer's mlp.
pub enum MlpWeights {
    /// Dense.
    Dense(GatedMlp),
    /// Experts, their router and the shared expert with its gate.
    Moe {
        /// The router.
        router: RouterWeights,
        /// The shared expert.
        shared: Option<GatedMlp>,
        /// `[1, hidden]`.
        shared_gate: Option<Linear>,
    },
}

/// One decoder layer.
pub struct LayerWeights {
    /// Before the mixer.
    pub mixer_norm: Norm,
    /// The mixer.
    pub mixer: MixerWeights,
    /// Before the mlp.
    pub mlp_norm: Norm,
    /// The mlp.
    pub mlp: MlpWeights,
}

/// The trunk.
pub struct Trunk {
    /// `[vocab, hidden]`.
    pub embedding: Matrix,
    /// The decoder layers.
    pub layers: Vec<LayerWeights>,
    /// Before the head.
    pub final_norm: Norm,
    /// The head's own matrix; `None` where it is the embedding.
    pub head: Option<Linear>,
    /// Bytes of all of it.
    pub bytes: u64,
}

impl Trunk {
    /// Loads every role that the store's spec asks for.
    ///
    /// # Errors
    /// When a role is missing, a shape contradicts the spec, or a tensor cannot be read.
    pub fn load(store: &dyn TensorStore, backend: &dyn Backend) -> Result<Self, EngineError> {
        let spec = store.spec();
        let mut l = Loader { store, backend, bytes: 0 };
        let embedding = l.matrix(Role::Embedding, spec.vocab, spec.hidden)?;
        let mut layers = Vec::with_capacity(spec.layers.len());
        for (i, layer) in spec.layers.iter().enumerate() {
            layers.push(l.layer(i, layer)?);
        }
        let final_norm = l.stream_norm(Role::FinalNorm, Role::FinalNormBias)?;
        let head = match spec.head {
            Head::Tied => None,
            Head::Untied { bias } => {
                Some(l.linear(Role::Head, bias.then_some(Role::HeadBias), spec.vocab, spec.hidden)?)
            }
        };
        Ok(Self { embedding, layers, final_norm, head, bytes: l.bytes })
    }
}

impl LayerWeights {
    /// Loads one layer alone.
    ///
    /// # Errors
    /// As [`Trunk::load`].
    ///
    /// # Panics
    /// If the spec has no such layer.
    pub(crate) fn load(store: &dyn TensorStore, backend: &dyn Backend, i: usize) -> Result<Self, EngineError> {
        Loader { store, backend, bytes: 0 }.layer(i, &store.spec().layers[i])
    }
}

/// Loads the embedding alone.
pub(crate) fn load_embedding(store: &dyn TensorStore, backend: &dyn Backend) -> Result<Matrix, EngineError> {
    let (vocab, hidden) = (store.spec().vocab, store.spec().hidden);
    Loader { store, backend, bytes: 0 }.matrix(Role::Embedding, vocab, hidden)
}

/// Loads roles by shape.
struct Loader<'a> {
    store: &'a dyn TensorStore,
    backend: &'a dyn Backend,
    bytes: u64,
}

impl Loader<'_> {
    /// A role's tensor, of this shape.
    fn tensor(&mut self, role: Role, rows: usize, cols: usize) -> Result<Tensor, EngineError> {
        self.check_rows(role, rows)?;
        let tensor =
            load_role(self.store, role)?.ok_or_else(|| EngineError::MissingRole { role: format!("{role:?}") })?;
        let (expected, found) = ([rows, cols], [tensor.rows, tensor.cols]);
        if expected != found {
            return Err(EngineError::Shape { role: format!("{role:?}"), expected, found });
        }
        self.bytes += tensor.bytes.len() as u64;
        Ok(tensor)
    }

    /// Refuses a binding that takes a row twice, before memory is taken for it.
    fn check_rows(&self, role: Role, rows: usize) -> Result<(), EngineError> {
        let Some(binding) = self.store.bindings().trunk.get(&role) else { return Ok(()) };
        let (Some(stored), Rows::Runs(runs)) = (self.store.stored(&binding.tensor), &binding.rows) else {
            return Ok(());
        };
        let (all, cols) = stored.rows_cols();
        let found = runs.iter().fold(0usize, |sum, run| sum.saturating_add(run.1));
        if found > all {
            return Err(EngineError::Shape { role: format!("{role:?}"), expected: [rows, cols], found: [found, cols] });
        }
        Ok(())
    }

    fn matrix(&mut self, role: Role, rows: usize, cols: usize) -> Result<Matrix, EngineError> {
        let tensor = self.tensor(role, rows, cols)?;
        self.backend.upload(tensor)
    }

    /// Small tensors that take part in f32 arithmetic element by element.
    fn values(&mut self, role: Role, rows: usize, cols: usize) -> Result<Vec<f32>, EngineError> {
        let tensor = self.tensor(role, rows, cols)?;
        widen(&tensor)
            .ok_or_else(|| EngineError::Spec(format!("{role:?} is stored as q8; it must be bf16, f16 or f32")))
    }

    fn buffer(&mut self, role: Role, rows: usize, cols: usize) -> Result<Buffer, EngineError> {
        let values = self.values(role, rows, cols)?;
        self.backend.upload_values(values)
    }

    fn linear(&mut self, role: Role, bias: Option<Role>, rows: usize, cols: usize) -> Result<Linear, EngineError> {
        let weight = self.matrix(role, rows, cols)?;
        let bias = bias.map(|role| self.buffer(role, 1, rows)).transpose()?;
        Ok(Linear { weight, bias })
    }

    /// An RMS norm; `unit_offset` puts the one into the weights.
    fn rms(&mut self, role: Role, cols: usize, eps: f32, unit_offset: bool) -> Result<Norm, EngineError> {
        let mut weight = self.values(role, 1, cols)?;
        if unit_offset {
            weight.iter_mut().for_each(|w| *w += 1.0);
        }
        let weight = self.backend.upload_values(weight)?;
        Ok(Norm { formula: NormFormula::Rms, eps, cols, weight, bias: None })
    }

    /// A norm of the residual stream.
    fn stream_norm(&mut self, role: Role, bias: Role) -> Result<Norm, EngineError> {
        let (norm, hidden) = (self.store.spec().norm, self.store.spec().hidden);
        match norm.kind {
            NormKind::Rms => self.rms(role, hidden, norm.eps, false),
            NormKind::RmsUnitOffset => self.rms(role, hidden, norm.eps, true),
            NormKind::LayerNorm => Ok(Norm {
                formula: NormFormula::LayerNorm,
                eps: norm.eps,
                cols: hidden,
                weight: self.buffer(role, 1, hidden)?,
                bias: Some(self.buffer(bias, 1, hidden)?),
            }),
        }
    }

    fn layer(&mut self, i: usize, layer: &LayerSpec) -> Result<LayerWeights, EngineError> {
        let hidden = self.store.spec().hidden;
        let role = |part| Role::Layer(i, part);
        let mixer_norm = self.stream_norm(role(Part::MixerNorm), role(Part::MixerNormBias))?;
        let mixer = match &layer.mixer {
            Mixer::Gqa(gqa) => MixerWeights::Gqa(self.gqa(i, gqa)?),
            Mixer::Mla(mla) => MixerWeights::Mla(self.mla(i, mla)?),
            Mixer::DeltaNet(delta) => MixerWeights::Delta(self.delta(i, delta)?),
            &Mixer::ShortConv { kernel, bias } => MixerWeights::Conv(ConvWeights {
                input: self.linear(role(Part::ConvIn), bias.then_some(role(Part::ConvInBias)), 3 * hidden, hidden)?,
                taps: self.buffer(role(Part::ConvTaps), hidden, kernel)?,
                bias: bias.then(|| self.buffer(role(Part::ConvTapsBias), 1, hidden)).transpose()?,
                output: self.linear(role(Part::ConvOut), bias.then_some(role(Part::ConvOutBias)), hidden, hidden)?,
            }),
        };
        let mlp_norm = self.stream_norm(role(Part::MlpNorm), role(Part::MlpNormBias))?;
        let mlp = match &layer.mlp {
            Mlp::Dense { width, .. } => {
                MlpWeights::Dense(self.mlp(i, *width, [Part::DenseGate, Part::DenseUp, Part::DenseDown])?)
            }
            Mlp::Moe(moe) => self.moe(i, moe)?,
        };
        Ok(LayerWeights { mixer_norm, mixer, mlp_norm, mlp })
    }

    fn gqa(&mut self, i: usize, gqa: &Gqa) -> Result<GqaWeights, EngineError> {
        let (hidden, unit_offset) = (self.store.spec().hidden, self.store.spec().norm.kind == NormKind::RmsUnitOffset);
        let role = |part| Role::Layer(i, part);
        let bias = |has: bool, part| has.then_some(Role::Layer(i, part));
        let (q_width, kv_width) = (gqa.heads * gqa.head_dim, gqa.kv_heads * gqa.head_dim);
        let q_rows = if gqa.output_gate { 2 * q_width } else { q_width };
        let norm_widths = match gqa.qk_norm {
            QkNorm::Absent => None,
            QkNorm::HeadBeforeRope | QkNorm::HeadAfterRope => Some((gqa.head_dim, gqa.head_dim)),
            QkNorm::FullWidth => Some((q_width, kv_width)),
        };
        let (q_norm, k_norm) = match norm_widths {
            None => (None, None),
            Some((q, k)) => (
                Some(self.rms(role(Part::QNorm), q, gqa.qk_norm_eps, unit_offset)?),
                Some(self.rms(role(Part::KNorm), k, gqa.qk_norm_eps, unit_offset)?),
            ),
        };
        Ok(GqaWeights {
            q: self.linear(role(Part::Q), bias(gqa.qkv_bias, Part::QBias), q_rows, hidden)?,
            k: self.linear(role(Part::K), bias(gqa.qkv_bias, Part::KBias), kv_width, hidden)?,
            v: self.linear(role(Part::V), bias(gqa.qkv_bias, Part::VBias), kv_width, hidden)?,
            o: self.linear(role(Part::O), bias(gqa.o_bias, Part::OBias), hidden, q_width)?,
            q_norm,
            k_norm,
            sinks: gqa.sinks.then(|| self.buffer(role(Part::Sinks), 1, gqa.heads)).transpose()?,
        })
    }

    fn mla(&mut self, i: usize, mla: &Mla) -> Result<MlaWeights, EngineError> {
        let hidden = self.store.spec().hidden;
        let role = |part| Role::Layer(i, part);
        let bias = |part| mla.bias.then_some(Role::Layer(i, part));
        let q_width = mla.heads * (mla.nope_dim + mla.rope_dim);
        let query = match mla.q_rank {
            None => MlaQuery::Direct(self.linear(role(Part::Q), None, q_width, hidden)?),
            Some(rank) => MlaQuery::Latent {
                a: self.linear(role(Part::QA), bias(Part::QABias), rank, hidden)?,
                norm: self.rms(role(Part::QANorm), rank, mla.latent_norm_eps, false)?,
                b: self.linear(role(Part::QB), None, q_width, rank)?,
            },
        };
        Ok(MlaWeights {
            query,
            kv_a: self.linear(role(Part::KvA), bias(Part::KvABias), mla.kv_rank + mla.rope_dim, hidden)?,
            kv_norm: self.rms(role(Part::KvANorm), mla.kv_rank, mla.latent_norm_eps, false)?,
            kv_b: self.matrix(role(Part::KvB), mla.heads * (mla.nope_dim + mla.v_dim), mla.kv_rank)?,
            o: self.linear(role(Part::O), bias(Part::OBias), hidden, mla.heads * mla.v_dim)?,
        })
    }

    fn delta(&mut self, i: usize, delta: &DeltaNet) -> Result<DeltaWeights, EngineError> {
        let hidden = self.store.spec().hidden;
        let role = |part| Role::Layer(i, part);
        let value_width = delta.value_heads * delta.value_dim;
        let channels = 2 * delta.key_heads * delta.key_dim + value_width;
        Ok(DeltaWeights {
            qkv: self.linear(role(Part::DeltaQkv), None, channels, hidden)?,
            z: self.linear(role(Part::DeltaZ), None, value_width, hidden)?,
            b: self.linear(role(Part::DeltaB), None, delta.value_heads, hidden)?,
            a: self.linear(role(Part::DeltaA), None, delta.value_heads, hidden)?,
            conv: self.buffer(role(Part::DeltaConv), channels, delta.conv_kernel)?,
            a_log: self.buffer(role(Part::DeltaALog), 1, delta.value_heads)?,
            dt_bias: self.buffer(role(Part::DeltaDtBias), 1, delta.value_heads)?,
            norm: self.rms(role(Part::DeltaNorm), delta.value_dim, delta.norm_eps, false)?,
            out: self.linear(role(Part::DeltaOut), None, hidden, value_width)?,
        })
    }

    fn mlp(&mut self, i: usize, width: usize, [gate, up, down]: [Part; 3]) -> Result<GatedMlp, EngineError> {
        let hidden = self.store.spec().hidden;
        Ok(GatedMlp {
            gate: self.linear(Role::Layer(i, gate), None, width, hidden)?,
            up: self.linear(Role::Layer(i, up), None, width, hidden)?,
            down: self.linear(Role::Layer(i, down), None, hidden, width)?,
        })
    }

    fn moe(&mut self, i: usize, moe: &MoeSpec) -> Result<MlpWeights, EngineError> {
        let hidden = self.store.spec().hidden;
        let role = |part| Role::Layer(i, part);
        let logit_bias = moe.router.logit_bias.then_some(role(Part::RouterBias));
        let router = RouterWeights {
            logits: self.linear(role(Part::Router), logit_bias, moe.experts, hidden)?,
            selection_bias: moe
                .router
                .selection_bias
                .then(|| self.buffer(role(Part::RouterSelectionBias), 1, moe.experts))
                .transpose()?,
        };
        let parts = [Part::SharedGateProj, Part::SharedUpProj, Part::SharedDownProj];
        let shared = moe.shared.map(|shared| self.mlp(i, shared.width, parts)).transpose()?;
        let gated = moe.shared.is_some_and(|shared| shared.gated);
        let shared_gate = gated.then(|| self.linear(role(Part::SharedGate), None, 1, hidden)).transpose()?;
        Ok(MlpWeights::Moe { router, shared, shared_gate })
    }
}

/// The values of a plainly stored tensor; `None` for codes.
pub(crate) fn widen(tensor: &Tensor) -> Option<Vec<f32>> {
    let pairs = || tensor.bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
    Some(match tensor.dtype {
        Dtype::Bf16 => pairs().map(half::bf16_to_f32).collect(),
        Dtype::F16 => pairs().map(half::f16_to_f32).collect(),
        Dtype::F32 => tensor.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::Q8 => return None,
    })
}
