//! Sums of the inputs that a matrix sees, over tokens in a fixed order: f32 products of blocks of tokens, added up in
//! f64. One thread adds to one [`Moments`], so the bits do not depend on how many threads there are.

use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, MatMut, MatRef, Par};

/// Tokens of one f32 product.
pub(crate) const TOKENS: usize = 512;

/// `sum v x x^T` (lower half), `sum v x_f x^T` and the sums of `v` over some tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    cols: usize,
    /// Tokens added.
    pub tokens: u64,
    /// `sum v`.
    pub weight: f64,
    /// `sum v^2`.
    pub weight_squared: f64,
    /// `[cols, cols]`, entry `(i, j)` at `i * cols + j`, filled where `j >= i`: symmetric.
    pub second: Vec<f64>,
    /// `sum v x_f[i] x[j]` at `i * cols + j`, where a second stream is added.
    pub cross: Option<Vec<f64>>,
}

/// Some tokens' inputs.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// `[n, cols]`, of the quantised stream.
    pub x: &'a [f32],
    /// `[n, cols]`, of the unquantised stream.
    pub reference: Option<&'a [f32]>,
    /// `[n]` weights `v >= 0`; all 1 where there are none.
    pub weights: Option<&'a [f32]>,
}

impl Moments {
    /// Of no token; `cross` says whether there is a second stream.
    #[must_use]
    pub fn new(cols: usize, cross: bool) -> Self {
        Self {
            cols,
            tokens: 0,
            weight: 0.0,
            weight_squared: 0.0,
            second: vec![0.0; cols * cols],
            cross: cross.then(|| vec![0.0; cols * cols]),
        }
    }

    /// Input columns.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The effective number of tokens, `(sum v)^2 / sum v^2`; 0 without tokens.
    #[must_use]
    pub fn effective(&self) -> f64 {
        if self.weight_squared > 0.0 { self.weight * self.weight / self.weight_squared } else { 0.0 }
    }

    /// Mean of the diagonal.
    #[must_use]
    pub fn mean_diagonal(&self) -> f64 {
        (0..self.cols).map(|i| self.second[i * self.cols + i]).sum::<f64>() / self.cols.max(1) as f64
    }

    /// Adds tokens, in their order.
    ///
    /// # Panics
    /// If the lengths do not belong together, or only one of the two has a second stream.
    pub fn add(&mut self, inputs: Inputs<'_>) {
        let n = inputs.x.len() / self.cols;
        assert_eq!(inputs.x.len(), n * self.cols, "whole tokens of {} columns", self.cols);
        assert!(inputs.weights.is_none_or(|v| v.len() == n), "a weight for each of {n} tokens");
        assert!(inputs.reference.is_none_or(|f| f.len() == inputs.x.len()), "both streams have {n} tokens");
        assert_eq!(inputs.reference.is_some(), self.cross.is_some(), "a second stream on both sides");
        let mut product = vec![0.0f32; self.cols * self.cols];
        for first in (0..n).step_by(TOKENS) {
            let tokens = first..(first + TOKENS).min(n);
            let part = tokens.start * self.cols..tokens.end * self.cols;
            let v = inputs.weights.map(|v| &v[tokens.clone()]);
            self.add_block(&inputs.x[part.clone()], inputs.reference.map(|f| &f[part]), v, &mut product);
        }
    }

