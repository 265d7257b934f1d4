//! The fast encoder against the definition, byte for byte.

use super::*;
use smoe_codec::encode_row;
use smoe_codec::smoke::Gaussian;

const COLS: [usize; 14] = [1, 2, 3, 7, 40, 63, 64, 65, 96, 127, 256, 1000, 1088, 2736];

type Encoded = Result<(Vec<u8>, Vec<u8>), RowError>;

fn outputs(codec: Codec, rows: usize, cols: usize) -> (Vec<u8>, Vec<u8>) {
    (vec![0xAA; rows * codec.code_bytes(cols)], vec![0xAA; rows * codec.scale_bytes(cols)])
}

fn definition(codec: Codec, w: &[f32], cols: usize) -> Encoded {
    let (mut codes, mut scales) = outputs(codec, w.len() / cols, cols);
    let parts = codes.chunks_mut(codec.code_bytes(cols)).zip(scales.chunks_mut(codec.scale_bytes(cols)));
    for (row, (w, (codes, scales))) in w.chunks(cols).zip(parts).enumerate() {
        encode_row(codec, w, codes, scales).map_err(|error| RowError { row, error })?;
    }
    Ok((codes, scales))
}

fn fast(isa: Isa, codec: Codec, w: &[f32], cols: usize) -> Encoded {
    let (mut codes, mut scales) = outputs(codec, w.len() / cols, cols);
    encode_rows(isa, codec, w, cols, &mut codes, &mut scales).map(|()| (codes, scales))
}

fn fast_bf16(isa: Isa, codec: Codec, w: &[f32], cols: usize) -> Encoded {
    let (mut codes, mut scales) = outputs(codec, w.len() / cols, cols);
    let bytes: Vec<u8> = w.iter().flat_map(|&w| half::f32_to_bf16(w).to_le_bytes()).collect();
    encode_rows_bf16(isa, codec, &bytes, cols, &mut codes, &mut scales).map(|()| (codes, scales))
}

/// Equal, where a NaN equals itself.
fn same(a: &Encoded, b: &Encoded) -> bool {
    a == b || matches!((a, b), (Err(a), Err(b)) if a.to_string() == b.to_string())
}

fn check(w: &[f32], cols: usize, what: &str) {
    let narrow: Vec<f32> = w.iter().map(|&w| half::bf16_to_f32(half::f32_to_bf16(w))).collect();
    for codec in Codec::ALL {
        let (want, want_narrow) = (definition(codec, w, cols), definition(codec, &narrow, cols));
        for isa in Isa::available() {
            let case = format!("{} {} {} columns, {what}", isa.name(), codec.name(), cols);
            assert!(same(&fast(isa, codec, w, cols), &want), "{case}");
            assert!(same(&fast_bf16(isa, codec, w, cols), &want_narrow), "{case}, bf16");
        }
    }
}

/// Weights of one kind: by size and shape of the distribution.
fn weights(rng: &mut Gaussian, kind: usize, len: usize) -> Vec<f32> {
    const SIZES: [f32; 8] = [0.02, 1.0, 1e-4, 1e-6, 3e-8, 1e-9, 9000.0, 1e-38];
    let size = SIZES[kind % SIZES.len()];
    let mut shape = |w: f32| match kind / SIZES.len() {
        0 => w,
        1 => w * w * w,
        2 => 0.7f32.copysign(w), // Ties: all splits and candidates alike.
        3 => {
            if w > 0.5 {
                w
            } else {
                0.0f32.copysign(w)
            }
        } // Many zeros of both signs.
        4 => (w * 3.0).round_ties_even() / 8.0, // Codes at ties.
        _ => f32::from_bits(rng.bits() as u32 & 0x3FFF_FFFF), // Any magnitude below 2.
    };
    let raw: Vec<f32> = Gaussian::new(kind as u64 * 1000 + len as u64).take(len).collect();
    raw.into_iter().map(|w| shape(w) * size).collect()
}

#[test]
fn the_bytes_are_the_definitions() {
    let mut rng = Gaussian::new(31);
    for cols in COLS {
        for kind in 0..48 {
            check(&weights(&mut rng, kind, cols * 5), cols, &format!("kind {kind}"));
        }
    }
}

/// Short groups of few distinct tiny weights: scales are subnormal and coarse, so that candidates and splits tie exactly.
#[test]
fn ties_go_to_the_first() {
    let mut rng = Gaussian::new(32);
    for cols in [1, 2, 3, 4, 5] {
        for unit in [-24, -25, -26] {
            let w: Vec<f32> = (0..4000 * cols).map(|_| ((rng.bits() % 65) as f32 - 32.0) * 2f32.powi(unit)).collect();
            check(&w, cols, &format!("multiples of 2^{unit}"));
        }
    }
}

/// Random shapes and bit patterns, NaN and infinity among them now and then, from a printed seed.
#[test]
fn random_bits_give_the_definitions_bytes_or_error() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut rng = Gaussian::new(seed);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..400 {
        let (cols, rows) = (1 + (rng.bits() % 300) as usize, 1 + (rng.bits() % 6) as usize);
        let mut w: Vec<f32> = (0..rows * cols).map(|_| f32::from_bits(rng.bits() as u32 & 0xC5FF_FFFF)).collect();
        if rng.bits() & 1 == 0 {
            let at = (rng.bits() % w.len() as u64) as usize;
            w[at] = f32::from_bits(rng.bits() as u32 | 0x4780_0000);
        }
        check(&w, cols, &format!("seed {seed}"));
        if definition(Codec::Q4, &w, cols).is_ok() { good += 1 } else { bad += 1 }
    }
    assert!(good > 50 && bad > 50, "{good} encoded, {bad} refused");
}

/// A weight at fault in any place gives the definition's error: the first one, with its row and column.
#[test]
fn faults_are_the_definitions() {
    for cols in [1, 63, 64, 130, 1100] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65520.0, -1e30, f32::MAX] {
            for at in [0, cols - 1, cols, 2 * cols + cols / 2] {
                let mut w = vec![0.25; 3 * cols];
                w[at] = bad;
                w[3 * cols - 1] = if at == 3 * cols - 1 { bad } else { f32::NAN };
                check(&w, cols, &format!("{bad} at {at}"));
            }
        }
    }
    let error = fast(Isa::detect(), Codec::Q2, &[0.0, 1.0, 2.0, f32::NAN], 2).expect_err("refused");
    assert_eq!(error.to_string(), "row 1, column 1: expected a finite weight, found NaN; this checkpoint is damaged");
}

#[test]
fn nothing_gives_nothing() {
    for isa in Isa::available() {
        assert_eq!(fast(isa, Codec::Q4, &[], 5), Ok((vec![], vec![])));
        assert_eq!(encode_rows(isa, Codec::Q2, &[], 0, &mut [], &mut []), Ok(()));
    }
}

#[test]
#[should_panic(expected = "q4 codes of 2 x 3")]
fn short_codes() {
    let _ = encode_rows(Isa::detect(), Codec::Q4, &[0.0; 6], 3, &mut [0; 3], &mut [0; 4]);
}

#[test]
#[should_panic(expected = "weights in rows of 4 columns")]
fn ragged_weights() {
    let _ = encode_rows(Isa::detect(), Codec::Q4, &[0.0; 6], 4, &mut [0; 3], &mut [0; 4]);
}
