//! What a [`ModelSpec`] consists of: every trunk role with its shape, and counts of weights.

use smoe_model::role::{Part, Role};
use smoe_model::spec::{DeltaNet, Gqa, Head, LayerSpec, Mixer, Mla, Mlp, ModelSpec, MoeSpec, NormKind, QkNorm};

/// A trunk role and its logical shape; a vector has one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleShape {
    /// The role.
    pub role: Role,
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
}

impl RoleShape {
    /// Number of weights.
    #[must_use]
    pub fn weights(&self) -> u64 {
        self.rows as u64 * self.cols as u64
    }
}

/// Every trunk role of `spec`, the embedding first, then layer by layer, then the final norm and the head.
#[must_use]
pub fn role_shapes(spec: &ModelSpec) -> Vec<RoleShape> {
    let mut list = List { spec, layer: 0, shapes: Vec::new() };
    list.global(Role::Embedding, spec.vocab, spec.hidden);
    for (i, layer) in spec.layers.iter().enumerate() {
        list.layer = i;
        list.layer(layer);
    }
    list.global(Role::FinalNorm, 1, spec.hidden);
    if spec.norm.kind == NormKind::LayerNorm {
        list.global(Role::FinalNormBias, 1, spec.hidden);
    }
    if let Head::Untied { bias } = spec.head {
        list.global(Role::Head, spec.vocab, spec.hidden);
        if bias {
            list.global(Role::HeadBias, 1, spec.vocab);
        }
    }
    list.shapes
}

/// The list being made, and the layer it is at.
struct List<'a> {
    spec: &'a ModelSpec,
    layer: usize,
    shapes: Vec<RoleShape>,
}

impl List<'_> {
    fn global(&mut self, role: Role, rows: usize, cols: usize) {
        self.shapes.push(RoleShape { role, rows, cols });
    }

    fn matrix(&mut self, part: Part, rows: usize, cols: usize) {
        self.global(Role::Layer(self.layer, part), rows, cols);
    }

    fn vector(&mut self, part: Part, len: usize) {
        self.matrix(part, 1, len);
    }

    fn vector_if(&mut self, has: bool, part: Part, len: usize) {
        if has {
            self.vector(part, len);
        }
    }

    fn layer(&mut self, layer: &LayerSpec) {
        let (hidden, biased) = (self.spec.hidden, self.spec.norm.kind == NormKind::LayerNorm);
        self.vector(Part::MixerNorm, hidden);
        self.vector_if(biased, Part::MixerNormBias, hidden);
        match &layer.mixer {
            Mixer::Gqa(gqa) => self.gqa(gqa),
            Mixer::Mla(mla) => self.mla(mla),
            Mixer::DeltaNet(delta) => self.delta(delta),
            &Mixer::ShortConv { kernel, bias } => {
                self.matrix(Part::ConvIn, 3 * hidden, hidden);
                self.vector_if(bias, Part::ConvInBias, 3 * hidden);
                self.matrix(Part::ConvTaps, hidden, kernel);
                self.vector_if(bias, Part::ConvTapsBias, hidden);
                self.matrix(Part::ConvOut, hidden, hidden);
                self.vector_if(bias, Part::ConvOutBias, hidden);
            }
        }
        self.vector(Part::MlpNorm, hidden);
        self.vector_if(biased, Part::MlpNormBias, hidden);
        match &layer.mlp {
            Mlp::Dense { width, .. } => self.mlp([Part::DenseGate, Part::DenseUp, Part::DenseDown], *width),
            Mlp::Moe(moe) => self.moe(moe),
        }
    }

    fn gqa(&mut self, gqa: &Gqa) {
        let hidden = self.spec.hidden;
        let (q_width, kv_width) = (gqa.heads * gqa.head_dim, gqa.kv_heads * gqa.head_dim);
        let q_rows = if gqa.output_gate { 2 * q_width } else { q_width };
        for (part, bias, rows) in
            [(Part::Q, Part::QBias, q_rows), (Part::K, Part::KBias, kv_width), (Part::V, Part::VBias, kv_width)]
        {
            self.matrix(part, rows, hidden);
            self.vector_if(gqa.qkv_bias, bias, rows);
        }
        self.matrix(Part::O, hidden, q_width);
        self.vector_if(gqa.o_bias, Part::OBias, hidden);
        match gqa.qk_norm {
            QkNorm::Absent => {}
            QkNorm::HeadBeforeRope | QkNorm::HeadAfterRope => {
                self.vector(Part::QNorm, gqa.head_dim);
                self.vector(Part::KNorm, gqa.head_dim);
            }
            QkNorm::FullWidth => {
                self.vector(Part::QNorm, q_width);
                self.vector(Part::KNorm, kv_width);
            }
        }
        self.vector_if(gqa.sinks, Part::Sinks, gqa.heads);
    }

    fn mla(&mut self, mla: &Mla) {
        let hidden = self.spec.hidden;
        let q_width = mla.heads * (mla.nope_dim + mla.rope_dim);
        match mla.q_rank {
            None => self.matrix(Part::Q, q_width, hidden),
            Some(rank) => {
                self.matrix(Part::QA, rank, hidden);
                self.vector_if(mla.bias, Part::QABias, rank);
                self.vector(Part::QANorm, rank);
                self.matrix(Part::QB, q_width, rank);
            }
        }
        self.matrix(Part::KvA, mla.kv_rank + mla.rope_dim, hidden);
        self.vector_if(mla.bias, Part::KvABias, mla.kv_rank + mla.rope_dim);
        self.vector(Part::KvANorm, mla.kv_rank);
        self.matrix(Part::KvB, mla.heads * (mla.nope_dim + mla.v_dim), mla.kv_rank);
        self.matrix(Part::O, hidden, mla.heads * mla.v_dim);
        self.vector_if(mla.bias, Part::OBias, hidden);
    }

    fn delta(&mut self, delta: &DeltaNet) {
        let hidden = self.spec.hidden;
        let value_width = delta.value_heads * delta.value_dim;
        let channels = 2 * delta.key_heads * delta.key_dim + value_width;
        self.matrix(Part::DeltaQkv, channels, hidden);
        self.matrix(Part::DeltaZ, value_width, hidden);
        self.matrix(Part::DeltaB, delta.value_heads, hidden);
        self.matrix(Part::DeltaA, delta.value_heads, hidden);
        self.matrix(Part::DeltaConv, channels, delta.conv_kernel);
        self.vector(Part::DeltaALog, delta.value_heads);
        self.vector(Part::DeltaDtBias, delta.value_heads);
        self.vector(Part::DeltaNorm, delta.value_dim);
        self.matrix(Part::DeltaOut, hidden, value_width);
    }

    fn mlp(&mut self, [gate, up, down]: [Part; 3], width: usize) {
        let hidden = self.spec.hidden;
        self.matrix(gate, width, hidden);
        self.matrix(up, width, hidden);
        self.matrix(down, hidden, width);
    }

    fn moe(&mut self, moe: &MoeSpec) {
        self.matrix(Part::Router, moe.experts, self.spec.hidden);
        self.vector_if(moe.router.logit_bias, Part::RouterBias, moe.experts);
        self.vector_if(moe.router.selection_bias, Part::RouterSelectionBias, moe.experts);
        if let Some(shared) = moe.shared {
            self.mlp([Part::SharedGateProj, Part::SharedUpProj, Part::SharedDownProj], shared.width);
            self.vector_if(shared.gated, Part::SharedGate, self.spec.hidden);
        }
    }
}

