//! The vectors on AVX-512: one register each. A table look-up decodes 16 codes at once.

use super::{LANES, STEPS, Simd, Work};
use crate::isa::Avx512;
use core::arch::x86_64::*;
use smoe_codec::{GROUP, q2, q4};

/// The level of a 2-bit code whose index has the next code above it: the look-up needs no mask.
static Q2_LEVELS: [f32; 16] = {
    let mut levels = [0.0; 16];
    let mut i = 0;
    while i < 16 {
        levels[i] = q2::LEVELS[i & 3];
        i += 1;
    }
    levels
};

/// Bits to shift, so that each lane's code comes lowest.
static Q2_SHIFTS: [i32; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];
static Q4_SHIFTS: [i32; 16] = [0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28];

impl Simd for Avx512 {
    type V = __m512;

    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn on<W: Work>(self, work: W) {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
        fn compiled<W: Work>(simd: Avx512, work: W) {
            work.run(simd);
        }
        // SAFETY: an `Avx512` exists only where `detect` saw all of these features.
        unsafe { compiled(self, work) }
    }

    #[inline(always)]
    fn zero(self) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> __m512 {
        // SAFETY: `self` proves AVX-512; 16 floats are behind the reference, at any alignment.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m512, out: &mut [f32; LANES]) {
        // SAFETY: as in `load`.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn fma(self, w: __m512, x: __m512, sum: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_fmadd_ps(w, x, sum) }
    }

    #[inline(always)]
    fn f32(self, bytes: &[u8; 4 * GROUP]) -> [__m512; STEPS] {
        let steps = bytes.as_chunks::<64>().0;
        let mut group = [self.zero(); STEPS];
        for (v, step) in group.iter_mut().zip(steps) {
            // SAFETY: `self` proves AVX-512; each chunk has the 64 bytes that are read, at any alignment.
            *v = unsafe { _mm512_loadu_ps(step.as_ptr().cast()) };
        }
        group
    }

    #[inline(always)]
    fn f16(self, bytes: &[u8; 2 * GROUP]) -> [__m512; STEPS] {
        let steps = bytes.as_chunks::<32>().0;
        let mut group = [self.zero(); STEPS];
        for (v, step) in group.iter_mut().zip(steps) {
            // SAFETY: `self` proves AVX-512; each chunk has the 32 bytes that are read, at any alignment.
            *v = unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(step.as_ptr().cast())) };
        }
        group
    }

    #[inline(always)]
    fn bf16(self, bytes: &[u8; 2 * GROUP]) -> [__m512; STEPS] {
        let steps = bytes.as_chunks::<32>().0;
        let mut group = [self.zero(); STEPS];
        for (v, step) in group.iter_mut().zip(steps) {
            // SAFETY: `self` proves AVX-512; each chunk has the 32 bytes that are read, at any alignment.
            *v = unsafe {
                let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(step.as_ptr().cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
            };
        }
        group
    }

    #[inline(always)]
    fn q2(self, codes: &[u8; GROUP / 4], scale: u16) -> [__m512; STEPS] {
        let words = codes.as_chunks::<4>().0;
        let mut group = [self.zero(); STEPS];
        // SAFETY: `self` proves AVX-512; the statics have the 64 bytes that are read.
        unsafe {
            let table = _mm512_mul_ps(_mm512_loadu_ps(Q2_LEVELS.as_ptr()), splat(scale));
            let shifts = _mm512_loadu_si512(Q2_SHIFTS.as_ptr().cast());
            for (v, word) in group.iter_mut().zip(words) {
                let word = _mm512_set1_epi32(i32::from_le_bytes(*word));
                *v = _mm512_permutexvar_ps(_mm512_srlv_epi32(word, shifts), table);
            }
        }
        group
    }

    #[inline(always)]
    fn q4(self, codes: &[u8; GROUP / 2], scale: u16) -> [__m512; STEPS] {
        let mut group = [self.zero(); STEPS];
        // SAFETY: `self` proves AVX-512; `codes` has the 32 bytes that are read, at any alignment; the statics have 64.
        unsafe {
            let table = _mm512_mul_ps(_mm512_loadu_ps(q4::LEVELS.as_ptr()), splat(scale));
            let shifts = _mm512_loadu_si512(Q4_SHIFTS.as_ptr().cast());
            let words = _mm512_castsi256_si512(_mm256_loadu_si256(codes.as_ptr().cast()));
            for (j, v) in group.iter_mut().enumerate() {
                // Two words hold 16 codes: the first for the low lanes, the second for the high ones.
                let (low, high) = (2 * j as i32, 2 * j as i32 + 1);
                let which = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xFF00, high);
                let word = _mm512_permutexvar_epi32(which, words);
                *v = _mm512_permutexvar_ps(_mm512_srlv_epi32(word, shifts), table);
            }
        }
        group
    }

    #[inline(always)]
    fn q8(self, codes: &[u8; GROUP], scale: u16) -> [__m512; STEPS] {
        let steps = codes.as_chunks::<16>().0;
        let mut group = [self.zero(); STEPS];
        // SAFETY: `self` proves AVX-512; each chunk has the 16 bytes that are read, at any alignment.
        unsafe {
            let scale = splat(scale);
            for (v, step) in group.iter_mut().zip(steps) {
                let wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(step.as_ptr().cast()));
                *v = _mm512_mul_ps(_mm512_cvtepi32_ps(wide), scale);
            }
        }
        group
    }
}

/// An f16 in every lane.
///
/// # Safety
/// The CPU has AVX-512 F and AVX2.
#[inline(always)]
unsafe fn splat(scale: u16) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(scale as i16)) }
}
