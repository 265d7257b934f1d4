//! Plain Rust compiled for an instruction set: loops over arrays of 16 floats become vector code without an intrinsic.
//!
//! For arithmetic that is not worth kernels by hand (the calibrator's sweeps): the caller stays free of `unsafe`.

use crate::isa::Isa;

/// A computation to compile for an instruction set. `run` and what it calls in its loops must be `#[inline(always)]`.
pub trait Compiled {
    /// What it gives.
    type Output;

    /// Computes; `FUSED` says that the hardware has a fused multiply-add, so that `mul_add` is an instruction and not a
    /// call.
    fn run<const FUSED: bool>(self) -> Self::Output;
}

/// Runs `work` compiled for `isa`.
pub fn compiled_for<C: Compiled>(isa: Isa, work: C) -> C::Output {
    match isa {
        Isa::Scalar => work.run::<false>(),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Avx2` exists only where `detect` saw AVX2 and FMA.
        Isa::Avx2(_) => unsafe { avx2(work) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Avx512` exists only where `detect` saw what `avx512` enables.
        Isa::Avx512(_) => unsafe { avx512(work) },
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => unreachable!("detected on another architecture"),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<C: Compiled>(work: C) -> C::Output {
    work.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn avx512<C: Compiled>(work: C) -> C::Output {
    work.run::<true>()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Squares<'a>(&'a [f32]);

    impl Compiled for Squares<'_> {
        type Output = f32;

        #[inline(always)]
        fn run<const FUSED: bool>(self) -> f32 {
            self.0.iter().fold(0.0, |sum, &x| if FUSED { x.mul_add(x, sum) } else { x * x + sum })
        }
    }

    #[test]
    fn every_instruction_set_computes_the_same() {
        for isa in Isa::available() {
            assert_eq!(compiled_for(isa, Squares(&[1.0, 2.0, 3.0])), 14.0, "{}", isa.name());
        }
    }
}
