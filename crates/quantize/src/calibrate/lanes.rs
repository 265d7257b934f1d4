//! Sixteen rows of a matrix side by side: column `c` is a [`Lane`] with that weight of each row. The rows of a matrix
//! are independent in every step of the solver, so a lane is a vector register and no step sums across it.
//!
//! Statistics are `[cols, cols]`, row-major, symmetric (both halves filled).

/// Rows side by side.
pub(crate) const LANES: usize = 16;

/// Columns whose changes are gathered before they reach the columns of other blocks: a product of matrices instead of
/// one pass over memory a column.
pub(crate) const BLOCK: usize = 64;

/// Columns of a register tile.
const TILE: usize = 8;

/// One value a row.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(align(64))]
pub(crate) struct Lane(pub(crate) [f32; LANES]);

impl Lane {
    pub(crate) const ZERO: Self = Self([0.0; LANES]);
}

/// `a * b + c`, rounded once where that is an instruction.
#[inline(always)]
pub(crate) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn fma64<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Columns `[first row, first row + LANES)` of a row-major matrix as lanes; rows beyond the last are zeros.
pub(crate) fn gather(w: &[f32], cols: usize, first: usize) -> Vec<Lane> {
    let mut lanes = vec![Lane::ZERO; cols];
    for (l, row) in w.chunks_exact(cols).skip(first).take(LANES).enumerate() {
        for (lane, &value) in lanes.iter_mut().zip(row) {
            lane.0[l] = value;
        }
    }
    lanes
}

/// `out[c] += sum over (j, d) of changes: d * a[j, c]` for the columns `cols` of `a`, whose rows are `width` long.
///
/// The sum of a column runs over the changes in their order.
#[inline(always)]
pub(crate) fn accumulate<const FUSED: bool>(
    changes: &[(usize, Lane)],
    (a, width): (&[f32], usize),
    cols: core::ops::Range<usize>,
    out: &mut [Lane],
) {
    let mut c = cols.start;
    while c + TILE <= cols.end {
        let mut acc = [Lane::ZERO; TILE];
        for (j, d) in changes {
            let row = &a[j * width + c..][..TILE];
            for (acc, &x) in acc.iter_mut().zip(row) {
                for l in 0..LANES {
                    acc.0[l] = fma::<FUSED>(d.0[l], x, acc.0[l]);
                }
            }
        }
        add(&acc, &mut out[c..c + TILE]);
        c += TILE;
    }
    for c in c..cols.end {
        let mut acc = [Lane::ZERO];
        for (j, d) in changes {
            let x = a[j * width + c];
            for l in 0..LANES {
                acc[0].0[l] = fma::<FUSED>(d.0[l], x, acc[0].0[l]);
            }
        }
        add(&acc, &mut out[c..=c]);
    }
}

#[inline(always)]
fn add(from: &[Lane], to: &mut [Lane]) {
    for (to, from) in to.iter_mut().zip(from) {
        for l in 0..LANES {
            to.0[l] += from.0[l];
        }
    }
}

/// The objective of each row, `sum over j, c of d[j] * a[j, c] * d[c]`, in f64.
///
/// The statistic is symmetric: of each four columns, what lies left of them counts twice.
#[inline(always)]
pub(crate) fn quadratic<const FUSED: bool>(d: &[Lane], a: &[f32]) -> [f64; LANES] {
    const ROWS: usize = 4;
    let cols = d.len();
    let wide: Vec<[f64; LANES]> = d.iter().map(|d| d.0.map(f64::from)).collect();
    let mut total = [0.0; LANES];
    let mut first = 0;
    while first + ROWS <= cols {
        products::<FUSED, ROWS>(&wide, a, first, &mut total);
        first += ROWS;
    }
    while first < cols {
        products::<FUSED, 1>(&wide, a, first, &mut total);
        first += 1;
    }
    total
}

/// Adds the share of the columns `first..first + R` to the objective.
#[inline(always)]
fn products<const FUSED: bool, const R: usize>(d: &[[f64; LANES]], a: &[f32], first: usize, total: &mut [f64; LANES]) {
    let cols = d.len();
    let rows: [&[f32]; R] = core::array::from_fn(|r| &a[(first + r) * cols..][..first + R]);
    let mut acc = [[0.0f64; LANES]; R];
    for (c, d) in d[..first].iter().enumerate() {
        for r in 0..R {
            let x = f64::from(rows[r][c]);
            for l in 0..LANES {
                acc[r][l] = fma64::<FUSED>(d[l], x, acc[r][l]);
            }
        }
    }
    for (c, d) in d[first..first + R].iter().enumerate() {
        for r in 0..R {
            let x = 0.5 * f64::from(rows[r][first + c]);
            for l in 0..LANES {
                acc[r][l] = fma64::<FUSED>(d[l], x, acc[r][l]);
            }
        }
    }
    for r in 0..R {
        for l in 0..LANES {
            total[l] = fma64::<FUSED>(2.0 * d[first + r][l], acc[r][l], total[l]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the plain double sum, for whole and broken tiles.
    #[test]
    fn the_quadratic_form_is_the_double_sum() {
        for cols in [1, 3, 4, 5, 64, 70] {
            let value = |i: usize| ((i * 37 + 11) % 29) as f32 / 7.0 - 2.0;
            let d: Vec<Lane> = (0..cols).map(|c| Lane(core::array::from_fn(|l| value(c * LANES + l)))).collect();
            let a: Vec<f32> =
                (0..cols * cols).map(|i| value((i / cols).min(i % cols) * 100 + (i / cols).max(i % cols))).collect();
            let got = quadratic::<false>(&d, &a);
            for (l, got) in got.into_iter().enumerate() {
                let pairs = (0..cols).flat_map(|i| (0..cols).map(move |j| (i, j)));
                let want: f64 =
                    pairs.map(|(i, j)| f64::from(d[i].0[l]) * f64::from(a[i * cols + j]) * f64::from(d[j].0[l])).sum();
                assert!((got - want).abs() < 1e-6 * (1.0 + want.abs()), "{cols} columns, row {l}: {got} {want}");
            }
        }
    }
}
