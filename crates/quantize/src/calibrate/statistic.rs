//! From sums to the matrix that the solver minimises under: checks, shrinkage to the prior, damping.

use super::error::StatisticFault;
use super::moments::Moments;

/// Relative difference within which two entries count as equal: real statistics never agree so far.
const SAME: f64 = 1e-6;

/// The second moment of what a matrix sees, on a scale of its own, and the cross moment beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistic {
    /// Input columns.
    pub cols: usize,
    /// `[cols, cols]`, symmetric, both halves, not damped.
    pub a: Vec<f32>,
    /// `[cols, cols]`: row `i` is the unquantised stream's column `i`.
    pub cross: Option<Vec<f32>>,
    /// Weight of the expert's own statistic.
    pub own_share: f64,
    /// Effective tokens of it.
    pub effective: f64,
    /// Its tokens.
    pub tokens: u64,
}

impl Statistic {
    /// `own_share * own / m(own) + (1 - own_share) * prior / m(prior)` with `own_share = n_e / (n_e + kappa * cols)`, m the
    /// mean of the diagonal. Without a prior the own sums alone, without own tokens the prior alone.
    #[must_use]
    pub fn shrunk(own: &Moments, prior: Option<&Moments>, kappa: f64) -> Self {
        let (cols, effective) = (own.cols(), own.effective());
        let own_share = match prior {
            None => 1.0,
            Some(_) if effective == 0.0 => 0.0,
            Some(_) => effective / (effective + kappa * cols as f64),
        };
        let factor = |m: &Moments, share: f64| share / m.mean_diagonal().max(1e-30);
        let (own_factor, prior_factor) = (factor(own, own_share), prior.map_or(0.0, |p| factor(p, 1.0 - own_share)));
        let mix = |own: f64, prior: Option<f64>| (own * own_factor + prior.unwrap_or(0.0) * prior_factor) as f32;
        let mut a = vec![0.0; cols * cols];
        for i in 0..cols {
            for j in i..cols {
                let at = i * cols + j;
                a[at] = mix(own.second[at], prior.map(|p| p.second[at]));
                a[j * cols + i] = a[at];
            }
        }
        let prior_cross = prior.and_then(|p| p.cross.as_ref());
        let cross = own
            .cross
            .as_ref()
            .map(|own| own.iter().enumerate().map(|(at, &own)| mix(own, prior_cross.map(|p| p[at]))).collect());
        Self { cols, a, cross, own_share, effective, tokens: own.tokens }
    }

    /// The diagonal.
    pub(crate) fn diagonal(&self) -> Vec<f32> {
        (0..self.cols).map(|i| self.a[i * self.cols + i]).collect()
    }

    /// Mean of the diagonal.
    pub(crate) fn mean_diagonal(&self) -> f32 {
        (self.diagonal().iter().map(|&x| f64::from(x)).sum::<f64>() / self.cols.max(1) as f64) as f32
    }

    /// `a + damping * m * I`.
    pub(crate) fn damped(&self, damping: f32) -> Vec<f32> {
        let add = damping * self.mean_diagonal();
        let mut a = self.a.clone();
        for i in 0..self.cols {
            a[i * self.cols + i] += add;
        }
        a
    }
}

/// Refuses sums that no real activations give; sums without tokens, and all zeros, pass.
///
/// # Errors
/// What is wrong with them.
pub fn check_moments(moments: &Moments) -> Result<(), StatisticFault> {
    let cols = moments.cols();
    let finite = |values: &[f64]| values.iter().all(|x| x.is_finite());
    if !finite(&moments.second) || !finite(&[moments.weight]) || !moments.cross.as_deref().is_none_or(finite) {
        return Err(StatisticFault::NotFinite);
    }
    let at = |i: usize, j: usize| moments.second[i * cols + j];
    if let Some(column) = (0..cols).find(|&i| at(i, i) < 0.0) {
        return Err(StatisticFault::Negative { column, value: at(column, column) });
    }
    let largest = (0..cols).map(|i| at(i, i)).fold(0.0, f64::max);
    if cols < 2 || largest == 0.0 {
        return Ok(());
    }
    let near = |x: f64, y: f64| (x - y).abs() <= SAME * largest;
    if !(0..cols).all(|i| near(at(i, i), largest)) {
        return Ok(());
    }
    let all_off_diagonal = |value: f64| (0..cols).all(|i| (i + 1..cols).all(|j| near(at(i, j), value)));
    if all_off_diagonal(largest) {
        return Err(StatisticFault::Constant(largest));
    }
    if all_off_diagonal(0.0) {
        return Err(StatisticFault::Identity(largest));
    }
    Ok(())
}

