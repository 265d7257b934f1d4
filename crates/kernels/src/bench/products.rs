//! Products of packed matrices beside the speed of reading memory, all threads at work.

use crate::simd::{STEPS, Scalar, Simd, Work};
use crate::{Data, Int8, Isa, Matrix, matmul, matmul_int8};
use smoe_codec::smoke::Gaussian;
use smoe_codec::{Codec, GROUP};
use std::time::{Duration, Instant};

/// How the activations of a product come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    /// As they are.
    F32,
    /// Rounded to eight bits.
    Int8,
}

impl Activations {
    /// `f32` or `int8`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }
}

/// The speed of the matrix product with one format.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// `bf16` or a codec's name.
    pub format: &'static str,
    /// The instruction set.
    pub isa: Isa,
    /// The activations.
    pub activations: Activations,
    /// Packed bytes (codes and scales) a second with one token, in the median pass over memory.
    pub gb_per_second: f64,
    /// Reading the same bytes with the machine's widest vectors and doing nothing with them, in the best pass, taken in
    /// turns with the product's.
    pub roof_gb_per_second: f64,
    /// Of the roof.
    pub share: f64,
    /// Multiplications and additions a second, in 10^9, with [`PREFILL`] tokens.
    pub gflops: f64,
}

/// What was measured, and how.
#[derive(Debug, Clone)]
pub struct Products {
    /// Threads at work.
    pub threads: usize,
    /// Bytes of codes in a pass.
    pub bytes: usize,
    /// By format, activations and instruction set.
    pub results: Vec<Product>,
}

/// Columns of the measured rows.
const COLS: usize = 2048;

/// Rows of one call.
const ROWS: usize = 128;

/// Tokens of a product that stands for prefill.
pub const PREFILL: usize = 128;

/// Measures products on each instruction set with matrices of `bytes` bytes of codes or plain numbers in all, shared among
/// `threads` threads, for about `time` each. Choose `bytes` beyond the last cache, several times, to measure memory.
///
/// # Panics
/// If memory for them cannot be had.
#[must_use]
pub fn kernel(isas: &[Isa], threads: usize, bytes: usize, time: Duration) -> Products {
    let call = ROWS * COLS * 2;
    let each = bytes.div_ceil(threads * call).max(1) * call;
    // A byte above 0x3F and one of anything: as bf16 between 0.5 and 2, as codes whatever they are.
    let mut state = 1u32;
    let pattern: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        [(state >> 24) as u8, 0x3F]
    })
    .take(call / 2)
    .flatten()
    .collect();
    let memory: Vec<Vec<u8>> = (0..threads).map(|_| pattern.repeat(each / call)).collect();
    // Every f16 scale is 1/64: 1 byte in 16 of codes at most.
    let scales = [0x00u8, 0x24].repeat(each / 16);
    let x: Vec<f32> = Gaussian::new(3).take(PREFILL * COLS).collect();
    let field = Field { memory: &memory, scales: &scales, x: &x, time };
    let mut results = Vec::new();
    for &isa in isas {
        results.push(field.measure(isa, None, Activations::F32));
        for codec in Codec::ALL {
            results.push(field.measure(isa, Some(codec), Activations::F32));
            results.push(field.measure(isa, Some(codec), Activations::Int8));
        }
    }
    Products { threads, bytes: each * threads, results }
}

struct Field<'a> {
    memory: &'a [Vec<u8>],
    scales: &'a [u8],
    x: &'a [f32],
    time: Duration,
}

impl Field<'_> {
    fn measure(&self, isa: Isa, codec: Option<Codec>, activations: Activations) -> Product {
        let row_bytes = codec.map_or(2 * COLS, |codec| codec.code_bytes(COLS));
        let scale_bytes = codec.map_or(0, |codec| codec.scale_bytes(COLS));
        let rows = self.memory[0].len() / row_bytes;
        let matrix = |thread: usize| {
            let codes = &self.memory[thread][..rows * row_bytes];
            let data = codec.map_or(Data::Bf16(codes), |codec| Data::Coded {
                codec,
                codes,
                scales: &self.scales[..rows * scale_bytes],
            });
            Matrix::new(rows, COLS, data).expect("whole rows")
        };
        let one = Side::new(isa, codec, activations, &self.x[..COLS], 1);
        let many = Side::new(isa, codec, activations, self.x, PREFILL);
        let (mut passes, mut reads) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while passes.len() < 3 || start.elapsed() < self.time {
            reads.push(self.pass(|thread| {
                let isa = Isa::detect();
                read(isa, &self.memory[thread][..rows * row_bytes]);
                read(isa, &self.scales[..rows * scale_bytes]);
            }));
            passes.push(self.pass(|thread| one.product(isa, &matrix(thread), rows)));
        }
        let few = ROWS.min(rows);
        let mut blocks = Vec::new();
        let start = Instant::now();
        while blocks.len() < 3 || start.elapsed() < self.time / 2 {
            blocks.push(self.pass(|thread| many.product(isa, &matrix(thread), few)));
        }
        let bytes = (self.memory.len() * rows * (row_bytes + scale_bytes)) as f64 / 1e9;
        let best = reads.iter().copied().fold(f64::INFINITY, f64::min);
        let (gb_per_second, roof_gb_per_second) = (bytes / median(&mut passes), bytes / best);
        Product {
            format: codec.map_or("bf16", Codec::name),
            isa,
            activations,
            gb_per_second,
            roof_gb_per_second,
            share: gb_per_second / roof_gb_per_second,
            gflops: (2 * self.memory.len() * few * COLS * PREFILL) as f64 / median(&mut blocks) / 1e9,
        }
    }

    /// Seconds in which all threads do their part.
    fn pass(&self, part: impl Fn(usize) + Sync) -> f64 {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 1..self.memory.len() {
                let part = &part;
                scope.spawn(move || part(thread));
            }
            part(0);
        });
        start.elapsed().as_secs_f64()
    }
}

/// The tokens of a product.
enum Side<'a> {
    F32(&'a [f32], usize),
    Int8(Box<Int8>),
}

impl<'a> Side<'a> {
    fn new(isa: Isa, codec: Option<Codec>, activations: Activations, x: &'a [f32], n: usize) -> Self {
        match (codec, activations) {
            (Some(codec), Activations::Int8) => Self::Int8(Box::new(Int8::new(isa, codec, x, n, COLS))),
            _ => Self::F32(x, n),
        }
    }

    /// The first `rows` rows, call by call.
    fn product(&self, isa: Isa, matrix: &Matrix<'_>, rows: usize) {
        let n = match self {
            Self::F32(_, n) => *n,
            Self::Int8(x) => x.tokens(),
        };
        let mut out = vec![0.0; ROWS * n];
        let mut first = 0;
        while first < rows {
            let range = first..rows.min(first + ROWS);
            let out = &mut out[..range.len() * n];
            first = range.end;
            match self {
                Self::F32(x, n) => matmul(isa, matrix, range, x, *n, out),
                Self::Int8(x) => matmul_int8(isa, matrix, range, x, out),
            }
            std::hint::black_box(out);
        }
    }
}

fn median(seconds: &mut [f64]) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Small, so that a test run is short: figures from here are from the cache.
    #[test]
    fn it_runs() {
        let found = kernel(&Isa::paths(), 2, 1 << 20, Duration::from_millis(5));
        assert_eq!(found.results.len(), Isa::paths().len() * (1 + 2 * Codec::ALL.len()));
        for p in found.results {
            assert!(p.gb_per_second > 0.0 && p.roof_gb_per_second > 0.0 && p.gflops > 0.0, "{p:?}");
        }
    }
}
