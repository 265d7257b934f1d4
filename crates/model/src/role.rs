//! Roles of tensors, and [`Bindings`]: which stored tensor plays which role, and how it is looked at.
//!
//! Trunk tensors are stored as they came, under the names they came with; a binding says how to see a role in one.
//! The same code therefore binds a checkpoint and a vault, and an export needs no inverse of anything.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a trunk tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// `[vocab, hidden]`.
    Embedding,
    /// `[hidden]`.
    FinalNorm,
    /// `[hidden]`, LayerNorm only.
    FinalNormBias,
    /// `[vocab, hidden]`, untied heads only.
    Head,
    /// `[vocab]`.
    HeadBias,
    /// A part of layer `.0`.
    Layer(usize, Part),
}

/// A tensor of one layer. Matrices are `[out, in]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are the field's; the shapes follow from the spec (see `spec.rs`).
pub enum Part {
    MixerNorm,
    MixerNormBias,
    MlpNorm,
    MlpNormBias,
    // Gqa
    Q,
    QBias,
    K,
    KBias,
    V,
    VBias,
    O,
    OBias,
    QNorm,
    KNorm,
    Sinks,
    // Mla (direct queries use `Q`, the output uses `O` / `OBias`)
    QA,
    QABias,
    QANorm,
    QB,
    KvA,
    KvABias,
    KvANorm,
    KvB,
    // DeltaNet: `[2 * key_heads * key_dim + value_heads * value_dim, hidden]`, order q | k | v
    DeltaQkv,
    DeltaZ,
    DeltaB,
    DeltaA,
    /// `[channels, kernel]` (stored `[channels, 1, kernel]`).
    DeltaConv,
    DeltaALog,
    DeltaDtBias,
    DeltaNorm,
    DeltaOut,
    // ShortConv: in is `[3 * hidden, hidden]`, order B | C | x
    ConvIn,
    ConvInBias,
    ConvTaps,
    ConvTapsBias,
    ConvOut,
    ConvOutBias,
    // Mlp, dense
    DenseGate,
    DenseUp,
    DenseDown,
    // Mlp, experts
    Router,
    RouterBias,
    RouterSelectionBias,
    SharedGateProj,
    SharedUpProj,
    SharedDownProj,
    /// `[1, hidden]`.
    SharedGate,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 48] = [
        Self::MixerNorm,
        Self::MixerNormBias,
        Self::MlpNorm,
        Self::MlpNormBias,
        Self::Q,
        Self::QBias,
        Self::K,
        Self::KBias,
        Self::V,
        Self::VBias,
        Self::O,
        Self::OBias,
        Self::QNorm,
        Self::KNorm,
        Self::Sinks,
        Self::QA,
        Self::QABias,
        Self::QANorm,
        Self::QB,
        Self::KvA,
        Self::KvABias,
        Self::KvANorm,
        Self::KvB,
        Self::DeltaQkv,
        Self::DeltaZ,
        Self::DeltaB,
        Self::DeltaA,
        Self::DeltaConv,
        Self::DeltaALog,
        Self::DeltaDtBias,
        Self::DeltaNorm,
        Self::DeltaOut,
        Self::ConvIn,
        Self::ConvInBias,
        Self::ConvTaps,
        Self::ConvTapsBias,
        Self::ConvOut,
        Self::ConvOutBias,
        Self::DenseGate,
        Self::DenseUp,
        Self::DenseDown,
        Self::Router,
        Self::RouterBias,
        Self::RouterSelectionBias,
        Self::SharedGateProj,
        Self::SharedUpProj,
        Self::SharedDownProj,
        Self::SharedGate,
    ];
}

/// How a role is seen in the tensor that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// All of it, as stored.
    All,
    /// These runs of rows `(first, count)`, one after another: packed projections (one `in_proj_qkvz`).
    Runs(Vec<(usize, usize)>),
}

/// One role's tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The stored tensor's name.
    pub tensor: String,
    /// The rows of it that play the role.
    pub rows: Rows,
    /// The role's shape after `rows`; one-element axes of the file are dropped.
    pub shape: Vec<usize>,
}

/// One of an expert's three matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proj {
    /// `[width, hidden]`.
    Gate,
    /// `[width, hidden]`.
    Up,
    /// `[hidden, width]`.
    Down,
}

/// Where an expert matrix lies in a checkpoint: element `(r, c)` of expert `e`'s logical `[out, in]` matrix is element
/// `offset + e * expert_stride + r * row_stride + c * col_stride` of the (dequantised) tensor.
///
/// One tensor an expert, the published stackings, fused gate-up and interleaving are all this; the family fills it in,
/// a shape only confirms it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertView {
    /// Stored tensor; `{e}` stands for the expert's index where each has a tensor of its own. For block formats the
    /// name without its suffix (`_blocks`, `_packed`).
    pub tensor: String,
    /// Elements before the first expert's first element.
    pub offset: usize,
    /// Elements from an expert to the next; 0 with one tensor an expert.
    pub expert_stride: usize,
    /// Elements from a row to the next.
    pub row_stride: usize,
    /// Elements from a column to the next.
    pub col_stride: usize,
}

impl ExpertView {
    /// The name of the tensor that holds expert `e`.
    pub fn tensor_of(&self, e: usize) -> String {
        self.tensor.replace("{e}", &e.to_string())
    }
}

/// Expert tensors of one layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpertBindings {
    /// Gate, up, down.
    pub weights: [ExpertView; 3],
    /// Their biases (`col_stride` 0), where the spec has them.
    pub biases: Option<[ExpertView; 3]>,
}

/// Every tensor that the forward pass needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bindings {
    /// Trunk roles.
    #[serde(with = "as_pairs")]
    pub trunk: BTreeMap<Role, Binding>,
    /// MoE layers by layer index.
    pub experts: BTreeMap<usize, ExpertBindings>,
}

/// JSON keys are strings, roles are not: the map is written as a list of pairs.
mod as_pairs {
    use super::{Binding, Role};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<S: Serializer>(map: &BTreeMap<Role, Binding>, s: S) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<Role, Binding>, D::Error> {
        Ok(Vec::<(Role, Binding)>::deserialize(d)?.into_iter().collect())
    }
}
