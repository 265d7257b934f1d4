//! CPU kernels on packed rows, by instruction set: matrix products and the fast encoder.
//!
//! Weights are decoded in registers or in a small tile on the stack inside the multiply; no float copy of a matrix
//! exists. Each product of a row with a token is summed in one fixed order that depends neither on how many tokens nor
//! on which rows a call has, so results do not change with chunk sizes or threads. Everything here is single-threaded.
//!
//! The only crate with `unsafe`: intrinsics in the vectors' implementations and the calls of functions compiled
//! for an instruction set, both of which rest on an [`Isa`] that only detection can make. Lengths are checked once, by
//! [`Matrix::new`] and at the seams.

pub mod bench;
mod compiled;
mod encode;
mod int8;
mod isa;
mod matmul;
mod matrix;
pub mod selftest;
mod simd;

pub use compiled::{Compiled, compiled_for};
pub use encode::{RowError, encode_rows, encode_rows_bf16};
pub use int8::{DRIFT, Int8, matmul_int8};
pub use isa::{Avx2, Avx512, Isa, Vnni};
pub use matmul::matmul;
pub use matrix::{Data, Matrix, MatrixError};
