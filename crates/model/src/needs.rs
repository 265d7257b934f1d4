//! Which trunk tensors a [`ModelSpec`] needs, and their shapes.

use crate::role::{Part, Role};
use crate::spec::{Gqa, Head, LayerSpec, Mixer, Mla, Mlp, ModelSpec, MoeSpec, NormKind, QkNorm};

/// Every trunk role of the spec with its shape, in forward order.
pub fn trunk_needs(spec: &ModelSpec) -> Vec<(Role, Vec<usize>)> {
    let (vocab, hidden) = (spec.vocab, spec.hidden);
    let mut needs = vec![(Role::Embedding, vec![vocab, hidden]), (Role::FinalNorm, vec![hidden])];
    let layer_norm = spec.norm.kind == NormKind::LayerNorm;
    if layer_norm {
        needs.push((Role::FinalNormBias, vec![hidden]));
    }
    if let Head::Untied { bias } = spec.head {
        needs.push((Role::Head, vec![vocab, hidden]));
        if bias {
            needs.push((Role::HeadBias, vec![vocab]));
        }
    }
    for (i, layer) in spec.layers.iter().enumerate() {
        let mut parts = Vec::new();
        norms(layer_norm, hidden, &mut parts);
        mixer(layer, hidden, &mut parts);
        mlp(layer, hidden, &mut parts);
        needs.extend(parts.into_iter().map(|(part, shape)| (Role::Layer(i, part), shape)));
    }
    needs
}

type Parts = Vec<(Part, Vec<usize>)>;

fn norms(biased: bool, hidden: usize, to: &mut Parts) {
    to.extend([(Part::MixerNorm, vec![hidden]), (Part::MlpNorm, vec![hidden])]);
    if biased {
        to.extend([(Part::MixerNormBias, vec![hidden]), (Part::MlpNormBias, vec![hidden])]);
    }
}

fn mixer(layer: &LayerSpec, hidden: usize, to: &mut Parts) {
    match &layer.mixer {
        Mixer::Gqa(a) => gqa(a, hidden, to),
        Mixer::Mla(a) => mla(a, hidden, to),
        Mixer::DeltaNet(d) => {
            let (keys, values) = (d.key_heads * d.key_dim, d.value_heads * d.value_dim);
            to.extend([
                (Part::DeltaQkv, vec![2 * keys + values, hidden]),
                (Part::DeltaZ, vec![values, hidden]),
                (Part::DeltaB, vec![d.value_heads, hidden]),
                (Part::DeltaA, vec![d.value_heads, hidden]),
                (Part::DeltaConv, vec![2 * keys + values, d.conv_kernel]),
                (Part::DeltaALog, vec![d.value_heads]),
                (Part::DeltaDtBias, vec![d.value_heads]),
                (Part::DeltaNorm, vec![d.value_dim]),
                (Part::DeltaOut, vec![hidden, values]),
            ]);
        }
        Mixer::ShortConv { kernel, bias } => {
            to.extend([
                (Part::ConvIn, vec![3 * hidden, hidden]),
                (Part::ConvTaps, vec![hidden, *kernel]),
                (Part::ConvOut, vec![hidden, hidden]),
            ]);
            if *bias {
                to.extend([
                    (Part::ConvInBias, vec![3 * hidden]),
                    (Part::ConvTapsBias, vec![hidden]),
                    (Part::ConvOutBias, vec![hidden]),
                ]);
            }
        }
    }
}

fn gqa(a: &Gqa, hidden: usize, to: &mut Parts) {
    let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
    let q_rows = if a.output_gate { 2 * q } else { q };
    to.extend([
        (Part::Q, vec![q_rows, hidden]),
        (Part::K, vec![kv, hidden]),
        (Part::V, vec![kv, hidden]),
        (Part::O, vec![hidden, q]),
    ]);
    if a.qkv_bias {
        to.extend([(Part::QBias, vec![q_rows]), (Part::KBias, vec![kv]), (Part::VBias, vec![kv])]);
    }
    if a.o_bias {
        to.push((Part::OBias, vec![hidden]));
    }
    match a.qk_norm {
        QkNorm::Absent => {}
        QkNorm::HeadBeforeRope | QkNorm::HeadAfterRope => {
            to.extend([(Part::QNorm, vec![a.head_dim]), (Part::KNorm, vec![a.head_dim])]);
        }
        QkNorm::FullWidth => to.extend([(Part::QNorm, vec![q]), (Part::KNorm, vec![kv])]),
    }
    if a.sinks {
        to.push((Part::Sinks, vec![a.heads]));
    }
}

fn mla(a: &Mla, hidden: usize, to: &mut Parts) {
    let q = a.heads * (a.nope_dim + a.rope_dim);
    match a.q_rank {
        None => to.push((Part::Q, vec![q, hidden])),
        Some(rank) => {
            to.extend([(Part::QA, vec![rank, hidden]), (Part::QANorm, vec![rank]), (Part::QB, vec![q, rank])]);
            if a.bias {
                to.push((Part::QABias, vec![rank]));
            }
        }
    }
    to.extend([
        (Part::KvA, vec![a.kv_rank + a.rope_dim, hidden]),
        (Part::KvANorm, vec![a.kv_rank]),
        (Part::KvB, vec![a.heads * (a.nope_dim + a.v_dim), a.kv_rank]),
        (Part::O, vec![hidden, a.heads * a.v_dim]),
    ]);
    if a.bias {
        to.extend([(Part::KvABias, vec![a.kv_rank + a.rope_dim]), (Part::OBias, vec![hidden])]);
    }
}

fn mlp(layer: &LayerSpec, hidden: usize, to: &mut Parts) {
    match &layer.mlp {
        Mlp::Dense { width, .. } => to.extend([
            (Part::DenseGate, vec![*width, hidden]),
            (Part::DenseUp, vec![*width, hidden]),
            (Part::DenseDown, vec![hidden, *width]),
        ]),
        Mlp::Moe(moe) => moe_trunk(moe, hidden, to),
    }
}

fn moe_trunk(moe: &MoeSpec, hidden: usize, to: &mut Parts) {
    to.push((Part::Router, vec![moe.experts, hidden]));
    if moe.router.logit_bias {
        to.push((Part::RouterBias, vec![moe.experts]));
    }
    if moe.router.selection_bias {
        to.push((Part::RouterSelectionBias, vec![moe.experts]));
    }
    if let Some(shared) = moe.shared {
        to.extend([
            (Part::SharedGateProj, vec![shared.width, hidden]),
            (Part::SharedUpProj, vec![shared.width, hidden]),
            (Part::SharedDownProj, vec![hidden, shared.width]),
        ]);
        if shared.gated {
            to.push((Part::SharedGate, vec![1, hidden]));
        }
    }
}
