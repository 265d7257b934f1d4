//! Scalar f32 functions in a shape that compilers turn into vector code, each summing in one fixed order.

/// Independent partial sums of a reduction.
const LANES: usize = 16;

/// `sum a[i] * b[i]`: 16 partial sums over the whole blocks, added pairwise, then the tail in order.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    a_tail.iter().zip(b_tail).fold(fold_lanes(lanes), |sum, (a, b)| sum + a * b)
}

/// `sum f(x[i])`, in the order of [`dot`].
pub(crate) fn sum_of(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (blocks, tail) = x.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for block in blocks {
        for (lane, &x) in lanes.iter_mut().zip(block) {
            *lane += f(x);
        }
    }
    tail.iter().fold(fold_lanes(lanes), |sum, &x| sum + f(x))
}

fn fold_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `out += factor * x`.
pub(crate) fn axpy(factor: f32, x: &[f32], out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += factor * x;
    }
}

/// `e^x` within 2 units in the last place; 0 below -87.3, at most 2.4e38. A NaN stays one.
///
/// Own and not the library's, so that it inlines into loops and gives the same bits on every machine (Cephes'
/// polynomial after reduction by multiples of ln 2).
#[inline]
pub(crate) fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits.
    let clamped = x.clamp(-87.3, 88.37);
    let shifted = clamped * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = clamped - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 5e-1;
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(127).wrapping_shl(23));
    let y = (p * r * r + r + 1.0) * power;
    if x < -87.3 { 0.0 } else { y }
}

/// `1 / (1 + e^-x)`.
#[inline]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
#[inline]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `ln(1 + e^x)`.
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// Turns logits into probabilities in place.
pub(crate) fn softmax(x: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = exp(*x - max));
    let sum = sum_of(x, |x| x);
    x.iter_mut().for_each(|x| *x /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere() {
        let mut worst: f32 = 0.0;
        for i in -8700..=8800 {
            let x = i as f32 * 0.01 + 0.003;
            let want = f64::from(x).exp();
            worst = worst.max(((f64::from(exp(x)) - want) / want).abs() as f32);
        }
        assert!(worst < 2.5e-7, "relative error {worst}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::INFINITY) > 1e38 && exp(f32::NAN).is_nan());
    }

    #[test]
    fn reductions_reach_the_tail() {
        for n in [0, 1, 15, 16, 17, 40, 96] {
            let a: Vec<f32> = (0..n).map(|i| (i % 7) as f32 - 2.0).collect();
            let b: Vec<f32> = (0..n).map(|i| (i % 5) as f32).collect();
            assert_eq!(dot(&a, &b), a.iter().zip(&b).map(|(a, b)| a * b).sum::<f32>(), "{n}");
            assert_eq!(sum_of(&a, |x| x), a.iter().sum::<f32>(), "{n}");
        }
    }

    #[test]
    fn softmax_of_large_logits_is_finite() {
        let mut x = [1000.0, 1000.0, -1000.0];
        softmax(&mut x);
        assert_eq!(x, [0.5, 0.5, 0.0]);
    }
}
