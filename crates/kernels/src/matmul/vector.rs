//! One token: weights are decoded in registers, several rows at a time, so that their chains of additions overlap.

use super::rows::{Format, Row};
use super::{GROUP, Tokens};
use crate::simd::{Lane, STEPS, Simd};

/// The outputs of `R` rows for the only token.
#[inline(always)]
pub(super) fn rows<S: Simd, F: Format, const R: usize>(
    simd: S,
    rows: &[Row<'_, F>; R],
    tokens: &Tokens<'_>,
    out: &mut [f32],
) {
    let groups = tokens.cols / GROUP;
    let mut sums = [simd.zero(); R];
    for (g, x) in tokens.whole(0).as_chunks::<STEPS>().0.iter().enumerate() {
        for (sum, row) in sums.iter_mut().zip(rows) {
            let w = row.group(simd, g);
            for j in 0..STEPS {
                *sum = simd.fma(w[j], simd.load(&x[j]), *sum);
            }
        }
    }
    if tokens.has_tail() {
        for (sum, row) in sums.iter_mut().zip(rows) {
            let w = row.tail(simd, groups);
            for (w, x) in w.into_iter().zip(tokens.tail(0)) {
                *sum = simd.fma(w, simd.load(x), *sum);
            }
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        let mut lane = Lane::ZERO;
        simd.store(sum, &mut lane.0);
        *out = lane.sum();
    }
}
