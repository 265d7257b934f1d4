//! Element formats of stored tensors, decoded to f32 by runs of elements.

use crate::error::CheckpointError;
use crate::store::Dtype;

/// A plain element type of a file, where it is one.
pub fn plain(dtype: &str) -> Option<Dtype> {
    match dtype {
        "BF16" => Some(Dtype::Bf16),
        "F16" => Some(Dtype::F16),
        "F32" => Some(Dtype::F32),
        _ => None,
    }
}

/// Decodes plain little-endian elements.
///
/// # Panics
/// If `bytes` does not hold `out.len()` elements, or for `Q8`, which no checkpoint holds.
pub fn decode_plain(dtype: Dtype, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        Dtype::Bf16 => {
            assert_eq!(bytes.len(), out.len() * 2, "two bytes an element");
            for (x, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *x = f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
            }
        }
        Dtype::F16 => {
            assert_eq!(bytes.len(), out.len() * 2, "two bytes an element");
            for (x, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *x = smoe_codec::half::f16_to_f32(u16::from_le_bytes([b[0], b[1]]));
            }
        }
        Dtype::F32 => {
            assert_eq!(bytes.len(), out.len() * 4, "four bytes an element");
            for (x, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *x = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        Dtype::Q8 => unreachable!("a checkpoint holds no q8 tensor"),
    }
}

/// Refuses an element type that is not read.
pub fn unsupported(file: &str, tensor: &str, dtype: &str) -> CheckpointError {
    CheckpointError::item(file, tensor, format!("expected BF16, F16 or F32, found {dtype}"))
        .hint("this element type is not read for this tensor")
}
