//! Attention over remembered rows, grouped-query and latent alike: both come down to [`super::attend`].

use super::Cpu;
use super::attend::Attend;
use super::product::{decode_row, transpose, view};
use super::rope::{Rotation, norm_rows};
use super::rows::Rows;
use crate::backend::{GqaCall, MlaCall, MlaInputs, Qkv};
use crate::math::{axpy, sigmoid};
use rayon::prelude::*;
use smoe_kernels::matmul;
use smoe_model::spec::QkNorm;
use smoe_model::store::Tensor;

/// Keys and values of a layer.
pub(super) struct KvState {
    keys: Rows,
    values: Rows,
}

impl KvState {
    pub(super) fn new(heads: usize, width: usize) -> Self {
        Self { keys: Rows::new(heads, width), values: Rows::new(heads, width) }
    }
}

/// Latents of a layer, each followed by the rotated key part.
pub(super) struct LatentState(Rows);

impl LatentState {
    pub(super) fn new(width: usize) -> Self {
        Self(Rows::new(1, width))
    }
}

/// Columns `from .. from + width` of each head of `[n, heads * stride]`, as `[heads, n, width]`.
fn split_heads(x: &[f32], n: usize, stride: usize, from: usize, width: usize) -> Vec<f32> {
    let row = x.len() / n;
    let mut out = Vec::with_capacity(row / stride * n * width);
    for head in 0..row / stride {
        for t in 0..n {
            let at = t * row + head * stride + from;
            out.extend_from_slice(&x[at..at + width]);
        }
    }
    out
}

/// `[heads, n, width]` into `[n, heads * width]`.
fn join_heads(x: &[f32], n: usize, width: usize, out: &mut [f32]) {
    let row = out.len() / n;
    for (i, head) in x.chunks_exact(width).enumerate() {
        let at = i % n * row + i / n * width;
        out[at..at + width].copy_from_slice(head);
    }
}

impl Cpu {
    /// See [`crate::backend::Recorder::gqa`].
    pub(super) fn gqa(&self, at: GqaCall<'_>, qkv: &Qkv<'_>, state: &mut KvState, out: &mut [f32]) {
        let GqaCall { spec, weights, span } = at;
        let (n, dim) = (span.n, spec.head_dim);
        let stride = if spec.output_gate { 2 * dim } else { dim };
        let q_in = &qkv.q.get::<Vec<f32>>()[..n * spec.heads * stride];
        let mut k = qkv.k.get::<Vec<f32>>()[..n * spec.kv_heads * dim].to_vec();
        let mut v = qkv.v.get::<Vec<f32>>()[..n * spec.kv_heads * dim].to_vec();
        // Rows of all heads together first: a full-width norm runs over them.
        let mut q = q_in.to_vec();
        let norms = weights.q_norm.as_ref().zip(weights.k_norm.as_ref());
        if let (QkNorm::FullWidth, Some((q_norm, k_norm))) = (spec.qk_norm, norms) {
            norm_rows(q_norm, &mut q);
            norm_rows(k_norm, &mut k);
        }
        if let Some(clip) = spec.clip_qkv {
            // After a full-width norm, as the reference does.
            [&mut q, &mut k, &mut v].into_iter().flatten().for_each(|x| *x = x.clamp(-clip, clip));
        }
        let mut q = split_heads(&q, n, stride, 0, dim);
        if let (QkNorm::HeadBeforeRope, Some((q_norm, k_norm))) = (spec.qk_norm, norms) {
            norm_rows(q_norm, &mut q);
            norm_rows(k_norm, &mut k);
        }
        if let Some(rope) = &spec.rope {
            let rotation = Rotation::new(rope, span);
            q.par_chunks_mut(dim).enumerate().for_each(|(i, head)| rotation.apply(i % n, head));
            k.par_chunks_mut(dim).enumerate().for_each(|(i, head)| rotation.apply(i / spec.kv_heads, head));
        }
        if let (QkNorm::HeadAfterRope, Some((q_norm, k_norm))) = (spec.qk_norm, norms) {
            norm_rows(q_norm, &mut q);
            norm_rows(k_norm, &mut k);
        }
        state.keys.extend(&k);
        state.values.extend(&v);
        let attend = Attend {
            isa: self.isa(),
            threads: self.threads(),
            keys: &state.keys,
            values: &state.values,
            span,
            group: spec.heads / spec.kv_heads,
            value_dim: dim,
            heads: spec.heads,
            scale: spec.scale,
            window: spec.window,
            sinks: weights.sinks.as_ref().map(|sinks| sinks.get::<Vec<f32>>().as_slice()),
        };
        let mut heads = vec![0.0; n * spec.heads * dim];
        attend.run(&q, &mut heads);
        if spec.output_gate {
            let gate = split_heads(q_in, n, stride, dim, dim);
            heads.iter_mut().zip(&gate).for_each(|(o, g)| *o *= sigmoid(*g));
        }
        join_heads(&heads, n, dim, &mut out[..n * spec.heads * dim]);
    }

