//! The codecs against their definition, written out again in f64 and bit by bit.

use super::*;
use smoke::Gaussian;

/// Row lengths: within a group, around one, the real ones that are no multiple of 64.
const COLS: [usize; 14] = [1, 2, 3, 5, 40, 63, 64, 65, 96, 127, 128, 130, 1000, 2736];

fn encode(codec: Codec, w: &[f32]) -> Result<(Vec<u8>, Vec<u8>), EncodeError> {
    // Dirty outputs: padding must be written, not found.
    let (mut codes, mut scales) = (vec![0xAA; codec.code_bytes(w.len())], vec![0xAA; codec.scale_bytes(w.len())]);
    encode_row(codec, w, &mut codes, &mut scales)?;
    Ok((codes, scales))
}

fn round_trip(codec: Codec, w: &[f32]) -> Vec<f32> {
    let (codes, scales) = encode(codec, w).expect("encodes");
    let mut out = vec![f32::NAN; w.len()];
    decode_row(codec, &codes, &scales, &mut out);
    out
}

fn squared_error(w: &[f32], decoded: impl IntoIterator<Item = f32>) -> f64 {
    w.iter().zip(decoded).map(|(&w, d)| (f64::from(w) - f64::from(d)).powi(2)).sum()
}

fn uniform(codec: Codec) -> uniform::Uniform {
    uniform::Uniform::new(codec.bits())
}

/// The error of the best of the grid's candidates, decoded with the stored scale.
fn grid_error(codec: Codec, group: &[f32]) -> f64 {
    let levels = uniform(codec);
    let absmax = group.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let errors = q4::SHARES.iter().map(|share| {
        let s = half::f16_to_f32(half::f32_to_f16(share * absmax));
        let decoded = group.iter().map(|&w| if s == 0.0 { 0.0 } else { levels.weight(levels.code(w, s), s) });
        squared_error(group, decoded)
    });
    errors.fold(f64::INFINITY, f64::min)
}

/// Groups of many kinds: Gaussian, heavy-tailed, constant, sparse, on a bf16 grid, tiny (subnormal scales), large.
fn groups(rng: &mut Gaussian, len: usize) -> Vec<Vec<f32>> {
    let normal: Vec<f32> = rng.take(len).collect();
    let map = |f: &dyn Fn(f32) -> f32| normal.iter().map(|&w| f(w)).collect();
    vec![
        map(&|w| w * 0.02),
        map(&|w| w * w * w * 0.01),
        map(&|w| 0.3f32.copysign(w)),
        map(&|w| if w > 1.0 { w } else { 0.0 }),
        map(&|w| half::bf16_to_f32(half::f32_to_bf16(w))),
        map(&|w| w * 1e-6),
        map(&|w| w * 3e-8),
        map(&|w| w * 8000.0),
        map(&|w| w * 1e-30),
    ]
}

#[test]
fn no_scale_of_the_grid_is_better() {
    let mut rng = Gaussian::new(11);
    for len in [1, 2, 7, 40, 63, 64] {
        for _ in 0..40 {
            for group in groups(&mut rng, len) {
                for codec in [Codec::Q2, Codec::Q4] {
                    let (found, grid) = (squared_error(&group, round_trip(codec, &group)), grid_error(codec, &group));
                    // Searches sum in f32 (q4) or take thirds exactly (q2), decoding rounds to f32.
                    let slack = 1e-5 * grid + 1e-12 * squared_error(&group, vec![0.0; len]);
                    assert!(found <= grid + slack, "{codec:?}: {found} > {grid} of the grid, group {group:?}");
                }
            }
        }
    }
}

/// No f16 at all is better for q2, and q8 is at least as good as the plain rule.
#[test]
fn q2_is_optimal_and_q8_no_worse_than_absmax() {
    let mut rng = Gaussian::new(12);
    for group in (0..12).flat_map(|_| groups(&mut rng, 64)) {
        let absmax = group.iter().fold(0.0f32, |m, w| m.max(w.abs()));
        let found = squared_error(&group, round_trip(Codec::Q2, &group));
        let levels = uniform(Codec::Q2);
        for bits in (1..half::F16_INFINITY).filter(|&bits| half::f16_to_f32(bits) <= 3.0 * absmax) {
            let s = half::f16_to_f32(bits);
            let error = squared_error(&group, group.iter().map(|&w| levels.weight(levels.code(w, s), s)));
            assert!(found <= error * (1.0 + 1e-5) + 1e-20, "{found} > {error} at {s}");
        }
        let s = half::f16_to_f32(half::f32_to_f16(absmax / 127.0));
        let plain = group.iter().map(|&w| if s == 0.0 { 0.0 } else { f32::from(q8::code(w, s)) * s });
        assert!(squared_error(&group, round_trip(Codec::Q8, &group)) <= squared_error(&group, plain) * (1.0 + 1e-5));
    }
}

