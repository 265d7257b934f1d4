//! The gated activations over many tokens: the exponential by a polynomial, so that loops become vector code.

use smoe_kernels::{Compiled, Isa, compiled_for};
use smoe_model::spec::Activation;

/// `gate[i] = act(gate[i], up[i])`, within 1e-6 of the exact value, relative.
pub(crate) fn activate(isa: Isa, act: Activation, gate: &mut [f32], up: &[f32]) {
    compiled_for(isa, Activate { act, gate, up });
}

struct Activate<'a> {
    act: Activation,
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Compiled for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Self { act, gate, up } = self;
        match act {
            Activation::SwiGlu => {
                for (g, u) in gate.iter_mut().zip(up) {
                    *g = *g * sigmoid(*g) * u;
                }
            }
            Activation::ClampedSwiGlu { limit, alpha } => {
                for (g, u) in gate.iter_mut().zip(up) {
                    // A NaN stays one: `min` would drop it.
                    let gate = if *g > limit { limit } else { *g };
                    *g = (u.clamp(-limit, limit) + 1.0) * gate * sigmoid(alpha * gate);
                }
            }
        }
    }
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `e^x`: `2^k * e^r` with `|r| <= ln 2 / 2`, the second factor a polynomial (Cephes `expf`). Clamped to ±87; NaN stays.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const LIMIT: f32 = 87.0;
    let x = if x > LIMIT { LIMIT } else { x };
    let x = if x < -LIMIT { -LIMIT } else { x };
    let shifted = x * core::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let r = x - k * LN2_HIGH - k * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    (p * r * r + r + 1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_exact_to_a_few_ulps() {
        for i in -8600..=8600 {
            let x = i as f32 / 100.0;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got / want - 1.0).abs() < 5e-7, "e^{x}: {got}, {want}");
        }
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn the_activations_follow_their_formulas() {
        let (gate, up) = ([-9.0f32, -1.0, 0.0, 0.5, 3.0, 9.0], [1.0f32, 2.0, 3.0, -0.5, 8.0, -8.0]);
        for isa in Isa::available() {
            let mut swiglu = gate;
            activate(isa, Activation::SwiGlu, &mut swiglu, &up);
            let mut clamped = gate;
            activate(isa, Activation::ClampedSwiGlu { limit: 7.0, alpha: 1.702 }, &mut clamped, &up);
            for i in 0..gate.len() {
                let (g, u) = (f64::from(gate[i]), f64::from(up[i]));
                let want = g / (1.0 + (-g).exp()) * u;
                assert!((f64::from(swiglu[i]) - want).abs() <= 1e-6 * want.abs(), "{}: {g}", isa.name());
                let (g, u) = (g.min(7.0), u.clamp(-7.0, 7.0));
                let want = (u + 1.0) * g / (1.0 + (-1.702 * g).exp());
                assert!((f64::from(clamped[i]) - want).abs() <= 2e-6 * want.abs(), "{}: {g}", isa.name());
            }
        }
    }
}
