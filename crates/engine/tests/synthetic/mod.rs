//! Random models of any spec: a store and experts made from a seed.
#![allow(dead_code)] // Each test that shares this module uses a part of it.

use smoe_engine::experts::ExpertSource;
use smoe_engine::sampler::SplitMix64;
use smoe_engine::sources::CheckpointExperts;
use smoe_engine::{Engine, EngineOptions};
use smoe_model::role::{Binding, Bindings, Part, Proj, Role, Rows};
use smoe_model::spec::*;
use smoe_model::store::{Dtype, ExpertMatrix, ExpertReader, StoreError, Stored, TensorStore};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A model whose every tensor is random.
pub(crate) struct Synthetic {
    spec: ModelSpec,
    bindings: Bindings,
    tensors: BTreeMap<String, (Stored, Vec<u8>)>,
}

/// Values with enough of a spread that every mechanism shows.
fn random(seed: u64, len: usize, spread: f32) -> Vec<f32> {
    let mut rng = SplitMix64::new(seed);
    (0..len).map(|_| (rng.next_f64() as f32 - 0.5) * 2.0 * spread).collect()
}

impl Synthetic {
    pub(crate) fn new(spec: ModelSpec) -> Self {
        let mut model = Self { bindings: Bindings::default(), tensors: BTreeMap::new(), spec };
        let spec = model.spec.clone();
        model.add(Role::Embedding, spec.vocab, spec.hidden);
        model.norm(Role::FinalNorm, Role::FinalNormBias);
        if let Head::Untied { bias } = spec.head {
            model.add(Role::Head, spec.vocab, spec.hidden);
            if bias {
                model.add(Role::HeadBias, 1, spec.vocab);
            }
        }
        for (i, layer) in spec.layers.iter().enumerate() {
            model.norm(Role::Layer(i, Part::MixerNorm), Role::Layer(i, Part::MixerNormBias));
            model.norm(Role::Layer(i, Part::MlpNorm), Role::Layer(i, Part::MlpNormBias));
            for (part, rows, cols) in
                mixer_shapes(&layer.mixer, spec.hidden).into_iter().chain(mlp_shapes(&layer.mlp, spec.hidden))
            {
                model.add(Role::Layer(i, part), rows, cols);
            }
        }
        model
    }

    /// The same tensors under another spec.
    pub(crate) fn with_spec(self, spec: ModelSpec) -> Self {
        Self { spec, ..self }
    }

    /// Names, descriptions and bytes of the trunk.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&String, &Stored, &[u8])> {
        self.tensors.iter().map(|(name, (stored, bytes))| (name, stored, bytes.as_slice()))
    }

    fn norm(&mut self, role: Role, bias: Role) {
        self.add(role, 1, self.spec.hidden);
        if self.spec.norm.kind == NormKind::LayerNorm {
            self.add(bias, 1, self.spec.hidden);
        }
    }

    fn add(&mut self, role: Role, rows: usize, cols: usize) {
        let name = format!("{role:?}");
        let seed = name.bytes().fold(17, |h: u64, b| h.wrapping_mul(1_000_003) ^ u64::from(b));
        let spread = if rows == 1 { 1.0 } else { 3.0 / (cols as f32).sqrt() };
        let bytes = random(seed, rows * cols, spread).iter().flat_map(|w| w.to_le_bytes()).collect();
        let shape = if rows == 1 { vec![cols] } else { vec![rows, cols] };
        self.tensors.insert(name.clone(), (Stored { dtype: Dtype::F32, shape: shape.clone() }, bytes));
        self.bindings.trunk.insert(role, Binding { tensor: name, rows: Rows::All, shape });
    }

    pub(crate) fn engine(&self, threads: usize) -> Engine {
        let options = EngineOptions { threads, ..EngineOptions::default() };
        Engine::new(self, self.source(), &options).expect("a sound spec")
    }

    pub(crate) fn source(&self) -> Box<dyn ExpertSource> {
        Box::new(CheckpointExperts::new(&self.spec, Arc::new(RandomExperts(self.spec.clone()))))
    }
}

impl TensorStore for Synthetic {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn stored(&self, tensor: &str) -> Option<Stored> {
        self.tensors.get(tensor).map(|t| t.0.clone())
    }

    fn read_stored(&self, tensor: &str, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        out.copy_from_slice(&self.tensors[tensor].1[offset as usize..][..out.len()]);
        Ok(())
    }
}

/// Experts of random weights.
pub(crate) struct RandomExperts(pub(crate) ModelSpec);

impl ExpertReader for RandomExperts {
    fn read_expert_rows(&self, at: ExpertMatrix, first_row: usize, out: &mut [f32]) -> Result<(), StoreError> {
        assert_eq!(first_row, 0, "small experts come in one slice");
        let seed = (at.layer * 1000 + at.expert * 10 + at.proj as usize) as u64;
        let cols = if at.proj == Proj::Down { out.len() / self.0.hidden } else { self.0.hidden };
        out.copy_from_slice(&random(seed, out.len(), 3.0 / (cols as f32).sqrt()));
        Ok(())
    }

    fn read_expert_bias(&self, at: ExpertMatrix) -> Result<Option<Vec<f32>>, StoreError> {
        let Mlp::Moe(moe) = &self.0.layers[at.layer].mlp else { return Ok(None) };
        let rows = if at.proj == Proj::Down { self.0.hidden } else { moe.width };
        Ok(moe.expert_bias.then(|| random(99 + at.proj as u64, rows, 0.5)))
    }
}