/// Weights of one expert, its biases included.
#[must_use]
pub fn expert_weights(hidden: usize, moe: &MoeSpec) -> u64 {
    let biases = if moe.expert_bias { 2 * moe.width + hidden } else { 0 };
    3 * hidden as u64 * moe.width as u64 + biases as u64
}

/// Counts of weights (elements; block scales of a quantised checkpoint are none).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// All but the routed experts.
    pub trunk: u64,
    /// All routed experts.
    pub experts: u64,
    /// The routed experts that one token visits.
    pub active_experts: u64,
    /// Matrices of routed experts: three an expert.
    pub expert_matrices: u64,
    /// Layers with routed experts.
    pub moe_layers: u64,
}

impl Census {
    /// Counts `spec`.
    #[must_use]
    pub fn new(spec: &ModelSpec) -> Self {
        let trunk = role_shapes(spec).iter().map(RoleShape::weights).sum();
        let mut census = Self { trunk, experts: 0, active_experts: 0, expert_matrices: 0, moe_layers: 0 };
        for (_, moe) in spec.moe_layers() {
            let one = expert_weights(spec.hidden, moe);
            census.experts += one * moe.experts as u64;
            census.active_experts += one * moe.top_k as u64;
            census.expert_matrices += 3 * moe.experts as u64;
            census.moe_layers += 1;
        }
        census
    }

    /// Every weight.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.trunk + self.experts
    }

    /// Weights that one token uses, both embedding tables counted.
    #[must_use]
    pub fn active_parameters(&self) -> u64 {
        self.trunk + self.active_experts
    }
}

/// Whether `--trunk q8` may encode a tensor that plays `role`: projections, embedding and head. Norms, routers, biases,
/// convolutions and what drives a recurrence (its decay and write strength) stay as they came.
#[must_use]
pub fn is_projection(role: Role) -> bool {
    match role {
        Role::Embedding | Role::Head => true,
        Role::FinalNorm | Role::FinalNormBias | Role::HeadBias => false,
        Role::Layer(_, part) => matches!(
            part,
            Part::Q
                | Part::K
                | Part::V
                | Part::O
                | Part::QA
                | Part::QB
                | Part::KvA
                | Part::KvB
                | Part::DeltaQkv
                | Part::DeltaZ
                | Part::DeltaOut
                | Part::ConvIn
                | Part::ConvOut
                | Part::DenseGate
                | Part::DenseUp
                | Part::DenseDown
                | Part::SharedGateProj
                | Part::SharedUpProj
                | Part::SharedDownProj
        ),
    }
}
