//! The conformance matrix: instruction set x format x shape x alignment x tokens, against the definition in f64; and
//! the promise that a sum does not depend on the call it is made in.

use super::*;
use smoe_codec::smoke::Gaussian;
use smoe_codec::{decode_row, encode_row, half};

const FORMATS: [&str; 6] = ["f32", "f16", "bf16", "q2", "q4", "q8"];

/// Row lengths: within a group, around one, real ones that are no multiple of 64, more than a decoded tile.
const COLS: [usize; 11] = [1, 15, 40, 63, 64, 65, 96, 256, 320, 1000, 2736];

/// A packed random matrix and its weights as they decode. `skew` bytes before it make it start at an odd address.
struct Sample {
    format: &'static str,
    rows: usize,
    cols: usize,
    skew: usize,
    bytes: Vec<u8>,
    scales: Vec<u8>,
    weights: Vec<f32>,
}

impl Sample {
    fn new(rng: &mut Gaussian, format: &'static str, [rows, cols]: [usize; 2], skew: usize) -> Self {
        let raw: Vec<f32> = rng.take(rows * cols).map(|w| w * 0.02).collect();
        let (mut bytes, mut scales, mut weights) = (vec![0xFF; skew], vec![0xFF; skew], vec![0.0; rows * cols]);
        for (w, out) in raw.chunks(cols).zip(weights.chunks_mut(cols)) {
            if let Some(codec) = Codec::from_name(format) {
                let (mut c, mut s) = (vec![0; codec.code_bytes(cols)], vec![0; codec.scale_bytes(cols)]);
                encode_row(codec, w, &mut c, &mut s).expect("finite weights");
                decode_row(codec, &c, &s, out);
                bytes.extend(c);
                scales.extend(s);
                continue;
            }
            for (&w, out) in w.iter().zip(out) {
                let (packed, value) = match format {
                    "f32" => (w.to_le_bytes().to_vec(), w),
                    "f16" => (half::f32_to_f16(w).to_le_bytes().to_vec(), half::f16_to_f32(half::f32_to_f16(w))),
                    _ => (half::f32_to_bf16(w).to_le_bytes().to_vec(), half::bf16_to_f32(half::f32_to_bf16(w))),
                };
                bytes.extend(packed);
                *out = value;
            }
        }
        Self { format, rows, cols, skew, bytes, scales, weights }
    }

    fn matrix(&self) -> Matrix<'_> {
        let (bytes, scales) = (&self.bytes[self.skew..], &self.scales[self.skew..]);
        let data = match self.format {
            "f32" => Data::F32(bytes),
            "f16" => Data::F16(bytes),
            "bf16" => Data::Bf16(bytes),
            name => Data::Coded { codec: Codec::from_name(name).expect("a codec"), codes: bytes, scales },
        };
        Matrix::new(self.rows, self.cols, data).expect("lengths fit")
    }
}

fn product(isa: Isa, matrix: &Matrix<'_>, rows: Range<usize>, x: &[f32], n: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; rows.len() * n];
    matmul(isa, matrix, rows, x, n, &mut out);
    out
}

fn check(isa: Isa, sample: &Sample, x: &[f32], n: usize) {
    let cols = sample.cols;
    let got = product(isa, &sample.matrix(), 0..sample.rows, x, n);
    for (r, w) in sample.weights.chunks(cols).enumerate() {
        for (t, x) in x.chunks(cols).enumerate() {
            let terms = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
            let (want, magnitude) = terms.fold((0.0, 0.0), |(sum, abs), term| (sum + term, abs + term.abs()));
            // The bound of any order of summation in f32: each of `cols` steps rounds by half an epsilon at most.
            let bound = cols as f64 * f64::from(f32::EPSILON) * magnitude;
            let found = f64::from(got[r * n + t]);
            let case = format!("{} {} {}x{cols} skew {} n {n}", isa.name(), sample.format, sample.rows, sample.skew);
            assert!((found - want).abs() <= bound, "{case}: row {r} token {t}: want {want}, got {found}");
        }
    }
}

