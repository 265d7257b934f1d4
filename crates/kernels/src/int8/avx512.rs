//! The integer products on AVX-512, with and without its instruction for four products at once.

use super::activations::Plane;
use super::lanes::{Ints, Work};
use super::tile::{BLOCK, GROUPS};
use crate::isa::{Avx512, Vnni};
use core::arch::x86_64::*;

/// Lane `i` of row `block`: which of 16 floats, where `PER` of them fill a vector.
const fn spreads<const PER: usize>() -> [[i32; GROUPS]; GROUPS] {
    let mut all = [[0; GROUPS]; GROUPS];
    let mut block = 0;
    while block < GROUPS / PER {
        let mut i = 0;
        while i < GROUPS {
            all[block][i] = (block * PER + i / (GROUPS / PER)) as i32;
            i += 1;
        }
        block += 1;
    }
    all
}

static SPREAD_1: [[i32; GROUPS]; GROUPS] = spreads::<1>();
static SPREAD_2: [[i32; GROUPS]; GROUPS] = spreads::<2>();
static SPREAD_4: [[i32; GROUPS]; GROUPS] = spreads::<4>();

/// Implements [`Ints`] for a proof of AVX-512; `$dots` adds up four products of bytes in each lane.
macro_rules! avx512 {
    ($proof:ident, $features:literal, $dots:ident) => {
        impl Ints for $proof {
            type F = __m512;
            type I = __m512i;
            type C = __m512i;
            type S = __m512;

            const ROWS: [usize; 2] = [1, 2];

            #[inline(always)]
            fn on<W: Work>(self, work: W) {
                #[target_feature(enable = $features)]
                fn compiled<W: Work>(ints: $proof, work: W) {
                    work.run(ints);
                }
                // SAFETY: the proof exists only where `detect` saw all of these features.
                unsafe { compiled(self, work) }
            }

            #[inline(always)]
            fn prefetch(self, bytes: &[u8; BLOCK], ahead: usize) {
                // SAFETY: a prefetch of any address reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) }
            }

            #[inline(always)]
            fn zero(self) -> __m512 {
                // SAFETY: `self` proves AVX-512.
                unsafe { _mm512_setzero_ps() }
            }

            #[inline(always)]
            fn load(self, x: &[f32; GROUPS]) -> __m512 {
                // SAFETY: `self` proves AVX-512; 16 floats are behind the reference, at any alignment.
                unsafe { _mm512_loadu_ps(x.as_ptr()) }
            }

            #[inline(always)]
            fn store(self, v: __m512) -> [f32; GROUPS] {
                let mut out = [0.0; GROUPS];
                // SAFETY: as in `load`.
                unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
                out
            }

            #[inline(always)]
            fn mul(self, a: __m512, b: __m512) -> __m512 {
                // SAFETY: `self` proves AVX-512.
                unsafe { _mm512_mul_ps(a, b) }
            }

            #[inline(always)]
            fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
                // SAFETY: `self` proves AVX-512.
                unsafe { _mm512_fmadd_ps(a, b, c) }
            }

            #[inline(always)]
            fn halves(self, bytes: &[u8; 2 * GROUPS]) -> __m512 {
                // SAFETY: `self` proves AVX-512; 32 bytes are behind the reference, at any alignment.
                unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(bytes.as_ptr().cast())) }
            }

            #[inline(always)]
            fn spreadable(self, v: __m512) -> __m512 {
                v
            }

            #[inline(always)]
            fn spread<const PER: usize>(self, v: &__m512, block: usize) -> __m512 {
                let which = match PER {
                    1 => &SPREAD_1[block],
                    2 => &SPREAD_2[block],
                    _ => &SPREAD_4[block],
                };
                // SAFETY: `self` proves AVX-512; 16 integers are behind the reference.
                unsafe { _mm512_permutexvar_ps(_mm512_loadu_si512(which.as_ptr().cast()), *v) }
            }

            #[inline(always)]
            fn float(self, v: __m512i) -> __m512 {
                // SAFETY: `self` proves AVX-512.
                unsafe { _mm512_cvtepi32_ps(v) }
            }

            #[inline(always)]
            fn bytes(self, block: &[u8; BLOCK]) -> __m512i {
                // SAFETY: `self` proves AVX-512; 64 bytes are behind the reference, at any alignment.
                unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
            }

            #[inline(always)]
            fn nibbles(self, block: &[u8; BLOCK]) -> [__m512i; 2] {
                let all = self.bytes(block);
                // SAFETY: `self` proves AVX-512.
                unsafe {
                    let mask = _mm512_set1_epi8(15);
                    [_mm512_and_si512(all, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(all), mask)]
                }
            }

            #[inline(always)]
            fn pairs(self, block: &[u8; BLOCK]) -> [__m512i; 4] {
                let all = self.bytes(block);
                // SAFETY: `self` proves AVX-512.
                unsafe {
                    let mask = _mm512_set1_epi8(3);
                    [
                        _mm512_and_si512(all, mask),
                        _mm512_and_si512(_mm512_srli_epi16::<2>(all), mask),
                        _mm512_and_si512(_mm512_srli_epi16::<4>(all), mask),
                        _mm512_and_si512(_mm512_srli_epi16::<6>(all), mask),
                    ]
                }
            }

            #[inline(always)]
            fn dot_planes<const P: usize>(self, codes: &[__m512i; P], x: &[Plane; P]) -> __m512i {
                // SAFETY: `self` proves what `$dots` needs; a plane has the 64 bytes that are read.
                unsafe { $dots(codes, x) }
            }

            #[inline(always)]
            fn dot_signed(self, codes: __m512i, x: &Plane) -> __m512i {
                // SAFETY: `self` proves what `$dots` needs; a plane has the 64 bytes that are read.
                unsafe {
                    let x = _mm512_load_si512(x.0.as_ptr().cast());
                    let turned = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(codes), _mm512_setzero_si512(), x);
                    let mut plane = Plane([0; BLOCK]);
                    _mm512_store_si512(plane.0.as_mut_ptr().cast(), turned);
                    $dots(&[_mm512_abs_epi8(codes)], &[plane])
                }
            }
        }
    };
}

avx512!(Avx512, "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c", dots);
avx512!(Vnni, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c", dots_vnni);

/// Pairs of products in 16 bits (two of at most 255 * 127 / 2 fit), planes added, then pairs of pairs.
///
/// # Safety
/// The CPU has AVX-512 BW.
#[inline(always)]
unsafe fn dots<const P: usize>(codes: &[__m512i; P], x: &[Plane; P]) -> __m512i {
    // SAFETY: the caller's promise; a plane has the 64 bytes that are read, on a line of its own.
    unsafe {
        let mut sum = _mm512_setzero_si512();
        for i in 0..P {
            let pairs = _mm512_maddubs_epi16(codes[i], _mm512_load_si512(x[i].0.as_ptr().cast()));
            sum = _mm512_add_epi16(sum, pairs);
        }
        _mm512_madd_epi16(sum, _mm512_set1_epi16(1))
    }
}

/// Four products at once.
///
/// # Safety
/// The CPU has AVX-512 VNNI.
#[inline(always)]
unsafe fn dots_vnni<const P: usize>(codes: &[__m512i; P], x: &[Plane; P]) -> __m512i {
    // SAFETY: the caller's promise; a plane has the 64 bytes that are read, on a line of its own.
    unsafe {
        let mut sum = _mm512_setzero_si512();
        for i in 0..P {
            sum = _mm512_dpbusd_epi32(sum, codes[i], _mm512_load_si512(x[i].0.as_ptr().cast()));
        }
        sum
    }
}
