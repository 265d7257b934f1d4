//! Which trunk tensors a [`ModelSpec`] needs, and their shapes.

use crate::role::{Part, Role};
use crate::spec::{DeltaNet, Gqa, Head, LayerSpec, Mixer, Mla, Mlp, ModelSpec, MoeSpec, NormKind, QkNorm};

/// The shape of a role's tensor; `None` where the model does not have the role. Matrices are `[out, in]`.
#[must_use]
pub fn role_shape(spec: &ModelSpec, role: Role) -> Option<Vec<usize>> {
    let (vocab, hidden) = (spec.vocab, spec.hidden);
    let untied = matches!(spec.head, Head::Untied { .. });
    match role {
        Role::Embedding => Some(vec![vocab, hidden]),
        Role::FinalNorm => Some(vec![hidden]),
        Role::FinalNormBias => (spec.norm.kind == NormKind::LayerNorm).then(|| vec![hidden]),
        Role::Head => untied.then(|| vec![vocab, hidden]),
        Role::HeadBias => (spec.head == Head::Untied { bias: true }).then(|| vec![vocab]),
        Role::Layer(i, part) => spec.layers.get(i).and_then(|layer| part_shape(spec, layer, part)),
    }
}

/// Every trunk role of the spec with its shape, in forward order.
#[must_use]
pub fn trunk_needs(spec: &ModelSpec) -> Vec<(Role, Vec<usize>)> {
    let globals = [Role::Embedding, Role::FinalNorm, Role::FinalNormBias, Role::Head, Role::HeadBias];
    let layers = (0..spec.layers.len()).flat_map(|i| Part::ALL.map(|part| Role::Layer(i, part)));
    globals.into_iter().chain(layers).filter_map(|role| role_shape(spec, role).map(|shape| (role, shape))).collect()
}

/// The shape of a layer's part; `None` where the layer does not have it.
pub(crate) fn part_shape(spec: &ModelSpec, layer: &LayerSpec, part: Part) -> Option<Vec<usize>> {
    let hidden = spec.hidden;
    match part {
        Part::MixerNorm | Part::MlpNorm => Some(vec![hidden]),
        Part::MixerNormBias | Part::MlpNormBias => (spec.norm.kind == NormKind::LayerNorm).then(|| vec![hidden]),
        _ => {
            let of_mixer = match &layer.mixer {
                Mixer::Gqa(gqa) => gqa_shape(gqa, hidden, part),
                Mixer::Mla(mla) => mla_shape(mla, hidden, part),
                Mixer::DeltaNet(net) => delta_shape(net, hidden, part),
                Mixer::ShortConv { kernel, bias } => conv_shape(*kernel, *bias, hidden, part),
            };
            of_mixer.or_else(|| match &layer.mlp {
                Mlp::Dense { width, .. } => dense_shape(*width, hidden, part),
                Mlp::Moe(moe) => moe_shape(moe, hidden, part),
            })
        }
    }
}

fn gqa_shape(gqa: &Gqa, hidden: usize, part: Part) -> Option<Vec<usize>> {
    let (q, kv) = (gqa.heads * gqa.head_dim, gqa.kv_heads * gqa.head_dim);
    let q_rows = if gqa.output_gate { 2 * q } else { q };
    let norm = |full: usize| match gqa.qk_norm {
        QkNorm::Absent => None,
        QkNorm::HeadBeforeRope | QkNorm::HeadAfterRope => Some(vec![gqa.head_dim]),
        QkNorm::FullWidth => Some(vec![full]),
    };
    match part {
        Part::Q => Some(vec![q_rows, hidden]),
        Part::K | Part::V => Some(vec![kv, hidden]),
        Part::O => Some(vec![hidden, q]),
        Part::QBias => gqa.qkv_bias.then(|| vec![q_rows]),
        Part::KBias | Part::VBias => gqa.qkv_bias.then(|| vec![kv]),
        Part::OBias => gqa.o_bias.then(|| vec![hidden]),
        Part::QNorm => norm(q),
        Part::KNorm => norm(kv),
        Part::Sinks => gqa.sinks.then(|| vec![gqa.heads]),
        _ => None,
    }
}

