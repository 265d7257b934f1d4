//! A structure-aware fuzzer of what opening a checkpoint looks at: config, index and safetensors headers.
//!
//! A case is a seed (a well-formed checkpoint in memory) and a list of edits, so that it can be written down in one line
//! and replayed after the generator has changed. `examples/fuzz.rs` runs millions of random cases, `tests/fuzz.rs`
//! replays the corpus.
#![allow(dead_code)] // Each of its two users takes a part of it.

pub(crate) mod edit;
pub(crate) mod judge;
pub(crate) mod mutate;
pub(crate) mod seeds;

pub(crate) use edit::{Edit, folder};
pub(crate) use judge::{Verdict, judge, signature};
pub(crate) use mutate::mutate;
pub(crate) use seeds::{Seed, seeds};

use serde::{Deserialize, Serialize};

/// A case of the corpus.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Case {
    /// The seed's name.
    pub(crate) seed: String,
    /// What is changed, in order.
    pub(crate) edits: Vec<Edit>,
    /// The kind of refusal that it ends in; "accepted" where it is understood.
    pub(crate) ends: String,
}

/// Bytes that may be taken beyond the input's.
pub(crate) const ROOM: u64 = 64 << 20;

/// SplitMix64, so that a case can be repeated from its number.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