/// Refuses the sums of all tokens of a layer where every token has the same input: a matrix of rank one.
///
/// # Errors
/// [`StatisticFault::OneInput`].
pub fn check_inputs_differ(moments: &Moments) -> Result<(), StatisticFault> {
    let cols = moments.cols();
    let at = |i: usize, j: usize| moments.second[i * cols + j];
    let pivot = (0..cols).max_by(|&i, &j| at(i, i).total_cmp(&at(j, j)));
    let Some(p) = pivot.filter(|&p| moments.tokens > 1 && cols > 1 && at(p, p) > 0.0) else { return Ok(()) };
    let row = |i: usize| at(i.min(p), i.max(p));
    // x x^T: every entry follows from the pivot's row.
    let one = (0..cols).all(|i| (at(i, i) - row(i) * row(i) / at(p, p)).abs() <= SAME * at(p, p));
    if one { Err(StatisticFault::OneInput(moments.tokens)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::moments::Inputs;
    use super::*;

    fn moments(x: &[f32], cols: usize) -> Moments {
        let mut moments = Moments::new(cols, false);
        moments.add(Inputs { x, reference: None, weights: None });
        moments
    }

    #[test]
    fn broken_hooks_are_told_from_activations() {
        let identity = moments(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], 3);
        assert_eq!(check_moments(&identity), Err(StatisticFault::Identity(1.0)));
        let constant = moments(&[2.0, 2.0, 2.0, 3.0, 3.0, 3.0], 3);
        assert_eq!(check_moments(&constant), Err(StatisticFault::Constant(13.0)));
        let nan = moments(&[1.0, f32::NAN, 0.0], 3);
        assert_eq!(check_moments(&nan), Err(StatisticFault::NotFinite));
        let real = moments(&[1.0, -0.5, 0.25, 0.5, 1.5, 1.0], 3);
        assert_eq!(check_moments(&real), Ok(()));
        assert_eq!(check_inputs_differ(&real), Ok(()));
        let same = moments(&[1.0, -0.5, 0.25, 1.0, -0.5, 0.25], 3);
        assert_eq!(check_inputs_differ(&same), Err(StatisticFault::OneInput(2)));
        assert_eq!(check_moments(&moments(&[], 3)), Ok(()));
        assert_eq!(check_moments(&moments(&[0.0, 0.0, 0.0], 3)), Ok(()));
    }

    /// One token: its own statistic counts for 1 / (1 + 3 d).
    #[test]
    fn shrinkage_by_hand() {
        let (own, prior) = (moments(&[2.0, 0.0], 2), moments(&[0.0, 1.0, 1.0, 1.0], 2));
        let mixed = Statistic::shrunk(&own, Some(&prior), 3.0);
        assert!((mixed.own_share - 1.0 / 7.0).abs() < 1e-12);
        // own / m = [[2, 0], [0, 0]], prior / m = [[1, 1], [1, 2]] / 1.5.
        for (got, want) in mixed.a.iter().zip([2.0 + 4.0, 4.0, 4.0, 8.0].map(|x| x / 7.0)) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        let none = Statistic::shrunk(&moments(&[], 2), Some(&prior), 3.0);
        assert_eq!((none.own_share, none.tokens), (0.0, 0));
        assert!((none.a[3] - 2.0 / 1.5).abs() < 1e-6);
        let damped = none.damped(0.5);
        assert!((damped[0] - (none.a[0] + 0.5)).abs() < 1e-6 && damped[1] == none.a[1]);
    }
}
