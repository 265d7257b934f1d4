//! The levels of the uniform codecs, as the solver needs them: the nearest level to a weight, sixteen rows at once.

use super::lanes::{LANES, Lane};
use smoe_codec::Codec;

/// Adding and subtracting it rounds a float below 2^22 to an integer, ties to even, on every instruction set.
const ROUND: f32 = 12_582_912.0;

/// `2 m + 1` equally spaced levels from -1 to 1: weight = `(c - m) / m * s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    codec: Codec,
    m: f32,
}

impl Levels {
    /// The levels of a codec, where it is uniform and meant for experts.
    #[must_use]
    pub fn of(codec: Codec) -> Option<Self> {
        match codec {
            Codec::Q2 | Codec::Q4 => Some(Self { codec, m: ((1u32 << codec.bits()) - 1) as f32 / 2.0 }),
            Codec::Q8 => None,
        }
    }

    /// Whose levels these are.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The code of weight `w` under scale `s`, as the codec defines it; 0 under scale 0.
    #[inline(always)]
    pub(crate) fn code(self, w: f32, s: f32) -> f32 {
        let x = (w / s) * self.m + self.m;
        // A comparison with NaN (0 / 0) is false: code 0.
        let x = if x > 0.0 { x } else { 0.0 };
        let x = if x < 2.0 * self.m { x } else { 2.0 * self.m };
        (x + ROUND) - ROUND
    }

    /// The weight of a code under scale 1.
    #[inline(always)]
    pub(crate) fn level(self, code: f32) -> f32 {
        (code - self.m) / self.m
    }

    /// The levels nearest to `w` under the scales `s`.
    #[inline(always)]
    pub(crate) fn nearest(self, w: &Lane, s: &Lane) -> Lane {
        let mut out = Lane::ZERO;
        for l in 0..LANES {
            out.0[l] = self.level(self.code(w.0[l], s.0[l]));
        }
        out
    }

    /// The code whose level this is.
    pub(crate) fn code_of(self, level: f32) -> u8 {
        (level * self.m + self.m).round_ties_even() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoe_codec::{q2, q4};

    #[test]
    fn the_codes_are_those_of_the_codec() {
        for (codec, code) in [(Codec::Q2, q2::code as fn(f32, f32) -> u8), (Codec::Q4, q4::code)] {
            let levels = Levels::of(codec).expect("uniform");
            for i in -400..=400 {
                let (w, s) = (i as f32 / 100.0, 1.5);
                assert_eq!(levels.code(w, s) as u8, code(w, s), "{codec:?}: weight {w}");
                assert_eq!(levels.code_of(levels.level(levels.code(w, s))), code(w, s), "{codec:?}: weight {w}");
            }
            assert_eq!(levels.code(0.0, 0.0), 0.0);
        }
        assert!(Levels::of(Codec::Q8).is_none());
    }
}