    fn add_block(&mut self, x: &[f32], reference: Option<&[f32]>, v: Option<&[f32]>, product: &mut [f32]) {
        let cols = self.cols;
        let n = x.len() / cols;
        let (root, whole);
        let (a, b) = match v {
            None => (x, x),
            Some(v) => {
                root = scaled(x, cols, v.iter().map(|v| v.sqrt()));
                whole = scaled(x, cols, v.iter().copied());
                (&root[..], &whole[..])
            }
        };
        // A row-major [n, cols] block is a column-major [cols, n] matrix; the result is symmetric.
        let a = MatRef::from_column_major_slice(a, cols, n);
        let out = MatMut::from_column_major_slice_mut(&mut *product, cols, cols);
        let (lower, full) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
        triangular::matmul(out, lower, Accum::Replace, a, full, a.transpose(), full, 1.0f32, Par::Seq);
        for i in 0..cols {
            let row = i * cols + i..(i + 1) * cols;
            for (sum, &x) in self.second[row.clone()].iter_mut().zip(&product[row]) {
                *sum += f64::from(x);
            }
        }
        if let (Some(cross), Some(reference)) = (&mut self.cross, reference) {
            let b = MatRef::from_column_major_slice(b, cols, n);
            let f = MatRef::from_column_major_slice(reference, cols, n);
            let out = MatMut::from_column_major_slice_mut(&mut *product, cols, cols);
            faer::linalg::matmul::matmul(out, Accum::Replace, b, f.transpose(), 1.0f32, Par::Seq);
            for (sum, &x) in cross.iter_mut().zip(&*product) {
                *sum += f64::from(x);
            }
        }
        self.tokens += n as u64;
        match v {
            None => {
                self.weight += n as f64;
                self.weight_squared += n as f64;
            }
            Some(v) => {
                for &v in v {
                    self.weight += f64::from(v);
                    self.weight_squared += f64::from(v) * f64::from(v);
                }
            }
        }
    }

    /// The moments of both sets of tokens.
    ///
    /// # Panics
    /// If they have different columns or streams.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        assert_eq!((self.cols, self.cross.is_some()), (other.cols, other.cross.is_some()), "moments of one matrix");
        let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
        Self {
            cols: self.cols,
            tokens: self.tokens + other.tokens,
            weight: self.weight + other.weight,
            weight_squared: self.weight_squared + other.weight_squared,
            second: sum(&self.second, &other.second),
            cross: self.cross.as_ref().zip(other.cross.as_ref()).map(|(a, b)| sum(a, b)),
        }
    }
}

/// Each token's inputs times its factor.
fn scaled(x: &[f32], cols: usize, factors: impl Iterator<Item = f32>) -> Vec<f32> {
    x.chunks_exact(cols).zip(factors).flat_map(|(x, f)| x.iter().map(move |x| x * f)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: weights, effective size, both halves of the definition.
    #[test]
    fn weighted_sums_are_those_of_the_definition() {
        let (x, f, v) = ([1.0, 2.0, 3.0, -1.0], [0.5, 1.0, -1.0, 2.0], [0.25, 4.0]);
        let mut moments = Moments::new(2, true);
        moments.add(Inputs { x: &x, reference: Some(&f), weights: Some(&v) });
        assert_eq!((moments.tokens, moments.weight, moments.weight_squared), (2, 4.25, 16.0625));
        assert!((moments.effective() - 4.25 * 4.25 / 16.0625).abs() < 1e-12);
        for (at, want) in [(0, 0.25 + 36.0), (1, 0.5 - 12.0), (3, 1.0 + 4.0)] {
            assert!((moments.second[at] - want).abs() < 1e-5, "second {at}: {}", moments.second[at]);
        }
        let cross = moments.cross.expect("two streams");
        let want = [0.125 - 12.0, 0.25 + 4.0, 0.25 + 24.0, 0.5 - 8.0];
        for (i, (got, want)) in cross.iter().zip(want).enumerate() {
            assert!((got - want).abs() < 1e-5, "cross {i}: {got}");
        }
    }

    #[test]
    fn sets_of_tokens_add_up() {
        let x: Vec<f32> = (0..30).map(|i| (i % 7) as f32 - 3.0).collect();
        let all = |x: &[f32]| {
            let mut moments = Moments::new(3, false);
            moments.add(Inputs { x, reference: None, weights: None });
            moments
        };
        assert_eq!(all(&x[..12]).with(&all(&x[12..])), all(&x));
        assert_eq!(all(&[]).effective(), 0.0);
    }
}
