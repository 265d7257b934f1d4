//! The joint refit of the group scales of a row: a small symmetric system, solved in f64.

/// The scales that minimise `s' m s - 2 b' s` for one row, `m` being `[n, n]` with its lower half filled.
///
/// A scale of 0 in `old` belongs to a group of zeros and stays. A scale that comes out not positive or not finite keeps
/// its old value, and the others are solved again with it fixed. Returns the scales and how many were kept so.
pub(crate) fn refit(m: &[f64], b: &[f64], old: &[f32]) -> (Vec<f32>, usize) {
    let n = b.len();
    let mut fixed: Vec<bool> = old.iter().map(|&s| s == 0.0).collect();
    let zeros = fixed.iter().filter(|&&f| f).count();
    loop {
        let free: Vec<usize> = (0..n).filter(|&k| !fixed[k]).collect();
        let kept = n - free.len() - zeros;
        let Some(solved) = solve_free(m, b, old, (&free, &fixed)) else { return (old.to_vec(), kept + free.len()) };
        let rejected: Vec<usize> =
            free.iter().zip(&solved).filter(|(_, s)| !(s.is_finite() && **s > 0.0)).map(|(&k, _)| k).collect();
        if rejected.is_empty() {
            let mut scales = old.to_vec();
            for (&k, &s) in free.iter().zip(&solved) {
                scales[k] = s as f32;
            }
            return (scales, kept);
        }
        for k in rejected {
            fixed[k] = true;
        }
    }
}

/// The free scales, the others fixed at their old values; `None` where the system is singular.
fn solve_free(m: &[f64], b: &[f64], old: &[f32], (free, fixed): (&[usize], &[bool])) -> Option<Vec<f64>> {
    let n = b.len();
    let at = |i: usize, j: usize| m[i.max(j) * n + i.min(j)];
    let size = free.len();
    let mean = free.iter().map(|&k| at(k, k)).sum::<f64>() / size.max(1) as f64;
    let mut lower = vec![0.0; size * size];
    let mut x = vec![0.0; size];
    for (i, &k) in free.iter().enumerate() {
        x[i] = b[k] - (0..n).filter(|&j| fixed[j]).map(|j| at(k, j) * f64::from(old[j])).sum::<f64>();
        for (j, &l) in free[..=i].iter().enumerate() {
            lower[i * size + j] = at(k, l);
        }
        // Two groups with proportional columns would make the system singular.
        lower[i * size + i] += 1e-9 * mean;
    }
    for i in 0..size {
        for j in 0..=i {
            let known: f64 = (0..j).map(|t| lower[i * size + t] * lower[j * size + t]).sum();
            let rest = lower[i * size + j] - known;
            if i == j {
                if rest.is_nan() || rest <= 0.0 {
                    return None;
                }
                lower[i * size + i] = rest.sqrt();
            } else {
                lower[i * size + j] = rest / lower[j * size + j];
            }
        }
        let known: f64 = (0..i).map(|t| lower[i * size + t] * x[t]).sum();
        x[i] = (x[i] - known) / lower[i * size + i];
    }
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|t| lower[t * size + i] * x[t]).sum();
        x[i] = (x[i] - known) / lower[i * size + i];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solves_the_system() {
        let (scales, kept) = refit(&[4.0, 0.0, 1.0, 3.0], &[9.0, 7.0], &[1.0, 1.0]);
        assert_eq!(kept, 0);
        for (got, want) in scales.iter().zip([20.0 / 11.0, 19.0 / 11.0]) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
    }

    #[test]
    fn keeps_a_rejected_scale_and_solves_the_rest_with_it() {
        // The second scale would be negative: with it at 2, the first is (9 - 1 * 2) / 4.
        let (scales, kept) = refit(&[4.0, 0.0, 1.0, 3.0], &[9.0, -7.0], &[1.0, 2.0]);
        assert_eq!((kept, scales[1]), (1, 2.0));
        assert!((scales[0] - 1.75).abs() < 1e-6);
    }

    #[test]
    fn leaves_groups_of_zeros() {
        let (scales, kept) = refit(&[0.0, 0.0, 0.0, 2.0], &[0.0, 3.0], &[0.0, 1.0]);
        assert_eq!((kept, scales), (0, vec![0.0, 1.5]));
    }
}
