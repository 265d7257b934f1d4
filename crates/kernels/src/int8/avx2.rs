//! The integer products on AVX2: two registers for what AVX-512 has one for.

use super::activations::Plane;
use super::lanes::{Ints, Work};
use super::tile::{BLOCK, GROUPS};
use crate::isa::Avx2;
use core::arch::x86_64::*;

type Two = [__m256i; 2];

impl Ints for Avx2 {
    type F = [__m256; 2];
    type I = Two;
    type C = Two;
    type S = [f32; GROUPS];

    const ROWS: [usize; 2] = [1, 1];

    #[inline(always)]
    fn on<W: Work>(self, work: W) {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<W: Work>(ints: Avx2, work: W) {
            work.run(ints);
        }
        // SAFETY: an `Avx2` exists only where `detect` saw all of these features.
        unsafe { compiled(self, work) }
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8; BLOCK], ahead: usize) {
        // SAFETY: a prefetch of any address reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) }
    }

    #[inline(always)]
    fn zero(self) -> Self::F {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_setzero_ps(); 2] }
    }

    #[inline(always)]
    fn load(self, x: &[f32; GROUPS]) -> Self::F {
        // SAFETY: `self` proves AVX2; 16 floats are behind the reference, at any alignment.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x[8..].as_ptr())] }
    }

    #[inline(always)]
    fn store(self, v: Self::F) -> [f32; GROUPS] {
        let mut out = [0.0; GROUPS];
        // SAFETY: as in `load`.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out[8..].as_mut_ptr(), v[1]);
        }
        out
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: `self` proves FMA.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn halves(self, bytes: &[u8; 2 * GROUPS]) -> Self::F {
        // SAFETY: `self` proves F16C; 32 bytes are behind the reference, at any alignment.
        unsafe {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(bytes.as_ptr().cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(bytes[GROUPS..].as_ptr().cast())),
            ]
        }
    }

    #[inline(always)]
    fn spreadable(self, v: Self::F) -> Self::S {
        self.store(v)
    }

    #[inline(always)]
    fn spread<const PER: usize>(self, v: &Self::S, block: usize) -> Self::F {
        let v = &v[block * PER..][..PER];
        // SAFETY: `self` proves AVX2.
        unsafe {
            match PER {
                1 => [_mm256_set1_ps(v[0]); 2],
                2 => [_mm256_set1_ps(v[0]), _mm256_set1_ps(v[1])],
                _ => [
                    _mm256_set_m128(_mm_set1_ps(v[1]), _mm_set1_ps(v[0])),
                    _mm256_set_m128(_mm_set1_ps(v[3]), _mm_set1_ps(v[2])),
                ],
            }
        }
    }

    #[inline(always)]
    fn float(self, v: Two) -> Self::F {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])] }
    }

    #[inline(always)]
    fn bytes(self, block: &[u8; BLOCK]) -> Two {
        // SAFETY: `self` proves AVX2; 64 bytes are behind the reference, at any alignment.
        unsafe { [_mm256_loadu_si256(block.as_ptr().cast()), _mm256_loadu_si256(block[32..].as_ptr().cast())] }
    }

    #[inline(always)]
    fn nibbles(self, block: &[u8; BLOCK]) -> [Two; 2] {
        let [a, b] = self.bytes(block);
        // SAFETY: `self` proves AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            [
                [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)],
                [_mm256_and_si256(_mm256_srli_epi16::<4>(a), mask), _mm256_and_si256(_mm256_srli_epi16::<4>(b), mask)],
            ]
        }
    }

    #[inline(always)]
    fn pairs(self, block: &[u8; BLOCK]) -> [Two; 4] {
        let [a, b] = self.bytes(block);
        // SAFETY: `self` proves AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(3);
            [
                [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)],
                [_mm256_and_si256(_mm256_srli_epi16::<2>(a), mask), _mm256_and_si256(_mm256_srli_epi16::<2>(b), mask)],
                [_mm256_and_si256(_mm256_srli_epi16::<4>(a), mask), _mm256_and_si256(_mm256_srli_epi16::<4>(b), mask)],
                [_mm256_and_si256(_mm256_srli_epi16::<6>(a), mask), _mm256_and_si256(_mm256_srli_epi16::<6>(b), mask)],
            ]
        }
    }

    #[inline(always)]
    fn dot_planes<const P: usize>(self, codes: &[Two; P], x: &[Plane; P]) -> Two {
        // SAFETY: `self` proves AVX2; a plane has the 64 bytes that are read, on a line of its own. Four planes of two
        // products of at most 15 * 127 fit in 16 bits.
        unsafe {
            let mut sum = [_mm256_setzero_si256(); 2];
            for i in 0..P {
                let [low, high] = halves_of(&x[i]);
                sum[0] = _mm256_add_epi16(sum[0], _mm256_maddubs_epi16(codes[i][0], low));
                sum[1] = _mm256_add_epi16(sum[1], _mm256_maddubs_epi16(codes[i][1], high));
            }
            let ones = _mm256_set1_epi16(1);
            [_mm256_madd_epi16(sum[0], ones), _mm256_madd_epi16(sum[1], ones)]
        }
    }

    #[inline(always)]
    fn dot_signed(self, codes: Two, x: &Plane) -> Two {
        // SAFETY: `self` proves AVX2; a plane has the 64 bytes that are read. Two products of at most 128 * 127 fit in 16
        // bits.
        unsafe {
            let [low, high] = halves_of(x);
            let ones = _mm256_set1_epi16(1);
            let first = _mm256_maddubs_epi16(_mm256_abs_epi8(codes[0]), _mm256_sign_epi8(low, codes[0]));
            let second = _mm256_maddubs_epi16(_mm256_abs_epi8(codes[1]), _mm256_sign_epi8(high, codes[1]));
            [_mm256_madd_epi16(first, ones), _mm256_madd_epi16(second, ones)]
        }
    }
}

/// A plane in two registers.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn halves_of(x: &Plane) -> Two {
    // SAFETY: the caller's promise; a plane is 64 bytes on a line of its own.
    unsafe { [_mm256_load_si256(x.0.as_ptr().cast()), _mm256_load_si256(x.0[32..].as_ptr().cast())] }
}
