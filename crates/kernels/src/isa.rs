//! Instruction sets as values that only detection can make.

/// Proof that this CPU has AVX2, FMA and F16C: only [`Avx2::detect`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

/// Proof that this CPU has AVX-512 F, BW, VL and DQ beside AVX2, FMA and F16C: only [`Avx512::detect`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx512 {
    vnni: bool,
}

/// Proof that this CPU has AVX-512 VNNI beside what [`Avx512`] proves: only [`Avx512::vnni`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vnni(());

impl Avx2 {
    /// Asks the CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            return Some(Self(()));
        }
        None
    }
}

impl Avx512 {
    /// Asks the CPU.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && Avx2::detect().is_some()
        {
            return Some(Self { vnni: is_x86_feature_detected!("avx512vnni") });
        }
        None
    }

    /// The instructions for four products of bytes at once, where the CPU has them.
    #[must_use]
    pub fn vnni(self) -> Option<Vnni> {
        self.vnni.then_some(Vnni(()))
    }
}

/// An instruction set of this machine. Chosen once and passed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, for any CPU: slow, and what the others are tested against.
    Scalar,
    /// AVX2, FMA, F16C.
    Avx2(Avx2),
    /// AVX-512 F, BW, VL, DQ.
    Avx512(Avx512),
}

impl Isa {
    /// The best of this machine.
    #[must_use]
    pub fn detect() -> Self {
        Avx512::detect().map(Self::Avx512).or(Avx2::detect().map(Self::Avx2)).unwrap_or(Self::Scalar)
    }

    /// All of this machine, the best last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let (avx2, avx512) = (Avx2::detect().map(Self::Avx2), Avx512::detect().map(Self::Avx512));
        [Some(Self::Scalar), avx2, avx512].into_iter().flatten().collect()
    }

    /// [`Isa::available`], and AVX-512 without VNNI where the CPU has both: every path that the kernels have.
    #[must_use]
    pub fn paths() -> Vec<Self> {
        let mut all = Self::available();
        if let Some(Self::Avx512(avx512)) = all.last().copied()
            && avx512.vnni
        {
            all.insert(all.len() - 1, Self::Avx512(Avx512 { vnni: false }));
        }
        all
    }

    /// `scalar`, `avx2`, `avx512-vnni`, or `avx512` where it is without VNNI.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2(_) => "avx2",
            Self::Avx512(Avx512 { vnni: false }) => "avx512",
            Self::Avx512(Avx512 { vnni: true }) => "avx512-vnni",
        }
    }

    /// The instruction set of that name, where this machine has it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::paths().into_iter().find(|isa| isa.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detection_names_what_is_there() {
        let all = Isa::paths();
        println!("instruction sets: {:?}", all.iter().map(|isa| isa.name()).collect::<Vec<_>>());
        assert_eq!(all.first(), Some(&Isa::Scalar));
        assert_eq!(all.last(), Some(&Isa::detect()));
        for isa in all {
            assert_eq!(Isa::from_name(isa.name()), Some(isa));
        }
        assert_eq!(Isa::from_name("avx3"), None);
    }
}
