//! Mixers with a state of fixed size: the gated delta net and the short convolution.

use super::rope::norm_row;
use crate::backend::{ConvCall, DeltaCall, DeltaInputs};
use crate::math::{axpy, dot, exp, sigmoid, silu, softplus};
use rayon::prelude::*;

/// The last `kernel - 1` inputs of a causal depthwise convolution, `[kernel - 1, channels]`.
pub(super) struct ConvState(Vec<f32>);

impl ConvState {
    pub(super) fn new(kernel: usize, channels: usize) -> Self {
        Self(vec![0.0; kernel.saturating_sub(1) * channels])
    }

    /// `out[t, c] = sum_j taps[c, j] * input[t - (kernel - 1) + j, c]`; `taps` `[channels, kernel]`.
    fn run(&mut self, taps: &[f32], channels: usize, input: &[f32]) -> Vec<f32> {
        let kernel = taps.len() / channels;
        let mut by_tap = Vec::with_capacity(taps.len());
        for j in 0..kernel {
            by_tap.extend(taps.iter().skip(j).step_by(kernel));
        }
        let mut padded = std::mem::take(&mut self.0);
        padded.extend_from_slice(input);
        let mut out = vec![0.0; input.len()];
        out.par_chunks_mut(channels).enumerate().for_each(|(t, out)| {
            for (j, taps) in by_tap.chunks_exact(channels).enumerate() {
                let x = &padded[(t + j) * channels..(t + j + 1) * channels];
                out.iter_mut().zip(taps).zip(x).for_each(|((out, tap), x)| *out += tap * x);
            }
        });
        self.0 = padded.split_off(input.len());
        out
    }
}

/// Memory of a gated delta net layer.
pub(super) struct DeltaState {
    conv: ConvState,
    /// `[value_heads, key_dim, value_dim]`.
    memory: Vec<f32>,
}

impl DeltaState {
    pub(super) fn new(spec: &smoe_model::spec::DeltaNet) -> Self {
        let channels = 2 * spec.key_heads * spec.key_dim + spec.value_heads * spec.value_dim;
        Self {
            conv: ConvState::new(spec.conv_kernel, channels),
            memory: vec![0.0; spec.value_heads * spec.key_dim * spec.value_dim],
        }
    }
}

/// See [`crate::backend::Recorder::delta_net`].
pub(super) fn delta_net(at: DeltaCall<'_>, inputs: &DeltaInputs<'_>, state: &mut DeltaState, out: &mut [f32]) {
    let DeltaCall { spec, weights, n } = at;
    let (key_dim, value_dim) = (spec.key_dim, spec.value_dim);
    let key_width = spec.key_heads * key_dim;
    let value_width = spec.value_heads * value_dim;
    let channels = 2 * key_width + value_width;
    let qkv = &inputs.qkv.get::<Vec<f32>>()[..n * channels];
    let (z, b, a) = (inputs.z.get::<Vec<f32>>(), inputs.b.get::<Vec<f32>>(), inputs.a.get::<Vec<f32>>());
    let (a_log, dt_bias) = (weights.a_log.get::<Vec<f32>>(), weights.dt_bias.get::<Vec<f32>>());
    let mut mixed = state.conv.run(weights.conv.get::<Vec<f32>>(), channels, qkv);
    mixed.par_iter_mut().for_each(|x| *x = silu(*x));
    // Queries and keys have length one; the query carries the 1 / sqrt(key_dim) of the attention.
    mixed.par_chunks_mut(channels).for_each(|row| {
        row[..2 * key_width].chunks_exact_mut(key_dim).enumerate().for_each(|(head, x)| {
            let length = 1.0 / (dot(x, x) + 1e-6).sqrt();
            let scale = if head < spec.key_heads { length / (key_dim as f32).sqrt() } else { length };
            x.iter_mut().for_each(|x| *x *= scale);
        });
    });
    let mut heads = vec![0.0; spec.value_heads * n * value_dim];
    let memories = state.memory.par_chunks_mut(key_dim * value_dim);
    memories.zip(heads.par_chunks_mut(n * value_dim)).enumerate().for_each(|(head, (memory, heads))| {
        let key_head = head / (spec.value_heads / spec.key_heads);
        for (t, out) in heads.chunks_exact_mut(value_dim).enumerate() {
            let row = &mixed[t * channels..(t + 1) * channels];
            let gate = t * spec.value_heads + head;
            let step = Step {
                q: &row[key_head * key_dim..(key_head + 1) * key_dim],
                k: &row[key_width + key_head * key_dim..key_width + (key_head + 1) * key_dim],
                v: &row[2 * key_width + head * value_dim..2 * key_width + (head + 1) * value_dim],
                decay: exp(-exp(a_log[head]) * softplus(a[gate] + dt_bias[head])),
                strength: sigmoid(b[gate]),
            };
            step.run(memory, out);
            norm_row(&weights.norm, out);
            let z = &z[t * value_width + head * value_dim..t * value_width + (head + 1) * value_dim];
            out.iter_mut().zip(z).for_each(|(o, z)| *o *= silu(*z));
        }
    });
    for (i, head) in heads.chunks_exact(value_dim).enumerate() {
        let at = i % n * value_width + i / n * value_dim;
        out[at..at + value_dim].copy_from_slice(head);
    }
}

/// One token of one head of the gated delta rule.
struct Step<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    decay: f32,
    strength: f32,
}

impl Step<'_> {
    /// `S *= decay; S += k (strength * (v - S^T k))^T; out = S^T q`, `S` `[key_dim, value_dim]`.
    fn run(&self, memory: &mut [f32], out: &mut [f32]) {
        let value_dim = self.v.len();
        memory.iter_mut().for_each(|s| *s *= self.decay);
        let mut recalled = vec![0.0; value_dim];
        for (row, k) in memory.chunks_exact(value_dim).zip(self.k) {
            axpy(*k, row, &mut recalled);
        }
        recalled.iter_mut().zip(self.v).for_each(|(r, v)| *r = (v - *r) * self.strength);
        out.fill(0.0);
        for ((row, k), q) in memory.chunks_exact_mut(value_dim).zip(self.k).zip(self.q) {
            axpy(*k, &recalled, row);
            axpy(*q, row, out);
        }
    }
}

/// See [`crate::backend::Recorder::short_conv`].
pub(super) fn short_conv(at: ConvCall<'_>, bcx: &[f32], state: &mut ConvState, out: &mut [f32]) {
    let (n, hidden) = (at.n, at.hidden);
    let mut gated = vec![0.0; n * hidden];
    for (gated, bcx) in gated.chunks_exact_mut(hidden).zip(bcx.chunks_exact(3 * hidden)) {
        gated.iter_mut().zip(&bcx[..hidden]).zip(&bcx[2 * hidden..]).for_each(|((g, b), x)| *g = b * x);
    }
    let mixed = state.run(at.weights.taps.get::<Vec<f32>>(), hidden, &gated);
    let rows = out.chunks_exact_mut(hidden).zip(mixed.chunks_exact(hidden)).zip(bcx.chunks_exact(3 * hidden));
    for ((out, mixed), bcx) in rows {
        out.copy_from_slice(mixed);
        if let Some(bias) = &at.weights.bias {
            out.iter_mut().zip(bias.get::<Vec<f32>>()).for_each(|(o, b)| *o += b);
        }
        out.iter_mut().zip(&bcx[hidden..2 * hidden]).for_each(|(o, c)| *o *= c);
    }
}
