//! Measurements that `smoe bench` prints. A shell: it reads the clock.

mod products;

pub use products::{Activations, PREFILL, Product, Products, kernel};

use crate::{Isa, encode_rows_bf16};
use smoe_codec::smoke::Gaussian;
use smoe_codec::{Codec, half};
use std::time::{Duration, Instant};

/// The speed of encoding with one codec.
#[derive(Debug, Clone, Copy)]
pub struct Encoding {
    /// The codec.
    pub codec: Codec,
    /// Weights a second on one thread, in the median piece.
    pub weights_per_second_per_core: f64,
}

/// Columns of the measured rows.
const COLS: usize = 2048;

/// Rows that are timed together.
const PIECE_ROWS: usize = 16;

/// Encodes Gaussian bf16 weights in memory, `rows` (rounded up to 16) of 2048, with each codec, widening included, again
/// and again for about `time` each. One thread: the figure is that of a core.
///
/// # Panics
/// If memory for the weights (4 KiB a row) cannot be had.
#[must_use]
pub fn quantize(isa: Isa, rows: usize, time: Duration) -> Vec<Encoding> {
    let pieces = rows.div_ceil(PIECE_ROWS).max(1);
    let rows = pieces * PIECE_ROWS;
    let weights = Gaussian::new(1).take(rows * COLS).map(|w| half::f32_to_bf16(w * 0.02));
    let bytes: Vec<u8> = weights.flat_map(u16::to_le_bytes).collect();
    let measure = |codec: Codec| {
        let (mut codes, mut scales) = (vec![0; rows * codec.code_bytes(COLS)], vec![0; rows * codec.scale_bytes(COLS)]);
        let (piece_codes, piece_scales) = (PIECE_ROWS * codec.code_bytes(COLS), PIECE_ROWS * codec.scale_bytes(COLS));
        let seconds = median(time, pieces, |i| {
            let w = &bytes[i * PIECE_ROWS * COLS * 2..][..PIECE_ROWS * COLS * 2];
            let (codes, scales) =
                (&mut codes[i * piece_codes..][..piece_codes], &mut scales[i * piece_scales..][..piece_scales]);
            encode_rows_bf16(isa, codec, w, COLS, codes, scales).expect("Gaussian weights are finite");
        });
        Encoding { codec, weights_per_second_per_core: (PIECE_ROWS * COLS) as f64 / seconds }
    };
    Codec::ALL.into_iter().map(measure).collect()
}

/// Median seconds of a piece of work that has `pieces` equal pieces. All are done, in turn, for at least `time`.
///
/// Pieces take less than a time slice, and the median forgets those that another process interrupted: the figure is that
/// of a core of one's own.
fn median(time: Duration, pieces: usize, mut piece: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    let mut seconds = Vec::new();
    while seconds.len() < pieces || start.elapsed() < time {
        let from = Instant::now();
        piece(seconds.len() % pieces);
        seconds.push(from.elapsed().as_secs_f64());
    }
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small, so that a test run is short: figures from here are from the cache.
    const TIME: Duration = Duration::from_millis(20);

    #[test]
    fn it_runs() {
        for isa in Isa::available() {
            for result in quantize(isa, 64, TIME) {
                let million = result.weights_per_second_per_core / 1e6;
                println!("{} {}: {million:.1} M weights/s", isa.name(), result.codec.name());
                assert!(million > 0.0);
            }
        }
    }
}
