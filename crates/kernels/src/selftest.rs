//! What every path of the kernels gives for the same product: for `smoe doctor`, on the machine where it matters.

use crate::{Data, Int8, Isa, Matrix, encode_rows, matmul, matmul_int8};
use smoe_codec::Codec;
use smoe_codec::smoke::Gaussian;

/// One path of one codec's products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tested {
    /// The instruction set.
    pub isa: Isa,
    /// The codec.
    pub codec: Codec,
    /// The largest difference of the exact product from that of the definition, of the largest output.
    pub exact_difference: f64,
    /// Whether eight-bit activations give the definition's bits.
    pub same_bits: bool,
    /// How far eight-bit activations are from exact ones, of the outputs' norm: [`crate::DRIFT`] at most.
    pub drift: f64,
}

/// How far an instruction set's exact product may be from the definition's, of the largest output: sums of 2,048 products
/// in another order.
pub const EXACT: f64 = 1e-5;

impl Tested {
    /// Whether all of it is as it must be.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.exact_difference <= EXACT && self.same_bits && self.drift <= f64::from(crate::DRIFT)
    }
}

const ROWS: usize = 32;
const COLS: usize = 2048;
const TOKENS: usize = 3;

/// Multiplies Gaussian matrices on every path that this machine has.
///
/// # Panics
/// If the encoder refuses weights that are finite.
#[must_use]
pub fn run() -> Vec<Tested> {
    let weights: Vec<f32> = Gaussian::new(29).take(ROWS * COLS).map(|w| w * 0.02).collect();
    let x: Vec<f32> = Gaussian::new(31).take(TOKENS * COLS).collect();
    let mut tested = Vec::new();
    for codec in Codec::ALL {
        let (mut codes, mut scales) = (vec![0; ROWS * codec.code_bytes(COLS)], vec![0; ROWS * codec.scale_bytes(COLS)]);
        encode_rows(Isa::Scalar, codec, &weights, COLS, &mut codes, &mut scales).expect("Gaussian weights are finite");
        let data = Data::Coded { codec, codes: &codes, scales: &scales };
        let matrix = Matrix::new(ROWS, COLS, data).expect("encoded by rows");
        let exact = |isa| {
            let mut out = vec![0.0; ROWS * TOKENS];
            matmul(isa, &matrix, 0..ROWS, &x, TOKENS, &mut out);
            out
        };
        let rounded = |isa| {
            let mut out = vec![0.0; ROWS * TOKENS];
            matmul_int8(isa, &matrix, 0..ROWS, &Int8::new(isa, codec, &x, TOKENS, COLS), &mut out);
            out
        };
        let (definition, bits) = (exact(Isa::Scalar), rounded(Isa::Scalar));
        let most = definition.iter().fold(0.0f64, |most, v| most.max(f64::from(v.abs())));
        for isa in Isa::paths() {
            let (one, other) = (exact(isa), rounded(isa));
            let off = one.iter().zip(&definition).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
            tested.push(Tested {
                isa,
                codec,
                exact_difference: off / most,
                same_bits: other.iter().zip(&bits).all(|(a, b)| a.to_bits() == b.to_bits()),
                drift: norm(other.iter().zip(&one).map(|(a, b)| a - b)) / norm(one.iter().copied()),
            });
        }
    }
    tested
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_this_machine_passes() {
        let tested = run();
        assert_eq!(tested.len(), Isa::paths().len() * Codec::ALL.len());
        for it in tested {
            assert!(it.passed(), "{it:?}");
        }
    }

    #[test]
    fn each_fault_fails() {
        let good = run()[0];
        assert!(!Tested { exact_difference: 2.0 * EXACT, ..good }.passed());
        assert!(!Tested { same_bits: false, ..good }.passed());
        assert!(!Tested { drift: 2.0 * f64::from(crate::DRIFT), ..good }.passed());
        assert!(!Tested { drift: f64::NAN, ..good }.passed());
    }
}