fn mixer_shapes(mixer: &Mixer, hidden: usize) -> Vec<(Part, usize, usize)> {
    match mixer {
        Mixer::Gqa(g) => {
            let (q, kv) = (g.heads * g.head_dim, g.kv_heads * g.head_dim);
            let (qn, kn) = if g.qk_norm == QkNorm::FullWidth { (q, kv) } else { (g.head_dim, g.head_dim) };
            let q_rows = if g.output_gate { 2 * q } else { q };
            vec![
                (Part::Q, q_rows, hidden),
                (Part::K, kv, hidden),
                (Part::V, kv, hidden),
                (Part::O, hidden, q),
                (Part::QBias, 1, q_rows),
                (Part::KBias, 1, kv),
                (Part::VBias, 1, kv),
                (Part::OBias, 1, hidden),
                (Part::QNorm, 1, qn),
                (Part::KNorm, 1, kn),
                (Part::Sinks, 1, g.heads),
            ]
        }
        Mixer::Mla(m) => {
            let q = m.heads * (m.nope_dim + m.rope_dim);
            let rank = m.q_rank.unwrap_or(1);
            vec![
                (Part::Q, q, hidden),
                (Part::QA, rank, hidden),
                (Part::QANorm, 1, rank),
                (Part::QB, q, rank),
                (Part::KvA, m.kv_rank + m.rope_dim, hidden),
                (Part::KvANorm, 1, m.kv_rank),
                (Part::KvB, m.heads * (m.nope_dim + m.v_dim), m.kv_rank),
                (Part::O, hidden, m.heads * m.v_dim),
            ]
        }
        Mixer::DeltaNet(d) => {
            let v = d.value_heads * d.value_dim;
            let channels = 2 * d.key_heads * d.key_dim + v;
            vec![
                (Part::DeltaQkv, channels, hidden),
                (Part::DeltaZ, v, hidden),
                (Part::DeltaB, d.value_heads, hidden),
                (Part::DeltaA, d.value_heads, hidden),
                (Part::DeltaConv, channels, d.conv_kernel),
                (Part::DeltaALog, 1, d.value_heads),
                (Part::DeltaDtBias, 1, d.value_heads),
                (Part::DeltaNorm, 1, d.value_dim),
                (Part::DeltaOut, hidden, v),
            ]
        }
        Mixer::ShortConv { kernel, .. } => vec![
            (Part::ConvIn, 3 * hidden, hidden),
            (Part::ConvInBias, 1, 3 * hidden),
            (Part::ConvTaps, hidden, *kernel),
            (Part::ConvTapsBias, 1, hidden),
            (Part::ConvOut, hidden, hidden),
            (Part::ConvOutBias, 1, hidden),
        ],
    }
}

fn mlp_shapes(mlp: &Mlp, hidden: usize) -> Vec<(Part, usize, usize)> {
    match mlp {
        Mlp::Dense { width, .. } => {
            vec![(Part::DenseGate, *width, hidden), (Part::DenseUp, *width, hidden), (Part::DenseDown, hidden, *width)]
        }
        Mlp::Moe(moe) => {
            let width = moe.shared.map_or(1, |s| s.width);
            vec![
                (Part::Router, moe.experts, hidden),
                (Part::RouterBias, 1, moe.experts),
                (Part::RouterSelectionBias, 1, moe.experts),
                (Part::SharedGateProj, width, hidden),
                (Part::SharedUpProj, width, hidden),
                (Part::SharedDownProj, hidden, width),
                (Part::SharedGate, 1, hidden),
            ]
        }
    }
}

/// A rotary embedding over `dim` channels.
pub(crate) fn rope(dim: usize, pairing: RopePairing) -> Rope {
    let inv_freq = (0..dim / 2).map(|i| 0.5_f32.powi(i as i32)).collect();
    Rope { dim, pairing, inv_freq, amplitude: 1.1, origin: "test".into(), limit: None }
}

/// Grouped-query attention with the usual parts.
pub(crate) fn gqa() -> Gqa {
    Gqa {
        heads: 4,
        kv_heads: 2,
        head_dim: 12,
        scale: 0.3,
        rope: Some(rope(8, RopePairing::Halves)),
        qk_norm: QkNorm::HeadBeforeRope,
        qk_norm_eps: 1e-6,
        qkv_bias: false,
        o_bias: false,
        window: None,
        sinks: false,
        output_gate: false,
        clip_qkv: None,
    }
}

/// Experts with the usual parts.
pub(crate) fn moe() -> MoeSpec {
    let router = RouterSpec {
        score: RouterScore::Softmax,
        logit_bias: false,
        selection_bias: false,
        groups: None,
        normalise: Some(Normalise { eps: 0.0, floor: 0.0 }),
        scale: 1.0,
    };
    MoeSpec { experts: 6, top_k: 3, width: 20, act: Activation::SwiGlu, router, shared: None, expert_bias: false }
}

/// A model of these layers.
pub(crate) fn model(layers: Vec<(Mixer, Mlp)>) -> ModelSpec {
    ModelSpec {
        family: "synthetic".into(),
        vocab: 61,
        hidden: 40,
        layers: layers.into_iter().map(|(mixer, mlp)| LayerSpec { mixer, mlp }).collect(),
        norm: NormSpec { kind: NormKind::Rms, eps: 1e-6 },
        head: Head::Tied,
        multipliers: Multipliers { embedding: 1.0, residual: 1.0, logits_divisor: 1.0 },
        context: 300,
        tokens: ControlTokens { bos: None, eos: vec![7], eos_source: "test".into() },
    }
}
