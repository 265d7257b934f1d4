//! One position: negative log-likelihood, most likely id, divergence from a reference. Sums in f64.

/// What one position says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// -ln p(target), nats.
    pub(crate) nll: f64,
    /// The most likely id; the smallest of equals.
    pub(crate) argmax: usize,
    pub(crate) against: Option<Against>,
}

/// The same position against the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Against {
    /// -ln p(target) of the reference.
    pub(crate) nll: f64,
    /// KL(reference || candidate), nats.
    pub(crate) kld: f64,
    /// Whether both have one most likely id.
    pub(crate) same: bool,
}

/// The arm whose logits are not all finite.
pub(crate) type NotFinite = &'static str;

/// Largest logit, its first place, and ln of the sum of exponentials above it.
struct Shape {
    max: f64,
    argmax: usize,
    log_sum: f64,
}

/// Scores one row of logits, `[vocab]`, for the id that followed.
pub(crate) fn score(candidate: &[f32], reference: Option<&[f32]>, target: usize) -> Result<Score, NotFinite> {
    let own = shape(candidate).ok_or("candidate")?;
    let nll = |logits: &[f32], shape: &Shape| shape.log_sum - (f64::from(logits[target]) - shape.max);
    let against = match reference {
        None => None,
        Some(logits) => {
            let other = shape(logits).ok_or("reference")?;
            let mean: f64 = logits.iter().zip(candidate).fold(0.0, |sum, (r, c)| {
                let (r, c) = (f64::from(*r) - other.max, f64::from(*c) - own.max);
                sum + (r - other.log_sum).exp() * (r - c)
            });
            let kld = (mean - other.log_sum + own.log_sum).max(0.0); // Below zero only by rounding.
            Some(Against { nll: nll(logits, &other), kld, same: own.argmax == other.argmax })
        }
    };
    Ok(Score { nll: nll(candidate, &own), argmax: own.argmax, against })
}

/// `None` where a logit is not finite.
fn shape(logits: &[f32]) -> Option<Shape> {
    let (mut argmax, mut max) = (0, f32::NEG_INFINITY);
    for (index, logit) in logits.iter().enumerate() {
        if !logit.is_finite() {
            return None;
        }
        if *logit > max {
            (argmax, max) = (index, *logit);
        }
    }
    let max = f64::from(max);
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - max).exp()).sum();
    Some(Shape { max, argmax, log_sum: sum.ln() })
}
