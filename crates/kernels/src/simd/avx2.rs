//! The vectors on AVX2: two registers each, so that sums run in the same order as on AVX-512.

use super::{LANES, STEPS, Simd, Work};
use crate::isa::Avx2;
use core::arch::x86_64::*;
use smoe_codec::{GROUP, q2, q4};

/// The level of a 2-bit code whose index has the low bit of the next code above it: the look-up needs no mask.
static Q2_LEVELS: [f32; 8] = [
    q2::LEVELS[0],
    q2::LEVELS[1],
    q2::LEVELS[2],
    q2::LEVELS[3],
    q2::LEVELS[0],
    q2::LEVELS[1],
    q2::LEVELS[2],
    q2::LEVELS[3],
];

type Pair = [__m256; 2];

impl Simd for Avx2 {
    type V = Pair;

    const TILE_ROWS: usize = 2;

    #[inline(always)]
    fn on<W: Work>(self, work: W) {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<W: Work>(simd: Avx2, work: W) {
            work.run(simd);
        }
        // SAFETY: an `Avx2` exists only where `detect` saw all of these features.
        unsafe { compiled(self, work) }
    }

    #[inline(always)]
    fn zero(self) -> Pair {
        // SAFETY: `self` proves AVX2.
        unsafe { [_mm256_setzero_ps(); 2] }
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Pair {
        // SAFETY: `self` proves AVX2; 16 floats are behind the reference, at any alignment.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, v: Pair, out: &mut [f32; LANES]) {
        // SAFETY: as in `load`.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        }
    }

    #[inline(always)]
    fn fma(self, w: Pair, x: Pair, sum: Pair) -> Pair {
        // SAFETY: `self` proves FMA.
        unsafe { [_mm256_fmadd_ps(w[0], x[0], sum[0]), _mm256_fmadd_ps(w[1], x[1], sum[1])] }
    }

    #[inline(always)]
    fn f32(self, bytes: &[u8; 4 * GROUP]) -> [Pair; STEPS] {
        let halves = bytes.as_chunks::<32>().0;
        let mut group = [self.zero(); STEPS];
        for (v, half) in group.as_flattened_mut().iter_mut().zip(halves) {
            // SAFETY: `self` proves AVX2; each chunk has the 32 bytes that are read, at any alignment.
            *v = unsafe { _mm256_loadu_ps(half.as_ptr().cast()) };
        }
        group
    }

    #[inline(always)]
    fn f16(self, bytes: &[u8; 2 * GROUP]) -> [Pair; STEPS] {
        let halves = bytes.as_chunks::<16>().0;
        let mut group = [self.zero(); STEPS];
        for (v, half) in group.as_flattened_mut().iter_mut().zip(halves) {
            // SAFETY: `self` proves F16C; each chunk has the 16 bytes that are read, at any alignment.
            *v = unsafe { _mm256_cvtph_ps(_mm_loadu_si128(half.as_ptr().cast())) };
        }
        group
    }

    #[inline(always)]
    fn bf16(self, bytes: &[u8; 2 * GROUP]) -> [Pair; STEPS] {
        let halves = bytes.as_chunks::<16>().0;
        let mut group = [self.zero(); STEPS];
        for (v, half) in group.as_flattened_mut().iter_mut().zip(halves) {
            // SAFETY: `self` proves AVX2; each chunk has the 16 bytes that are read, at any alignment.
            *v = unsafe {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(half.as_ptr().cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            };
        }
        group
    }

    #[inline(always)]
    fn q2(self, codes: &[u8; GROUP / 4], scale: u16) -> [Pair; STEPS] {
        let words = codes.as_chunks::<4>().0;
        let mut group = [self.zero(); STEPS];
        // SAFETY: `self` proves AVX2 and F16C; the static has the 32 bytes that are read.
        unsafe {
            let table = _mm256_mul_ps(_mm256_loadu_ps(Q2_LEVELS.as_ptr()), splat(scale));
            let shifts =
                [_mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), _mm256_setr_epi32(16, 18, 20, 22, 24, 26, 28, 30)];
            for ([low, high], word) in group.iter_mut().zip(words) {
                let word = _mm256_set1_epi32(i32::from_le_bytes(*word));
                *low = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word, shifts[0]));
                *high = _mm256_permutevar8x32_ps(table, _mm256_srlv_epi32(word, shifts[1]));
            }
        }
        group
    }

    #[inline(always)]
    fn q4(self, codes: &[u8; GROUP / 2], scale: u16) -> [Pair; STEPS] {
        let words = codes.as_chunks::<4>().0;
        let mut group = [self.zero(); STEPS];
        // SAFETY: `self` proves AVX2 and F16C; the levels have the 64 bytes that are read.
        unsafe {
            let scale = splat(scale);
            let low = _mm256_mul_ps(_mm256_loadu_ps(q4::LEVELS.as_ptr()), scale);
            let high = _mm256_mul_ps(_mm256_loadu_ps(q4::LEVELS.as_ptr().add(8)), scale);
            let shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
            for (v, word) in group.as_flattened_mut().iter_mut().zip(words) {
                let code = _mm256_srlv_epi32(_mm256_set1_epi32(i32::from_le_bytes(*word)), shifts);
                // The look-ups take three bits of a code, the blend its fourth as a sign.
                let (below, above) = (_mm256_permutevar8x32_ps(low, code), _mm256_permutevar8x32_ps(high, code));
                *v = _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(code)));
            }
        }
        group
    }

    #[inline(always)]
    fn q8(self, codes: &[u8; GROUP], scale: u16) -> [Pair; STEPS] {
        let halves = codes.as_chunks::<8>().0;
        let mut group = [self.zero(); STEPS];
        // SAFETY: `self` proves AVX2 and F16C; each chunk has the 8 bytes that are read, at any alignment.
        unsafe {
            let scale = splat(scale);
            for (v, half) in group.as_flattened_mut().iter_mut().zip(halves) {
                let wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(half.as_ptr().cast()));
                *v = _mm256_mul_ps(_mm256_cvtepi32_ps(wide), scale);
            }
        }
        group
    }
}

/// An f16 in every lane.
///
/// # Safety
/// The CPU has AVX2 and F16C.
#[inline(always)]
unsafe fn splat(scale: u16) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_set1_epi16(scale as i16)) }
}
