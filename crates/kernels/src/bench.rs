//! Measurements that `smoe bench` prints. A shell: it reads the clock.

use crate::simd::{STEPS, Scalar, Simd, Work};
use crate::{Data, Isa, Matrix, encode_rows, encode_rows_bf16, matmul};
use smoe_codec::smoke::Gaussian;
use smoe_codec::{Codec, GROUP, half};
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

/// The speed of the matrix product with one format.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// `f32`, `f16`, `bf16` or a codec's name.
    pub format: &'static str,
    /// The instruction set.
    pub isa: Isa,
    /// Packed bytes (codes and scales) a second with one token, in the median piece.
    pub gb_per_second: f64,
    /// Of the roof.
    pub share: f64,
    /// Multiplications and additions a second, in 10^9, with [`PREFILL`] tokens.
    pub gflops: f64,
}

/// Products beside the speed of reading memory.
#[derive(Debug, Clone)]
pub struct Products {
    /// Reading the same number of bytes and doing nothing with them, in the median piece.
    pub roof_gb_per_second: f64,
    /// By format.
    pub results: Vec<Product>,
}

/// Bytes that are timed together, about: far more than a call costs, far less than a time slice reads.
const READ_BYTES: usize = 1 << 18;

/// Tokens of a product that stands for prefill.
pub const PREFILL: usize = 128;

/// Multiplies matrices of about `len_bytes` packed bytes each with 1 and with [`PREFILL`] tokens, for about `time` each.
/// Choose `len_bytes` beyond the last cache to measure memory. One thread.
#[must_use]
pub fn kernel(isa: Isa, len_bytes: usize, time: Duration) -> Products {
    let pattern: Vec<f32> = Gaussian::new(2).take(64 * COLS).map(|w| w * 0.02).collect();
    let memory = vec![1u8; len_bytes.max(READ_BYTES)];
    let pieces = memory.as_chunks::<READ_BYTES>().0;
    let roof = READ_BYTES as f64 / median(time, pieces.len(), |i| read(isa, &pieces[i])) / 1e9;
    drop(memory);
    let results = ["f32", "f16", "bf16", "q2", "q4", "q8"].into_iter().map(|format| {
        let packed = Packed::new(isa, format, &pattern, len_bytes);
        let matrix = packed.matrix();
        let x: Vec<f32> = Gaussian::new(3).take(PREFILL * COLS).collect();
        let mut out = vec![0.0; matrix.rows() * PREFILL];
        let mut product = |x: &[f32], rows: usize, n: usize| {
            median(time, matrix.rows() / rows, |i| {
                matmul(isa, &matrix, i * rows..(i + 1) * rows, x, n, &mut out[..rows * n]);
            })
        };
        let piece = (matrix.rows() * READ_BYTES / matrix.len_bytes()).clamp(1, matrix.rows());
        let (one, many) = (product(&x[..COLS], piece, 1), product(&x, PIECE_ROWS, PREFILL));
        let row_bytes = matrix.len_bytes() as f64 / matrix.rows() as f64;
        let gb_per_second = piece as f64 * row_bytes / one / 1e9;
        let gflops = (2 * PIECE_ROWS * COLS * PREFILL) as f64 / many / 1e9;
        Product { format, isa, gb_per_second, share: gb_per_second / roof, gflops }
    });
    Products { roof_gb_per_second: roof, results: results.collect() }
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

/// Reads all bytes with the instruction set's vectors.
fn read(isa: Isa, bytes: &[u8]) {
    struct Read<'a>(&'a [u8]);
    impl Work for Read<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            // Eight chains of additions, so that loads are what it waits for.
            let mut sums = [[simd.zero(); STEPS]; 2];
            for pair in self.0.as_chunks::<{ 8 * GROUP }>().0 {
                for (sums, bytes) in sums.iter_mut().zip(pair.as_chunks::<{ 4 * GROUP }>().0) {
                    for (sum, v) in sums.iter_mut().zip(simd.f32(bytes)) {
                        *sum = simd.fma(v, v, *sum);
                    }
                }
            }
            std::hint::black_box(sums);
        }
    }
    match isa {
        Isa::Scalar => Scalar.on(Read(bytes)),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(avx2) => avx2.on(Read(bytes)),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(avx512) => avx512.on(Read(bytes)),
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx2(_) | Isa::Avx512(_) => unreachable!("detected on another architecture"),
    }
}

/// A packed matrix of repeated rows.
struct Packed {
    format: &'static str,
    rows: usize,
    bytes: Vec<u8>,
    scales: Vec<u8>,
}

impl Packed {
    fn new(isa: Isa, format: &'static str, pattern: &[f32], len_bytes: usize) -> Self {
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        match (format, Codec::from_name(format)) {
            (_, Some(codec)) => {
                let rows = pattern.len() / COLS;
                (bytes, scales) = (vec![0; rows * codec.code_bytes(COLS)], vec![0; rows * codec.scale_bytes(COLS)]);
                encode_rows(isa, codec, pattern, COLS, &mut bytes, &mut scales).expect("Gaussian weights are finite");
            }
            ("f32", _) => bytes.extend(pattern.iter().flat_map(|w| w.to_le_bytes())),
            ("f16", _) => bytes.extend(pattern.iter().flat_map(|&w| half::f32_to_f16(w).to_le_bytes())),
            _ => bytes.extend(pattern.iter().flat_map(|&w| half::f32_to_bf16(w).to_le_bytes())),
        }
        let copies = len_bytes.div_ceil(bytes.len() + scales.len());
        Self { format, rows: copies * pattern.len() / COLS, bytes: bytes.repeat(copies), scales: scales.repeat(copies) }
    }

    fn matrix(&self) -> Matrix<'_> {
        let data = match (self.format, Codec::from_name(self.format)) {
            (_, Some(codec)) => Data::Coded { codec, codes: &self.bytes, scales: &self.scales },
            ("f32", _) => Data::F32(&self.bytes),
            ("f16", _) => Data::F16(&self.bytes),
            _ => Data::Bf16(&self.bytes),
        };
        Matrix::new(self.rows, COLS, data).expect("packed by rows")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small, so that a test run is short: figures from here are from the cache.
    const BYTES: usize = 1 << 18;
    const TIME: Duration = Duration::from_millis(20);

    #[test]
    fn it_runs() {
        for isa in Isa::available() {
            for result in quantize(isa, 64, TIME) {
                let million = result.weights_per_second_per_core / 1e6;
                println!("{} {}: {million:.1} M weights/s", isa.name(), result.codec.name());
                assert!(million > 0.0);
            }
            let products = kernel(isa, BYTES, TIME);
            println!("{} roof {:.1} GB/s", isa.name(), products.roof_gb_per_second);
            for p in products.results {
                let (name, share) = (isa.name(), p.share * 100.0);
                println!("{name} {}: {:.1} GB/s ({share:.0} %), {:.1} GFLOP/s", p.format, p.gb_per_second, p.gflops);
                assert!(p.gb_per_second > 0.0 && p.gflops > 0.0);
            }
        }
    }
}