#[test]
fn every_isa_and_format_is_within_the_bound() {
    let mut rng = Gaussian::new(21);
    let mut cases = 0;
    for isa in Isa::available() {
        for format in FORMATS {
            for cols in COLS {
                for (rows, skew) in [(1, 0), (2, 1), (3, 3), (5, 0), (9, 7)] {
                    let sample = Sample::new(&mut rng, format, [rows, cols], skew);
                    for n in [1, 2, 3, 4, 5, 6, 7, 8, 9, 66, 131].into_iter().filter(|&n| n < 10 || rows == 5) {
                        let padded: Vec<f32> = rng.by_ref().take(n * cols + 1).collect();
                        check(isa, &sample, &padded[skew % 2..][..n * cols], n);
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("{cases} cases on {:?}", Isa::available().iter().map(|isa| isa.name()).collect::<Vec<_>>());
}

/// Any row range and any number of tokens give the same bits as one row and one token alone.
#[test]
fn sums_do_not_depend_on_the_call() {
    let mut rng = Gaussian::new(22);
    for isa in Isa::available() {
        for format in FORMATS {
            for cols in [40, 64, 96, 1000] {
                let (rows, n) = (11, 70);
                let sample = Sample::new(&mut rng, format, [rows, cols], 0);
                let x: Vec<f32> = rng.by_ref().take(n * cols).collect();
                let matrix = sample.matrix();
                let alone = |r: usize, t: usize| product(isa, &matrix, r..r + 1, &x[t * cols..][..cols], 1)[0];
                let alone: Vec<f32> = (0..rows * n).map(|i| alone(i / n, i % n)).collect();
                for (rows, tokens) in
                    [(0..11, 0..70), (0..11, 3..4), (1..6, 2..9), (4..11, 1..70), (10..11, 0..65), (3..3, 0..2)]
                {
                    let got =
                        product(isa, &matrix, rows.clone(), &x[tokens.start * cols..tokens.end * cols], tokens.len());
                    let want = rows.clone().flat_map(|r| tokens.clone().map(move |t| r * n + t)).map(|i| alone[i]);
                    let same = got.iter().zip(want).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{} {format} {cols} columns, rows {rows:?}, tokens {tokens:?}", isa.name());
                }
            }
        }
    }
}

/// Random shapes, ranges and contents from a printed seed.
#[test]
fn random_shapes_are_within_the_bound() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut rng = Gaussian::new(seed);
    for _ in 0..120 {
        let mut below = |n: u64| (rng.bits() % n) as usize;
        let (format, rows, cols, n) = (FORMATS[below(6)], 1 + below(20), 1 + below(700), 1 + below(30));
        let sample = Sample::new(&mut rng, format, [rows, cols], 0);
        let x: Vec<f32> = rng.by_ref().take(n * cols).collect();
        for isa in Isa::available() {
            check(isa, &sample, &x, n);
        }
    }
}

/// Fused instruction sets agree bit for bit, since they sum in one order.
#[test]
fn vector_sets_agree_exactly() {
    let mut rng = Gaussian::new(23);
    let fused: Vec<Isa> = Isa::available().into_iter().filter(|&isa| isa != Isa::Scalar).collect();
    for format in FORMATS {
        let sample = Sample::new(&mut rng, format, [7, 1000], 0);
        let x: Vec<f32> = rng.by_ref().take(9 * 1000).collect();
        let results: Vec<_> = fused.iter().map(|&isa| product(isa, &sample.matrix(), 0..7, &x, 9)).collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{format}");
    }
}

#[test]
fn zero_groups_add_nothing_and_nothing_is_read_beyond_a_row() {
    for isa in Isa::available() {
        for codec in Codec::ALL {
            // All codes set under a zero scale; the second row has a scale of NaN, which must stay there.
            let codes = vec![0xFF; 2 * codec.code_bytes(40)];
            let scales = [0, 0, 0xFF, 0x7F];
            let matrix = Matrix::new(2, 40, Data::Coded { codec, codes: &codes, scales: &scales }).expect("fits");
            let got = product(isa, &matrix, 0..2, &[1.0; 80], 2);
            assert!(got[..2] == [0.0, 0.0] && got[2..].iter().all(|v| v.is_nan()), "{} {codec:?}: {got:?}", isa.name());
        }
    }
}

/// Every kind of scale, subnormal ones too, multiplies as the number that it is.
#[test]
fn subnormal_scales_multiply_as_numbers() {
    let mut rng = Gaussian::new(24);
    let (rows, cols) = (3, 130);
    for codec in Codec::ALL {
        let codes: Vec<u8> = (0..rows * codec.code_bytes(cols)).map(|_| rng.bits() as u8).collect();
        for bits in [0x0001u16, 0x0002, 0x01FF, 0x03FF, 0x0400, 0x7BFF] {
            let scales = bits.to_le_bytes().repeat(rows * codec.groups(cols));
            let x: Vec<f32> = rng.by_ref().take(2 * cols).collect();
            let mut weights = vec![0.0; rows * cols];
            let packed = codes.chunks(codec.code_bytes(cols)).zip(scales.chunks(codec.scale_bytes(cols)));
            packed.zip(weights.chunks_mut(cols)).for_each(|((c, s), out)| decode_row(codec, c, s, out));
            let sample = Sample { format: codec.name(), rows, cols, skew: 0, bytes: codes.clone(), scales, weights };
            Isa::available().into_iter().for_each(|isa| check(isa, &sample, &x, 2));
        }
    }
}

#[test]
fn empty_products() {
    for isa in Isa::available() {
        let matrix = Matrix::new(3, 2, Data::F32(&[0; 24])).expect("fits");
        assert!(product(isa, &matrix, 0..3, &[], 0).is_empty());
        let matrix = Matrix::new(3, 0, Data::F32(&[])).expect("fits");
        assert_eq!(product(isa, &matrix, 0..3, &[], 2), [0.0; 6]);
    }
}

#[test]
#[should_panic(expected = "rows 1..4 of a matrix of 3")]
fn rows_beyond_the_matrix() {
    let matrix = Matrix::new(3, 2, Data::F32(&[0; 24])).expect("fits");
    matmul(Isa::detect(), &matrix, 1..4, &[0.0; 2], 1, &mut [0.0; 3]);
}

#[test]
#[should_panic(expected = "activations of 2 tokens and 2 columns")]
fn short_activations() {
    let matrix = Matrix::new(3, 2, Data::F32(&[0; 24])).expect("fits");
    matmul(Isa::detect(), &matrix, 0..3, &[0.0; 3], 2, &mut [0.0; 6]);
}
