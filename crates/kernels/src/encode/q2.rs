//! q2: the exact scale search of 16 groups at once, one in each lane.
//!
//! The definition sorts a group's magnitudes and tries every split. Here a fixed network of comparisons sorts 16 groups
//! in step (Batcher, "Sorting networks and their applications", 1968), and the sums run in the definition's order. The
//! zeros that fill up a short group sort to the front and add nothing; splits among them repeat the first.

use super::{Group, Output, code};
use smoe_codec::{GROUP, q2};

/// Groups that are searched together.
const LANES: usize = 16;

/// Comparisons of Batcher's network on 64 values.
const COMPARISONS: usize = 543;

/// The network: positions whose values are put in order.
static NETWORK: [(u8, u8); COMPARISONS] = network();

const fn network() -> [(u8, u8); COMPARISONS] {
    let mut pairs = [(0, 0); COMPARISONS];
    let (mut count, mut run) = (0, 1);
    while run < GROUP {
        let mut gap = run;
        while gap > 0 {
            let mut start = gap % run;
            while start + gap < GROUP {
                let mut i = start;
                while i < start + gap && i + gap < GROUP {
                    if i / (2 * run) == (i + gap) / (2 * run) {
                        pairs[count] = (i as u8, (i + gap) as u8);
                        count += 1;
                    }
                    i += 1;
                }
                start += 2 * gap;
            }
            gap /= 2;
        }
        run *= 2;
    }
    assert!(count == COMPARISONS);
    pairs
}

/// Groups that wait for their search.
pub(super) struct Batch<'a> {
    waiting: [(Group, Option<Output<'a>>); LANES],
    count: usize,
}

impl<'a> Batch<'a> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { waiting: core::array::from_fn(|_| (Group::ZERO, None)), count: 0 }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, group: Group, out: Output<'a>) {
        self.waiting[self.count] = (group, Some(out));
        self.count += 1;
        if self.count == LANES {
            self.flush();
        }
    }

    /// Searches and encodes what waits.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        if self.count == 0 {
            return;
        }
        let groups = core::array::from_fn(|lane| &self.waiting[lane].0);
        let scales = search(&groups);
        for ((group, out), s) in self.waiting.iter_mut().zip(scales) {
            if let Some(out) = out.take() {
                code::uniform::<2>(group, s, out);
            }
        }
        self.count = 0;
    }
}

/// The scale of each group, as [`q2::scale`] gives it.
#[inline(always)]
fn search(groups: &[&Group; LANES]) -> [f32; LANES] {
    // Bits of magnitudes: integers compare as the magnitudes do, without a thought for NaN.
    let mut sorted = [[0i32; LANES]; GROUP];
    for (i, row) in sorted.iter_mut().enumerate() {
        for (a, group) in row.iter_mut().zip(groups) {
            *a = group.w[i].abs().to_bits() as i32;
        }
    }
    for &(i, j) in &NETWORK {
        let (a, b) = (sorted[i as usize & 63], sorted[j as usize & 63]);
        for lane in 0..LANES {
            sorted[i as usize & 63][lane] = a[lane].min(b[lane]);
            sorted[j as usize & 63][lane] = a[lane].max(b[lane]);
        }
    }
    let len: [i32; LANES] = core::array::from_fn(|lane| groups[lane].len as i32);
    let mut total = [0.0f64; LANES];
    for row in &sorted {
        for lane in 0..LANES {
            total[lane] += f64::from(f32::from_bits(row[lane] as u32));
        }
    }
    let (mut small, mut best_gain, mut best) = ([0.0f64; LANES], [0.0f64; LANES], [0.0f32; LANES]);
    for k in 0..=GROUP {
        for lane in 0..LANES {
            let n_small = (k as i32 - (GROUP as i32 - len[lane])).max(0);
            let (s, gain) = q2::split(small[lane], total[lane], n_small, len[lane] - n_small);
            let better = gain > best_gain[lane];
            best_gain[lane] = if better { gain } else { best_gain[lane] };
            best[lane] = if better { s } else { best[lane] };
        }
        if let Some(row) = sorted.get(k) {
            for lane in 0..LANES {
                small[lane] += f64::from(f32::from_bits(row[lane] as u32));
            }
        }
    }
    best
}
