//! What a model needs beside its experts, and what is left for them.

/// Memory of the program itself: code, tokenizer, threads, what an allocator keeps.
pub const PROGRAM_BYTES: u64 = 64 << 20;

/// What a run needs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Trunk, caches, activations.
    pub fixed: u64,
    /// All experts.
    pub experts: u64,
    /// The largest expert.
    pub largest: u64,
    /// All that one token visits.
    pub token: u64,
}

/// How the experts are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// All in memory.
    Resident,
    /// In so many bytes, the rest on the drive.
    Streamed(u64),
    /// Not even streamed: the promise would be broken. The least memory that it takes.
    Refused(u64),
}

/// Experts that must fit at once, so that one is computed while another is read.
const LEAST: u64 = 4;

impl Budget {
    /// What `ram` bytes allow.
    #[must_use]
    pub fn new(needs: &Needs, ram: u64) -> Self {
        let fixed = needs.fixed.saturating_add(PROGRAM_BYTES);
        let left = ram.saturating_sub(fixed);
        if left >= needs.experts {
            return Self::Resident;
        }
        let least = needs.largest.saturating_mul(LEAST);
        if left < least { Self::Refused(fixed.saturating_add(least)) } else { Self::Streamed(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_what_is_fixed_and_a_few_experts() {
        let needs = Needs { fixed: 100, experts: 1000, largest: 10, token: 80 };
        let fixed = PROGRAM_BYTES + 100;
        assert_eq!(Budget::new(&needs, fixed + 1000), Budget::Resident);
        assert_eq!(Budget::new(&needs, fixed + 999), Budget::Streamed(999));
        assert_eq!(Budget::new(&needs, fixed + 40), Budget::Streamed(40));
        assert_eq!(Budget::new(&needs, fixed + 39), Budget::Refused(fixed + 40));
        assert_eq!(Budget::new(&needs, 0), Budget::Refused(fixed + 40));
    }
}
