//! How a named weight is stored: as it is, or in a block format beside its scales.

use super::header::{FileDtype, RawTensor};
use super::shards::{Located, Shards};
use crate::error::CheckpointError;
use crate::formats;
use crate::plan::BlockFormat;
use crate::store::Dtype;

/// Suffix of the scales of an fp8 weight.
pub(super) const FP8_SCALE: &str = "_scale_inv";

/// A weight and the tensors that make it up.
pub(crate) enum Encoded<'a> {
    Plain { tensor: &'a Located, dtype: Dtype },
    Fp8 { tensor: &'a Located, scale: &'a Located, block: (usize, usize) },
    Mxfp4 { blocks: &'a Located, scales: &'a Located },
    Int4 { packed: &'a Located, scale: &'a Located, shape: &'a Located, group: usize },
}

/// Finds the weight `name`; for block formats it is the name without their suffix.
pub(crate) fn find<'a>(
    shards: &'a Shards,
    format: Option<BlockFormat>,
    name: &str,
) -> Result<Option<Encoded<'a>>, CheckpointError> {
    let fault =
        |tensor: &Located, text: String| CheckpointError::item(shards.file_of(tensor), &*tensor.entry.name, text);
    let partner = |tensor: &Located, suffix: &str| {
        let other = format!("{name}{suffix}");
        shards
            .get(&other)
            .ok_or_else(|| fault(tensor, format!("its `{other}` is in no file; download the checkpoint again")))
    };
    let not_announced = |tensor: &Located, what: &str| {
        let text = format!("a weight in {what}, and config.json has no `quantization_config` that says so");
        Err(fault(tensor, text))
    };
    if let Some(tensor) = shards.get(name) {
        let dtype = &tensor.entry.dtype;
        if let Some(dtype) = formats::plain(dtype) {
            return Ok(Some(Encoded::Plain { tensor, dtype }));
        }
        if *dtype != FileDtype::F8E4m3 {
            let text = format!("dtype {} is not supported; expected BF16, F16, F32 or F8_E4M3", dtype.name());
            return Err(fault(tensor, text));
        }
        let scale = partner(tensor, FP8_SCALE)?;
        return match format {
            Some(BlockFormat::Fp8 { rows, cols }) => Ok(Some(Encoded::Fp8 { tensor, scale, block: (rows, cols) })),
            _ => not_announced(tensor, "fp8"),
        };
    }
    if let Some(blocks) = shards.get(&format!("{name}_blocks")) {
        let scales = partner(blocks, "_scales")?;
        return match format {
            Some(BlockFormat::Mxfp4) => Ok(Some(Encoded::Mxfp4 { blocks, scales })),
            _ => not_announced(blocks, "MXFP4"),
        };
    }
    let Some(packed) = shards.get(&format!("{name}_packed")) else { return Ok(None) };
    let (scale, shape) = (partner(packed, "_scale")?, partner(packed, "_shape")?);
    match format {
        Some(BlockFormat::Int4 { group }) => Ok(Some(Encoded::Int4 { packed, scale, shape, group })),
        _ => not_announced(packed, "packed int4"),
    }
}

impl<'a> Encoded<'a> {
    /// The tensors that it is made of, the main one first.
    pub(crate) fn tensors(&self) -> Vec<&'a Located> {
        match *self {
            Self::Plain { tensor, .. } => vec![tensor],
            Self::Fp8 { tensor, scale, .. } => vec![tensor, scale],
            Self::Mxfp4 { blocks, scales } => vec![blocks, scales],
            Self::Int4 { packed, scale, shape, .. } => vec![packed, scale, shape],
        }
    }

    /// The main tensor.
    pub(crate) fn main(&self) -> &'a Located {
        match *self {
            Self::Plain { tensor, .. } | Self::Fp8 { tensor, .. } => tensor,
            Self::Mxfp4 { blocks, .. } => blocks,
            Self::Int4 { packed, .. } => packed,
        }
    }

    /// The format's name, for the report.
    pub(crate) fn format(&self) -> &'a str {
        match *self {
            Self::Plain { tensor, .. } => tensor.entry.dtype.name(),
            Self::Fp8 { .. } => "F8_E4M3 in blocks",
            Self::Mxfp4 { .. } => "MXFP4",
            Self::Int4 { .. } => "int4 in groups",
        }
    }

    /// Checks that the decoded weight has one of these shapes (the last two axes are the matrix).
    pub(crate) fn check(&self, shards: &Shards, expected: &[Vec<usize>]) -> Result<(), CheckpointError> {
        let fits = |shape: &[usize], to: &dyn Fn(&[usize]) -> Option<Vec<usize>>| {
            expected.iter().any(|e| to(e).is_some_and(|e| e == shape))
        };
        let need = |tensor: &Located, to: &dyn Fn(&[usize]) -> Option<Vec<usize>>, dtypes: &[FileDtype]| {
            let RawTensor { name, shape, dtype, .. } = &tensor.entry;
            let wrong = |text: String| Err(CheckpointError::item(shards.file_of(tensor), &**name, text));
            if !dtypes.is_empty() && !dtypes.contains(dtype) {
                let names: Vec<&str> = dtypes.iter().map(FileDtype::name).collect();
                return wrong(format!("dtype {}, expected {}", dtype.name(), names.join(" or ")));
            }
            if fits(shape, to) {
                return Ok(());
            }
            let want = expected.first().and_then(|e| to(e)).map_or("another format".into(), |e| format!("{e:?}"));
            wrong(format!("shape {shape:?}, config.json makes it {want}; config and weights do not belong together"))
        };
        match *self {
            Self::Plain { tensor, .. } => need(tensor, &|e| Some(e.to_vec()), &[]),
            Self::Fp8 { tensor, scale, block: (rows, cols) } => {
                need(tensor, &|e| Some(e.to_vec()), &[])?;
                let blocks = |e: &[usize]| over(e, |r, c| vec![r.div_ceil(rows), c.div_ceil(cols)]);
                need(scale, &blocks, &[FileDtype::F32, FileDtype::Bf16])
            }
            Self::Mxfp4 { blocks, scales } => {
                let of = |tail: &'static [usize]| {
                    move |e: &[usize]| {
                        let groups = |r, c: usize| [&[r, c / 32], tail].concat();
                        over(e, groups).filter(|_| e.last().is_some_and(|c| c % 32 == 0))
                    }
                };
                need(blocks, &of(&[16]), &[FileDtype::U8])?;
                need(scales, &of(&[]), &[FileDtype::U8])
            }
            Self::Int4 { packed, scale, shape, group } => {
                need(packed, &|e| over(e, |r, c| vec![r, c.div_ceil(8)]), &[FileDtype::I32])?;
                let groups = |e: &[usize]| over(e, |r, c| vec![r, if group == 0 { 1 } else { c.div_ceil(group) }]);
                need(scale, &groups, &[FileDtype::Bf16, FileDtype::F16, FileDtype::F32])?;
                need(shape, &|e| Some(vec![e.len()]), &[FileDtype::I32, FileDtype::Other("I64".into(), Some(8))])
            }
        }
    }
}

/// A shape with its last two axes replaced.
fn over(shape: &[usize], to: impl Fn(usize, usize) -> Vec<usize>) -> Option<Vec<usize>> {
    let (front, tail) = shape.split_last_chunk::<2>()?;
    let mut out = front.to_vec();
    out.extend(to(tail[0], tail[1]));
    Some(out)
}
