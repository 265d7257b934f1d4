use super::*;
use smoe_codec::smoke::Gaussian;
use smoe_codec::{GROUP, encode_row};

struct Sample {
    codec: Codec,
    rows: usize,
    cols: usize,
    weights: Vec<f32>,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl Sample {
    fn new(codec: Codec, rows: usize, cols: usize, seed: u64) -> Self {
        let mut weights: Vec<f32> = Gaussian::new(seed).take(rows * cols).map(|w| w * 0.02).collect();
        let (mut codes, mut scales) = (vec![0; rows * codec.code_bytes(cols)], vec![0; rows * codec.scale_bytes(cols)]);
        for r in 0..rows {
            let codes = &mut codes[r * codec.code_bytes(cols)..][..codec.code_bytes(cols)];
            let scales = &mut scales[r * codec.scale_bytes(cols)..][..codec.scale_bytes(cols)];
            let row = &mut weights[r * cols..][..cols];
            encode_row(codec, row, codes, scales).expect("finite");
            smoe_codec::decode_row(codec, codes, scales, row);
        }
        Self { codec, rows, cols, weights, codes, scales }
    }

    fn matrix(&self) -> Matrix<'_> {
        let data = Data::Coded { codec: self.codec, codes: &self.codes, scales: &self.scales };
        Matrix::new(self.rows, self.cols, data).expect("encoded by rows")
    }

    fn product(&self, isa: Isa, x: &Int8) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.rows * x.tokens()];
        matmul_int8(isa, &self.matrix(), 0..self.rows, x, &mut out);
        out
    }
}

/// Columns: whole blocks, ragged ones, single groups, more than one row of scales.
const COLS: [usize; 14] = [1, 3, 40, 64, 96, 127, 128, 192, 256, 768, 1000, 1024, 1088, 2736];

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

/// Every instruction set, codec and shape: the bits of the definition.
#[test]
fn every_path_gives_the_definitions_bits() {
    let mut cases = 0;
    for codec in Codec::ALL {
        for cols in COLS {
            for (rows, n) in [(1, 1), (2, 3), (5, 1), (3, 4), (7, 9)] {
                let sample = Sample::new(codec, rows, cols, 7);
                let x: Vec<f32> = Gaussian::new(9).take(n * cols).collect();
                let wanted = {
                    let x = Int8::new(Isa::Scalar, codec, &x, n, cols);
                    bits(&sample.product(Isa::Scalar, &x))
                };
                for isa in Isa::paths() {
                    let x = Int8::new(isa, codec, &x, n, cols);
                    let found = bits(&sample.product(isa, &x));
                    assert_eq!(found, wanted, "{} {codec:?} {rows} x {cols}, {n} tokens", isa.name());
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases on {:?}", Isa::paths().iter().map(|isa| isa.name()).collect::<Vec<_>>());
}

/// The definition is the formula: against sums in f64 over the rounded activations.
#[test]
fn the_definition_is_the_formula() {
    for codec in Codec::ALL {
        for cols in COLS {
            let (rows, n) = (3, 2);
            let sample = Sample::new(codec, rows, cols, 3);
            let x: Vec<f32> = Gaussian::new(5).take(n * cols).map(|v| v * 3.0).collect();
            let found = sample.product(Isa::Scalar, &Int8::new(Isa::Scalar, codec, &x, n, cols));
            let rounded: Vec<f64> = x.chunks(cols).flat_map(|row| row.chunks(GROUP).flat_map(rounded)).collect();
            for r in 0..rows {
                for t in 0..n {
                    let pairs = || sample.weights[r * cols..][..cols].iter().zip(&rounded[t * cols..][..cols]);
                    let wanted: f64 = pairs().map(|(w, x)| f64::from(*w) * x).sum();
                    let magnitude: f64 = pairs().map(|(w, x)| (f64::from(*w) * x).abs()).sum();
                    let off = (f64::from(found[r * n + t]) - wanted).abs();
                    // The offset's two sums are up to 15 times what remains of them.
                    assert!(
                        off <= 40.0 * 1.2e-7 * magnitude + 1e-12,
                        "{codec:?} {cols}: off by {off:e} of {magnitude:e}"
                    );
                }
            }
        }
    }
}

fn rounded(group: &[f32]) -> Vec<f64> {
    let scale = group.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0;
    let inverse = 1.0 / scale;
    group.iter().map(|v| f64::from((v * inverse).round_ties_even()) * f64::from(scale)).collect()
}

/// The named tolerance, on the shapes of released models.
#[test]
fn drift_is_within_its_tolerance() {
    for codec in Codec::ALL {
        for cols in [768, 2048, 4096] {
            let sample = Sample::new(codec, 64, cols, 11);
            let x: Vec<f32> = Gaussian::new(13).take(cols).collect();
            let mut exact = vec![0.0; sample.rows];
            crate::matmul(Isa::detect(), &sample.matrix(), 0..sample.rows, &x, 1, &mut exact);
            let isa = Isa::detect();
            let found = sample.product(isa, &Int8::new(isa, codec, &x, 1, cols));
            let square = |pairs: &mut dyn Iterator<Item = f32>| pairs.map(|d| f64::from(d * d)).sum::<f64>().sqrt();
            let off = square(&mut found.iter().zip(&exact).map(|(a, b)| a - b)) / square(&mut exact.iter().copied());
            println!("{codec:?} {cols}: {off:.2e}");
            assert!(off <= f64::from(DRIFT), "{codec:?} {cols}: {off:e}");
        }
    }
}

/// A row range, or a token beside others, changes no bit.
#[test]
fn sums_do_not_depend_on_the_call() {
    for codec in Codec::ALL {
        let (rows, cols, n) = (11, 1000, 7);
        let sample = Sample::new(codec, rows, cols, 17);
        let x: Vec<f32> = Gaussian::new(19).take(n * cols).collect();
        for isa in Isa::paths() {
            let whole = sample.product(isa, &Int8::new(isa, codec, &x, n, cols));
            for t in 0..n {
                let one = Int8::new(isa, codec, &x[t * cols..][..cols], 1, cols);
                for (from, to) in [(0, rows), (3, 4), (2, 9)] {
                    let mut out = vec![0.0; to - from];
                    matmul_int8(isa, &sample.matrix(), from..to, &one, &mut out);
                    let wanted: Vec<f32> = (from..to).map(|r| whole[r * n + t]).collect();
                    assert_eq!(bits(&out), bits(&wanted), "{} {codec:?}", isa.name());
                }
            }
        }
    }
}

/// Nothing that is no number is hidden, and groups of zeros add nothing.
#[test]
fn values_that_are_no_numbers_come_out() {
    for codec in Codec::ALL {
        let sample = Sample::new(codec, 4, 200, 23);
        for isa in Isa::paths() {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = vec![0.5; 2 * 200];
                x[200 + 130] = bad;
                let out = sample.product(isa, &Int8::new(isa, codec, &x, 2, 200));
                assert!(out.chunks(2).all(|row| row[0].is_finite() && row[1].is_nan()), "{} {codec:?}", isa.name());
            }
            let zeros = sample.product(isa, &Int8::new(isa, codec, &[0.0; 200], 1, 200));
            assert!(zeros.iter().all(|v| *v == 0.0), "{} {codec:?}", isa.name());
        }
    }
}
