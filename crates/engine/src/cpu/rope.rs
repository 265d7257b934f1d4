//! Norms and rotations of rows.

use crate::backend::Span;
use crate::math::{dot, sum_of};
use crate::weights::{Norm, NormFormula};
use smoe_model::spec::{Rope, RopePairing};

/// Normalises one row; `row.len() == norm.cols`.
pub(super) fn norm_row(norm: &Norm, row: &mut [f32]) {
    let weight = norm.weight.get::<Vec<f32>>();
    let width = norm.cols as f32;
    match norm.formula {
        NormFormula::Rms => {
            let scale = 1.0 / (dot(row, row) / width + norm.eps).sqrt();
            row.iter_mut().zip(weight).for_each(|(x, w)| *x = *x * scale * w);
        }
        NormFormula::LayerNorm => {
            let mean = sum_of(row, |x| x) / width;
            let variance = sum_of(row, |x| (x - mean) * (x - mean)) / width;
            let scale = 1.0 / (variance + norm.eps).sqrt();
            row.iter_mut().zip(weight).for_each(|(x, w)| *x = (*x - mean) * scale * w);
        }
    }
    if let Some(bias) = &norm.bias {
        row.iter_mut().zip(bias.get::<Vec<f32>>()).for_each(|(x, b)| *x += b);
    }
}

/// Normalises each run of `norm.cols` values.
pub(super) fn norm_rows(norm: &Norm, x: &mut [f32]) {
    x.chunks_exact_mut(norm.cols).for_each(|row| norm_row(norm, row));
}

/// Cosines and sines of a call's positions.
pub(super) struct Rotation {
    half: usize,
    pairing: RopePairing,
    /// `[n, half]` of (cos, sin), the amplitude in both.
    turns: Vec<(f32, f32)>,
}

impl Rotation {
    pub(super) fn new(rope: &Rope, span: Span) -> Self {
        let turns = (span.start..span.start + span.n).flat_map(|position| {
            rope.inv_freq.iter().map(move |freq| {
                let (sin, cos) = (position as f32 * freq).sin_cos();
                (cos * rope.amplitude, sin * rope.amplitude)
            })
        });
        Self { half: rope.dim / 2, pairing: rope.pairing, turns: turns.collect() }
    }

    /// Rotates the first channels of one head of token `t` of the call.
    pub(super) fn apply(&self, t: usize, head: &mut [f32]) {
        let turns = &self.turns[t * self.half..(t + 1) * self.half];
        match self.pairing {
            RopePairing::Halves => {
                let (a, b) = head[..2 * self.half].split_at_mut(self.half);
                for ((a, b), (cos, sin)) in a.iter_mut().zip(b).zip(turns) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
            RopePairing::Neighbours => {
                for ([a, b], (cos, sin)) in head[..2 * self.half].as_chunks_mut().0.iter_mut().zip(turns) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}
