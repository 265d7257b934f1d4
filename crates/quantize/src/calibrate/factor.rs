//! The upper factor `U` of `A^-1 = U^T U` without an inversion: reverse rows and columns, factor, invert the triangle,
//! reverse again. In f64.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{self, LltError};
use faer::linalg::triangular_inverse::invert_lower_triangular;
use faer::{Accum, Mat, MatMut, MatRef, Par};

/// `U`, upper, for a symmetric positive definite `a` (`[cols, cols]`).
///
/// # Errors
/// The column at which `a` is not positive definite.
pub(crate) fn upper_factor(a: &[f32], cols: usize) -> Result<Mat<f64>, usize> {
    let mut lower = Mat::from_fn(cols, cols, |i, j| f64::from(a[(cols - 1 - i) * cols + cols - 1 - j]));
    let params = Default::default();
    let scratch = factor::cholesky_in_place_scratch::<f64>(cols, Par::Seq, params);
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    factor::cholesky_in_place(lower.as_mut(), Default::default(), Par::Seq, stack, params)
        .map_err(|LltError::NonPositivePivot { index }| cols - 1 - index.min(cols - 1))?;
    let mut inverse = Mat::zeros(cols, cols);
    invert_lower_triangular(inverse.as_mut(), lower.as_ref(), Par::Seq);
    Ok(Mat::from_fn(cols, cols, |i, j| if i <= j { inverse[(cols - 1 - i, cols - 1 - j)] } else { 0.0 }))
}

/// `U` as the sweep reads it: row-major f32.
pub(crate) fn narrow(u: &Mat<f64>) -> Vec<f32> {
    let cols = u.ncols();
    (0..cols * cols).map(|i| u[(i / cols, i % cols)] as f32).collect()
}

/// `w c A^-1` with `A^-1 = U^T U`: `w` is `[rows, cols]`, `c` is `[cols, cols]`, both row-major.
pub(crate) fn corrected(w: &[f32], c: &[f32], u: &Mat<f64>) -> Vec<f32> {
    let cols = u.ncols();
    let rows = w.len() / cols;
    let wide = |x: &[f32]| Mat::from_fn(x.len() / cols, cols, |i, j| f64::from(x[i * cols + j]));
    let (w, c) = (wide(w), wide(c));
    let (mut x, mut y) = (Mat::zeros(rows, cols), Mat::zeros(rows, cols));
    let product = |out: MatMut<'_, f64>, a: MatRef<'_, f64>, b: MatRef<'_, f64>| {
        faer::linalg::matmul::matmul(out, Accum::Replace, a, b, 1.0, Par::Seq);
    };
    product(x.as_mut(), w.as_ref(), c.as_ref());
    product(y.as_mut(), x.as_ref(), u.transpose());
    product(x.as_mut(), y.as_ref(), u.as_ref());
    (0..rows * cols).map(|i| x[(i / cols, i % cols)] as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_multiplies_to_the_inverse() {
        let (cols, a) = (3, [4.0, 1.0, 0.5, 1.0, 3.0, 0.25, 0.5, 0.25, 2.0]);
        let u = upper_factor(&a, cols).expect("positive definite");
        // A U^T U = I.
        let a = Mat::from_fn(cols, cols, |i, j| f64::from(a[i * cols + j]));
        let unit = &a * u.transpose() * &u;
        for i in 0..cols {
            for j in 0..cols {
                let want = if i == j { 1.0 } else { 0.0 };
                assert!((unit[(i, j)] - want).abs() < 1e-12, "{i} {j}: {}", unit[(i, j)]);
            }
        }
        assert!(u[(1, 0)] == 0.0 && u[(2, 1)] == 0.0);
    }

    #[test]
    fn an_indefinite_matrix_names_a_column() {
        assert!(upper_factor(&[1.0, 2.0, 2.0, 1.0], 2).is_err());
        assert!(upper_factor(&[f32::NAN, 0.0, 0.0, 1.0], 2).is_err());
    }
}
