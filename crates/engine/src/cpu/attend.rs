//! Scaled dot-product attention over remembered rows, by chunks of positions.
//!
//! The softmax is taken online (Milakov and Gimelshein, 2018): each query keeps its largest logit, its sum and its
//! output and rescales them chunk by chunk. Chunks lie at fixed positions and each query goes through them alone, so
//! its result does not depend on which queries share a task.

use super::rows::{CHUNK, Rows};
use crate::backend::Span;
use crate::math::{exp, sum_of};
use rayon::prelude::*;
use smoe_kernels::{Data, Isa, Matrix as View, matmul};

/// Queries of a task, about: enough to pay for turning a chunk of values around, few enough to stay in cache.
const QUERIES: usize = 64;

/// Attention of some tokens over all rows up to their own.
pub(super) struct Attend<'a> {
    pub(super) isa: Isa,
    pub(super) threads: usize,
    pub(super) keys: &'a Rows,
    /// As wide as the keys or narrower: only the first `value_dim` columns count.
    pub(super) values: &'a Rows,
    pub(super) value_dim: usize,
    pub(super) span: Span,
    pub(super) heads: usize,
    /// Query heads that share a key head.
    pub(super) group: usize,
    pub(super) scale: f32,
    pub(super) window: Option<usize>,
    pub(super) sinks: Option<&'a [f32]>,
}

/// Some heads of one group and some tokens.
struct Task {
    heads: std::ops::Range<usize>,
    tokens: std::ops::Range<usize>,
}

/// A query on its way through the chunks.
struct Query {
    /// Positions that it sees.
    first: usize,
    last: usize,
    max: f32,
    sum: f32,
}