/// The code rule and the packing, from the text of the design and with other arithmetic for the bits.
#[test]
fn codes_follow_the_rule_and_padding_is_zero() {
    let mut rng = Gaussian::new(13);
    for cols in COLS {
        let w: Vec<f32> = rng.by_ref().take(cols).collect();
        for (codec, m) in [(Codec::Q2, 1.5f32), (Codec::Q4, 7.5)] {
            let (codes, scales) = encode(codec, &w).expect("encodes");
            let mut decoded = vec![0.0; cols];
            decode_row(codec, &codes, &scales, &mut decoded);
            let mut stream = codes.iter().flat_map(|&byte| (0..8).map(move |bit| byte >> bit & 1));
            for (i, &w) in w.iter().enumerate() {
                let found = (0..codec.bits()).fold(0, |c, bit| c | stream.next().expect("a code") << bit);
                let at = i / GROUP * 2;
                let s = half::f16_to_f32(u16::from_le_bytes([scales[at], scales[at + 1]]));
                let want = ((w / s) * m + m).round_ties_even().max(0.0).min(2.0 * m);
                assert_eq!(f32::from(found), want, "{codec:?}, column {i} of {cols}");
                assert_eq!(decoded[i], (f32::from(found) - m) / m * s);
            }
            assert!(stream.all(|bit| bit == 0), "{codec:?}: padding of {cols} columns");
        }
    }
}

#[test]
fn zero_groups_decode_to_positive_zeros() {
    for codec in Codec::ALL {
        for cols in COLS {
            for tiny in [0.0, -0.0, 1e-12, -1e-30, f32::from_bits(1)] {
                let w = vec![tiny; cols];
                let (codes, scales) = encode(codec, &w).expect("encodes");
                assert!(codes.iter().chain(&scales).all(|&b| b == 0), "{codec:?} {cols} {tiny}");
                assert!(round_trip(codec, &w).iter().all(|w| w.to_bits() == 0), "{codec:?} {cols} {tiny}");
            }
            // Codes that no encoder writes under a zero scale still decode to zeros.
            let (codes, scales) = (vec![0x5A; codec.code_bytes(cols)], vec![0; codec.scale_bytes(cols)]);
            let mut out = vec![1.0; cols];
            decode_row(codec, &codes, &scales, &mut out);
            assert!(out.iter().all(|w| w.to_bits() == 0));
        }
    }
}

/// A zero group beside a full one keeps its own scale.
#[test]
fn groups_are_independent() {
    let mut rng = Gaussian::new(14);
    for codec in Codec::ALL {
        let mut w: Vec<f32> = rng.by_ref().take(200).collect();
        w[64..128].fill(0.0);
        let out = round_trip(codec, &w);
        for (g, group) in w.chunks(GROUP).enumerate() {
            assert_eq!(round_trip(codec, group), out[g * GROUP..][..group.len()], "{codec:?} group {g}");
        }
    }
}

#[test]
fn weights_that_cannot_be_stored_are_refused_by_column() {
    for codec in Codec::ALL {
        for cols in [1, 64, 65, 130] {
            for col in [0, cols / 2, cols - 1] {
                for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut w = vec![0.5; cols];
                    w[col] = value;
                    let error = encode(codec, &w).expect_err("refused");
                    assert!(matches!(error, EncodeError::NotFinite { col: c, value: v }
                        if c == col && v.to_bits() == value.to_bits()));
                }
                let limit = if codec == Codec::Q8 { half::F16_OVERFLOW * 127.0 } else { half::F16_OVERFLOW };
                let mut w = vec![0.5; cols];
                w[col] = -limit;
                assert_eq!(encode(codec, &w), Err(EncodeError::Overflow { col, value: -limit }), "{codec:?}");
                w[col] = -limit.next_down();
                assert!(encode(codec, &w).is_ok(), "{codec:?} stores {}", w[col]);
            }
        }
    }
    let text = EncodeError::NotFinite { col: 7, value: f32::NAN }.to_string();
    assert_eq!(text, "column 7: expected a finite weight, found NaN; this checkpoint is damaged");
}