    /// See [`crate::backend::Recorder::mla`].
    pub(super) fn mla(&self, at: MlaCall<'_>, inputs: &MlaInputs<'_>, state: &mut LatentState, out: &mut [f32]) {
        let MlaCall { spec, weights, span } = at;
        let (n, rank, rope_dim) = (span.n, spec.kv_rank, spec.rope_dim);
        let row = rank + rope_dim;
        let rotation = Rotation::new(&spec.rope, span);
        let mut kv = inputs.kv.get::<Vec<f32>>()[..n * row].to_vec();
        for (t, kv) in kv.chunks_exact_mut(row).enumerate() {
            let (latent, key) = kv.split_at_mut(rank);
            norm_rows(&weights.kv_norm, latent);
            rotation.apply(t, key);
        }
        state.0.extend(&kv);
        let q = &inputs.q.get::<Vec<f32>>()[..n * spec.heads * (spec.nope_dim + rope_dim)];
        let kv_b = weights.kv_b.packed.get::<Tensor>();
        let q = absorb_keys(at, kv_b, q, &rotation);
        let attend = Attend {
            isa: self.isa(),
            threads: self.threads(),
            keys: &state.0,
            values: &state.0,
            span,
            group: spec.heads,
            value_dim: rank,
            heads: spec.heads,
            scale: spec.scale,
            window: None,
            sinks: None,
        };
        let mut latents = vec![0.0; spec.heads * n * rank];
        attend.run(&q, &mut latents);
        // Back from the latent: each head's value rows of `kv_b`.
        let kv_b = view(kv_b);
        let mut values = vec![0.0; spec.heads * n * spec.v_dim];
        values.par_chunks_mut(n * spec.v_dim).zip(latents.par_chunks(n * rank)).enumerate().for_each(
            |(head, (values, latents))| {
                let first = head * (spec.nope_dim + spec.v_dim) + spec.nope_dim;
                matmul(self.isa(), &kv_b, first..first + spec.v_dim, latents, n, values);
            },
        );
        // `values` is [heads * v_dim, n].
        transpose(&values, spec.heads * spec.v_dim, n, &mut out[..n * spec.heads * spec.v_dim]);
    }
}

/// Queries against latents: `q_nope` through the head's key rows of `kv_b`, then the rotated part;
/// `[heads, n, kv_rank + rope_dim]`. One row of `kv_b` at a time is decoded, never the matrix.
fn absorb_keys(at: MlaCall<'_>, kv_b: &Tensor, q: &[f32], rotation: &Rotation) -> Vec<f32> {
    let (spec, n) = (at.spec, at.span.n);
    let (rank, q_dim) = (spec.kv_rank, spec.nope_dim + spec.rope_dim);
    let row = rank + spec.rope_dim;
    let kv_b = view(kv_b);
    let mut out = vec![0.0; spec.heads * n * row];
    out.par_chunks_mut(n * row).enumerate().for_each(|(head, out)| {
        let mut weights = vec![0.0; rank];
        for d in 0..spec.nope_dim {
            decode_row(&kv_b, head * (spec.nope_dim + spec.v_dim) + d, &mut weights);
            for (t, out) in out.chunks_exact_mut(row).enumerate() {
                axpy(q[(t * spec.heads + head) * q_dim + d], &weights, &mut out[..rank]);
            }
        }
        for (t, out) in out.chunks_exact_mut(row).enumerate() {
            let from = (t * spec.heads + head) * q_dim + spec.nope_dim;
            out[rank..].copy_from_slice(&q[from..from + spec.rope_dim]);
            rotation.apply(t, &mut out[rank..]);
        }
    });
    out
}