impl Attend<'_> {
    /// `q` `[heads, n, key_dim]` to `out` `[heads, n, value_dim]`.
    pub(super) fn run(&self, q: &[f32], out: &mut [f32]) {
        let (n, value_dim) = (self.span.n, self.value_dim);
        let tasks = self.tasks();
        let done: Vec<Vec<f32>> = tasks.par_iter().with_max_len(1).map(|task| self.task(task, q)).collect();
        for (task, values) in tasks.iter().zip(done) {
            let size = task.tokens.len() * value_dim;
            for (head, values) in task.heads.clone().zip(values.chunks_exact(size)) {
                out[(head * n + task.tokens.start) * value_dim..][..size].copy_from_slice(values);
            }
        }
    }

    /// Tasks over one group's heads and neighbouring tokens, at least two a thread where there are so many.
    fn tasks(&self) -> Vec<Task> {
        let n = self.span.n;
        let fair = (self.heads * n).div_ceil(self.threads * 2).clamp(1, QUERIES);
        let heads = self.group.min(fair);
        let tokens = (fair / heads).clamp(1, n);
        let mut tasks = Vec::new();
        for start in (0..n).step_by(tokens) {
            for group in (0..self.heads).step_by(self.group) {
                for head in (group..group + self.group).step_by(heads) {
                    let heads = head..(head + heads).min(group + self.group);
                    tasks.push(Task { heads, tokens: start..(start + tokens).min(n) });
                }
            }
        }
        tasks
    }

    /// `[heads, tokens, value_dim]` of a task.
    fn task(&self, task: &Task, q: &[f32]) -> Vec<f32> {
        let (n, key_dim, value_dim) = (self.span.n, self.keys.width(), self.value_dim);
        let kv_head = task.heads.start / self.group;
        let mut x = Vec::with_capacity(task.heads.len() * task.tokens.len() * key_dim);
        let mut queries = Vec::with_capacity(task.heads.len() * task.tokens.len());
        for head in task.heads.clone() {
            x.extend_from_slice(&q[(head * n + task.tokens.start) * key_dim..(head * n + task.tokens.end) * key_dim]);
            let sink = self.sinks.map(|sinks| sinks[head]);
            queries.extend(task.tokens.clone().map(|t| {
                let last = self.span.start + t;
                let first = self.window.map_or(0, |window| (last + 1).saturating_sub(window));
                // A sink is a logit without a value.
                Query { first, last, max: sink.unwrap_or(f32::NEG_INFINITY), sum: sink.map_or(0.0, |_| 1.0) }
            }));
        }
        let m = queries.len();
        let first = queries.iter().map(|q| q.first).min().unwrap_or(0);
        let last = queries.iter().map(|q| q.last).max().unwrap_or(0);
        let mut out = vec![0.0; m * value_dim];
        let mut scratch = Scratch::new(m, value_dim);
        for chunk in first / CHUNK..=last / CHUNK {
            let rows = (last + 1 - chunk * CHUNK).min(CHUNK);
            let keys = floats(CHUNK, key_dim, self.keys.chunk(chunk, kv_head));
            matmul(self.isa, &keys, 0..rows, &x, m, &mut scratch.scores[..rows * m]);
            self.weigh(chunk, rows, &mut queries, &mut scratch, &mut out);
            turn(self.values.chunk(chunk, kv_head), self.values.width(), &mut scratch.values);
            let values = floats(value_dim, CHUNK, &scratch.values);
            matmul(self.isa, &values, 0..value_dim, &scratch.weights, m, &mut scratch.products);
            for (i, out) in out.chunks_exact_mut(value_dim).enumerate() {
                out.iter_mut().zip(scratch.products[i..].iter().step_by(m)).for_each(|(o, p)| *o += p);
            }
        }
        for (query, out) in queries.iter().zip(out.chunks_exact_mut(value_dim)) {
            out.iter_mut().for_each(|o| *o /= query.sum);
        }
        out
    }

    /// Turns a chunk's scores `[rows, m]` into weights `[m, CHUNK]` and rescales what the queries had before.
    fn weigh(&self, chunk: usize, rows: usize, queries: &mut [Query], scratch: &mut Scratch, out: &mut [f32]) {
        let (m, base) = (queries.len(), chunk * CHUNK);
        let Scratch { scores, weights, .. } = scratch;
        let parts = queries.iter_mut().zip(weights.chunks_exact_mut(CHUNK)).zip(out.chunks_exact_mut(self.value_dim));
        for (i, ((query, weights), out)) in parts.enumerate() {
            weights.fill(0.0);
            let (from, to) = (query.first.max(base), (query.last + 1).min(base + rows));
            if from >= to {
                continue;
            }
            let seen = &mut weights[from - base..to - base];
            let column = scores[(from - base) * m + i..].iter().step_by(m);
            seen.iter_mut().zip(column).for_each(|(w, s)| *w = s * self.scale);
            let max = seen.iter().copied().fold(query.max, f32::max);
            let rescale = exp(query.max - max);
            seen.iter_mut().for_each(|w| *w = exp(*w - max));
            query.sum = query.sum * rescale + sum_of(seen, |w| w);
            query.max = max;
            if rescale != 1.0 {
                out.iter_mut().for_each(|o| *o *= rescale);
            }
        }
    }
}

/// Memory of a task.
struct Scratch {
    /// `[CHUNK, m]`.
    scores: Vec<f32>,
    /// `[m, CHUNK]`.
    weights: Vec<f32>,
    /// `[value_dim, CHUNK]`.
    values: Vec<f32>,
    /// `[value_dim, m]`.
    products: Vec<f32>,
}

impl Scratch {
    fn new(m: usize, value_dim: usize) -> Self {
        Self {
            scores: vec![0.0; CHUNK * m],
            weights: vec![0.0; m * CHUNK],
            values: vec![0.0; value_dim * CHUNK],
            products: vec![0.0; value_dim * m],
        }
    }
}

/// f32 values as a matrix of the kernels.
fn floats(rows: usize, cols: usize, values: &[f32]) -> View<'_> {
    View::new(rows, cols, Data::F32(bytemuck::cast_slice(values))).expect("a chunk is a whole matrix")
}

/// The first columns of `[CHUNK, width]` as `[value_dim, CHUNK]`, tile by tile.
fn turn(x: &[f32], width: usize, out: &mut [f32]) {
    const TILE: usize = 16;
    let value_dim = out.len() / CHUNK;
    for r0 in (0..CHUNK).step_by(TILE) {
        for d0 in (0..value_dim).step_by(TILE) {
            for d in d0..(d0 + TILE).min(value_dim) {
                let out = &mut out[d * CHUNK + r0..d * CHUNK + r0 + TILE];
                out.iter_mut().zip(x[r0 * width + d..].iter().step_by(width)).for_each(|(o, x)| *o = *x);
            }
        }
    }
}
