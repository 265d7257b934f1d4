//! [`Policy`]: which expert goes when another needs its room. Pure: from what was used, in order.

use std::collections::HashMap;

/// Layer and expert.
pub type Key = (usize, u32);

/// Uses after which an older use counts half: a few tokens of a model with a hundred layer visits each.
const HALF: f64 = 1024.0;

/// Remembers how often and how lately each expert was used: a count that fades with every use of any. With little room
/// this keeps what a text keeps asking for; among those used once it keeps the latest.
#[derive(Debug, Default, Clone)]
pub struct Policy {
    /// Log2 of the faded count, at clock 0.
    weights: HashMap<Key, f64>,
    clock: f64,
}

impl Policy {
    /// An expert was used.
    pub fn used(&mut self, key: Key) {
        self.clock += 1.0;
        let now = self.clock / HALF;
        // A use now weighs 2^now, so that weights need no fading: only their order matters.
        let weight = self.weights.entry(key).or_insert(f64::NEG_INFINITY);
        let (high, low) = if *weight > now { (*weight, now) } else { (now, *weight) };
        *weight = high + (low - high).exp2().ln_1p() / std::f64::consts::LN_2;
    }

    /// The one of `candidates` that is likely to be missed least; the lowest key among equals.
    pub fn victim(&self, candidates: impl Iterator<Item = Key>) -> Option<Key> {
        let weight = |key: &Key| self.weights.get(key).copied().unwrap_or(f64::NEG_INFINITY);
        candidates.min_by(|a, b| weight(a).total_cmp(&weight(b)).then(a.cmp(b)))
    }

    /// Experts by falling weight: what to read first at a start.
    #[must_use]
    pub fn hottest(&self) -> Vec<Key> {
        let mut all: Vec<(Key, f64)> = self.weights.iter().map(|(key, weight)| (*key, *weight)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.into_iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hits of a cache of `room` experts over a trace.
    fn hits(trace: &[Key], room: usize) -> usize {
        let (mut policy, mut held, mut hits) = (Policy::default(), Vec::new(), 0);
        for &key in trace {
            if held.contains(&key) {
                hits += 1;
            } else {
                if held.len() == room {
                    let victim = policy.victim(held.iter().copied()).expect("one of them");
                    held.retain(|key| *key != victim);
                }
                held.push(key);
            }
            policy.used(key);
        }
        hits
    }

    #[test]
    fn what_is_asked_for_often_outlives_a_scan() {
        let mut trace: Vec<Key> = Vec::new();
        for round in 0..50 {
            trace.extend([(0, 1), (0, 2), (0, 3)]);
            trace.extend((0..4).map(|i| (1, 100 + round * 4 + i)));
        }
        // Three that return in every round, and four strangers that never do: least recently used would hit nothing. A
        // few rounds pass until the counts tell.
        assert!(hits(&trace, 5) >= 3 * 45, "{}", hits(&trace, 5));
    }

    #[test]
    fn the_past_fades() {
        let mut trace = vec![(0, 1); 500];
        for _ in 0..20_000 {
            trace.extend([(0, 2), (0, 3)]);
        }
        // After a while the old favourite makes room.
        assert!(hits(&trace, 2) > 500 + 20_000);
    }

    #[test]
    fn of_those_used_once_the_oldest_goes() {
        let mut policy = Policy::default();
        (0..5).for_each(|i| policy.used((0, i)));
        assert_eq!(policy.victim((0..5).map(|i| (0, i))), Some((0, 0)));
        assert_eq!(policy.victim([(0, 3), (0, 9)].into_iter()), Some((0, 9)), "never used");
        assert_eq!(policy.hottest()[0], (0, 4));
    }
}
