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
#[inline(always)]
pub(crate) fn quadratic<const FUSED: bool>(d: &[Lane], a: &[f32]) -> [f64; LANES] {
    const ROWS: usize = 4;
    let cols = d.len();
    let wide: Vec<[f64; LANES]> = d.iter().map(|d| d.0.map(f64::from)).collect();
    let mut total = [0.0; LANES];
    for first in (0..cols).step_by(ROWS) {
        let rows = ROWS.min(cols - first);
        // Twice what lies left of the block, then the block itself.
        let mut acc = [[0.0f64; LANES]; ROWS];
        if rows == ROWS {
            let a: [&[f32]; ROWS] = core::array::from_fn(|r| &a[(first + r) * cols..][..first]);
            for (c, d) in wide[..first].iter().enumerate() {
                for (acc, a) in acc.iter_mut().zip(a) {
                    let x = f64::from(a[c]);
                    for l in 0..LANES {
                        acc[l] = fma64::<FUSED>(d[l], x, acc[l]);
                    }
                }
            }
        } else {
            for (r, acc) in acc.iter_mut().enumerate().take(rows) {
                for (d, &x) in wide[..first].iter().zip(&a[(first + r) * cols..]) {
                    for l in 0..LANES {
                        acc[l] = fma64::<FUSED>(d[l], f64::from(x), acc[l]);
                    }
                }
            }
        }
        for r in 0..rows {
            let a = &a[(first + r) * cols + first..][..rows];
            for l in 0..LANES {
                let inner: f64 = a.iter().zip(&wide[first..]).map(|(&x, d)| f64::from(x) * d[l]).sum();
                total[l] += wide[first + r][l] * (2.0 * acc[r][l] + inner);
            }
        }
    }
    total
}