fn mla_shape(mla: &Mla, hidden: usize, part: Part) -> Option<Vec<usize>> {
    let q = mla.heads * (mla.nope_dim + mla.rope_dim);
    let kv_a = mla.kv_rank + mla.rope_dim;
    match part {
        Part::Q => mla.q_rank.is_none().then(|| vec![q, hidden]),
        Part::QA => mla.q_rank.map(|rank| vec![rank, hidden]),
        Part::QABias => mla.q_rank.filter(|_| mla.bias).map(|rank| vec![rank]),
        Part::QANorm => mla.q_rank.map(|rank| vec![rank]),
        Part::QB => mla.q_rank.map(|rank| vec![q, rank]),
        Part::KvA => Some(vec![kv_a, hidden]),
        Part::KvABias => mla.bias.then(|| vec![kv_a]),
        Part::KvANorm => Some(vec![mla.kv_rank]),
        Part::KvB => Some(vec![mla.heads * (mla.nope_dim + mla.v_dim), mla.kv_rank]),
        Part::O => Some(vec![hidden, mla.heads * mla.v_dim]),
        Part::OBias => mla.bias.then(|| vec![hidden]),
        _ => None,
    }
}

fn delta_shape(net: &DeltaNet, hidden: usize, part: Part) -> Option<Vec<usize>> {
    let values = net.value_heads * net.value_dim;
    let channels = 2 * net.key_heads * net.key_dim + values;
    match part {
        Part::DeltaQkv => Some(vec![channels, hidden]),
        Part::DeltaZ => Some(vec![values, hidden]),
        Part::DeltaB | Part::DeltaA => Some(vec![net.value_heads, hidden]),
        Part::DeltaConv => Some(vec![channels, net.conv_kernel]),
        Part::DeltaALog | Part::DeltaDtBias => Some(vec![net.value_heads]),
        Part::DeltaNorm => Some(vec![net.value_dim]),
        Part::DeltaOut => Some(vec![hidden, values]),
        _ => None,
    }
}

fn conv_shape(kernel: usize, bias: bool, hidden: usize, part: Part) -> Option<Vec<usize>> {
    match part {
        Part::ConvIn => Some(vec![3 * hidden, hidden]),
        Part::ConvInBias => bias.then(|| vec![3 * hidden]),
        Part::ConvTaps => Some(vec![hidden, kernel]),
        Part::ConvTapsBias => bias.then(|| vec![hidden]),
        Part::ConvOut => Some(vec![hidden, hidden]),
        Part::ConvOutBias => bias.then(|| vec![hidden]),
        _ => None,
    }
}

fn dense_shape(width: usize, hidden: usize, part: Part) -> Option<Vec<usize>> {
    match part {
        Part::DenseGate | Part::DenseUp => Some(vec![width, hidden]),
        Part::DenseDown => Some(vec![hidden, width]),
        _ => None,
    }
}

fn moe_shape(moe: &MoeSpec, hidden: usize, part: Part) -> Option<Vec<usize>> {
    let shared = moe.shared.as_ref();
    match part {
        Part::Router => Some(vec![moe.experts, hidden]),
        Part::RouterBias => moe.router.logit_bias.then(|| vec![moe.experts]),
        Part::RouterSelectionBias => moe.router.selection_bias.then(|| vec![moe.experts]),
        Part::SharedGateProj | Part::SharedUpProj => shared.map(|s| vec![s.width, hidden]),
        Part::SharedDownProj => shared.map(|s| vec![hidden, s.width]),
        Part::SharedGate => shared.filter(|s| s.gated).map(|_| vec![1, hidden]),
        _ => None,
    }
}
