//! Measurements that `smoe bench` prints. A shell: it reads the clock.

use crate::{Isa, encode_rows_bf16};
use smoe_codec::smoke::Gaussian;
use smoe_codec::{Codec, half};
use std::time::{Duration, Instant};

/// The speed of encoding with one codec.
#[derive(Debug, Clone, Copy)]
pub struct Encoding {
    /// The codec.
    pub codec: Codec,
    /// Weights a second on one thread, the best pass.
    pub weights_per_second_per_core: f64,
}

/// Columns of the measured rows.
const COLS: usize = 2048;

/// Encodes `rows * 2048` Gaussian bf16 weights in memory with each codec, widening included, again and again for about
/// `time` each. One thread: the figure is that of a core.
///
/// # Panics
/// If memory for the weights (4 KiB a row) cannot be had.
#[must_use]
pub fn quantize(isa: Isa, rows: usize, time: Duration) -> Vec<Encoding> {
    let weights = Gaussian::new(1).take(rows * COLS).map(|w| half::f32_to_bf16(w * 0.02));
    let bytes: Vec<u8> = weights.flat_map(u16::to_le_bytes).collect();
    let measure = |codec: Codec| {
        let (mut codes, mut scales) = (vec![0; rows * codec.code_bytes(COLS)], vec![0; rows * codec.scale_bytes(COLS)]);
        let start = Instant::now();
        let mut best = f64::INFINITY;
        while best.is_infinite() || start.elapsed() < time {
            let pass = Instant::now();
            encode_rows_bf16(isa, codec, &bytes, COLS, &mut codes, &mut scales).expect("Gaussian weights are finite");
            best = best.min(pass.elapsed().as_secs_f64());
        }
        Encoding { codec, weights_per_second_per_core: (rows * COLS) as f64 / best }
    };
    Codec::ALL.into_iter().map(measure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs() {
        for isa in Isa::available() {
            for result in quantize(isa, 64, Duration::from_millis(30)) {
                let million = result.weights_per_second_per_core / 1e6;
                println!("{} {}: {million:.1} M weights/s", isa.name(), result.codec.name());
                assert!(million > 0.0);
            }
        }
    }
}