#[test]
fn a_weight_at_full_scale_survives() {
    for codec in Codec::ALL {
        for w in [1.0f32, -3.0, 65504.0, 2.0f32.powi(-20)] {
            let out = round_trip(codec, &[w]);
            assert!((out[0] - w).abs() <= w.abs() * 1e-3, "{codec:?}: {w} became {}", out[0]);
        }
    }
}

#[test]
fn sizes_and_names() {
    for codec in Codec::ALL {
        assert_eq!(Codec::from_name(codec.name()), Some(codec));
        assert_eq!(Codec::from_name(&format!("smoe-{}", codec.name())), Some(codec));
        assert_eq!(Codec::from_id(codec.id()), Some(codec));
        assert_eq!(codec.bits_per_weight(), codec.bits() as f64 + 0.25);
    }
    assert_eq!((Codec::from_name("q5"), Codec::from_id(0)), (None, None));
    let sizes = |codec: Codec, cols| (codec.code_bytes(cols), codec.scale_bytes(cols));
    assert_eq!(sizes(Codec::Q2, 65), (17, 4));
    assert_eq!(sizes(Codec::Q4, 65), (33, 4));
    assert_eq!(sizes(Codec::Q8, 1000), (1000, 32));
    assert_eq!(sizes(Codec::Q2, 0), (0, 0));
}

#[test]
fn dot_is_the_sum_of_decoded_products() {
    let mut rng = Gaussian::new(15);
    for codec in Codec::ALL {
        for cols in COLS {
            let (w, x): (Vec<f32>, Vec<f32>) = (rng.by_ref().take(cols).collect(), rng.by_ref().take(cols).collect());
            let (codes, scales) = encode(codec, &w).expect("encodes");
            let want: f64 = round_trip(codec, &w).iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            assert!((f64::from(dot_row(codec, &codes, &scales, &x)) - want).abs() <= want.abs() * 1e-6);
        }
    }
}

#[test]
fn damaged_scales_are_found() {
    let scale = |s: f32| half::f32_to_f16(s).to_le_bytes();
    assert_eq!(bad_scale(&[scale(0.0), scale(65504.0)].concat()), None);
    for bad in [f32::INFINITY, f32::NAN, -1.0, -0.0] {
        assert_eq!(bad_scale(&[scale(1.0), scale(bad)].concat()), Some(1), "{bad}");
    }
}

/// Ties of the code rule, by hand: a weight halfway between two levels takes the even code, from above and from below.
#[test]
fn ties_go_to_the_even_code() {
    let q2 = [(-2.0, 0), (-1.0, 0), (0.0, 2), (1.0, 2), (2.0, 3)];
    assert!(q2.iter().all(|&(w, code)| q2::code(w, 1.5) == code && q2::code(w / 2.0, 0.75) == code));
    let q4 = [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14, 15];
    for (w, code) in (-8..=8).zip(q4) {
        let w = w as f32;
        assert_eq!((q4::code(w, 7.5), q4::code(w / 8.0, 0.9375)), (code, code), "{w}");
    }
    let q8 = [(0.5, 0), (1.5, 2), (2.5, 2), (3.5, 4), (126.5, 126), (127.5, 127)];
    for (w, code) in q8 {
        assert_eq!((q8::code(w, 1.0), q8::code(-w, 1.0), q8::code(3.0 * w, 3.0)), (code, -code, code), "{w}");
    }
}

/// Scales by hand: the smallest and the largest subnormal, the smallest normal and the largest f16. A scale is a number;
/// nothing shifts its exponent.
#[test]
fn extreme_scales_decode_as_numbers() {
    let unit = 2.0f32.powi(-24);
    let scales = [(0x0001u16, unit), (0x03FF, 1023.0 * unit), (0x0400, 1024.0 * unit), (0x7BFF, 65504.0)];
    let rows: [(Codec, &[u8], [f32; 4]); 3] = [
        (Codec::Q2, &[0b11_10_01_00], [-1.0, -1.0 / 3.0, 1.0 / 3.0, 1.0]),
        (Codec::Q4, &[0xF0, 0x87], [-1.0, 1.0, -1.0 / 15.0, 1.0 / 15.0]),
        (Codec::Q8, &[1, 0xFF, 127, 0x81], [1.0, -1.0, 127.0, -127.0]),
    ];
    for (bits, scale) in scales {
        for (codec, codes, levels) in rows {
            let mut out = [0.0; 4];
            decode_row(codec, codes, &bits.to_le_bytes(), &mut out);
            assert_eq!(out, levels.map(|level| level * scale), "{codec:?}, scale {bits:#06x}");
        }
    }
}
