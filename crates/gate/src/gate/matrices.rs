//! Expert matrices byte by byte: which of a candidate's equal their round-to-nearest twin, and do they decode.

use std::collections::BTreeMap;

use smoe_engine::ExpertSource;
use smoe_engine::experts::{Expert, Part};
use smoe_model::role::Proj;
use smoe_vault::Dtype;

use super::arm::Arm;
use super::claims::{Claims, MatrixAt, PROJECTIONS};
use crate::error::GateError;

const PROJ: [Proj; 3] = [Proj::Gate, Proj::Up, Proj::Down];

/// How a candidate's matrices compare with its twin's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Equality {
    /// Matrices of one codec in both.
    pub(crate) compared: usize,
    /// Those that are said to be calibrated and have the twin's codes and scales, byte for byte.
    pub(crate) equal: Vec<MatrixAt>,
    /// Those that are said to be rounded to nearest and are not the twin's.
    pub(crate) unlike: Vec<MatrixAt>,
}

/// Whether two vaults store every matrix in the same codec and every trunk tensor in the same type, so that they weigh
/// the same and differ by how the experts were made alone.
pub(crate) fn same_storage(a: &Arm, b: &Arm) -> bool {
    let codecs = |arm: &Arm| -> Vec<_> { arm.file.experts().iter().map(|r| (r.layer, r.expert, r.codecs)).collect() };
    let trunk = |arm: &Arm| -> BTreeMap<String, (Dtype, u64)> {
        arm.file.manifest().trunk.iter().map(|it| (it.name.clone(), (it.dtype, it.length))).collect()
    };
    codecs(a) == codecs(b) && trunk(a) == trunk(b)
}

/// Compares all matrices of vaults with the same codecs.
pub(crate) fn equality(candidate: &Arm, twin: &Arm, claims: &Claims) -> Result<Equality, GateError> {
    let mut found = Equality::default();
    for record in candidate.file.experts() {
        let (layer, expert) = (record.layer as usize, record.expert as usize);
        let (own, other) =
            (one(&*candidate.experts, layer, record.expert)?, one(&*twin.experts, layer, record.expert)?);
        for (index, proj) in PROJ.into_iter().enumerate() {
            let at = (layer, expert, index);
            found.compared += 1;
            match (bytes(&own, proj) == bytes(&other, proj), claims.rtn.contains(&at)) {
                (true, false) => found.equal.push(at),
                (false, true) => found.unlike.push(at),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// One expert of a source.
pub(crate) fn one(source: &dyn ExpertSource, layer: usize, expert: u32) -> Result<Expert, GateError> {
    let missing = || GateError::input(&format!("layer {layer} expert {expert}"), "expected an expert, found none");
    source.fetch(layer, &[expert])?.pop().ok_or_else(missing)
}

/// Codes and scales.
fn bytes(expert: &Expert, proj: Proj) -> (&[u8], &[u8]) {
    let all = (*expert.bytes).as_ref();
    match expert.part(proj) {
        Part::Coded { codes, scales, .. } => (&all[codes.clone()], &all[scales.clone()]),
        Part::Dense { at, .. } => (&all[at.clone()], &[]),
    }
}

/// Decodes every row of an expert's matrices; whether each weight is finite.
pub(crate) fn decodes(expert: &Expert) -> bool {
    PROJ.into_iter().all(|proj| {
        let Part::Coded { codec, .. } = *expert.part(proj) else { return true };
        let ((_, cols), (codes, scales)) = (expert.shape(proj), bytes(expert, proj));
        let mut row = vec![0.0; cols];
        codes.chunks_exact(codec.code_bytes(cols)).zip(scales.chunks_exact(codec.scale_bytes(cols))).all(|(c, s)| {
            smoe_codec::decode_row(codec, c, s, &mut row);
            row.iter().all(|weight| weight.is_finite())
        })
    })
}

/// Names a matrix.
pub(crate) fn name((layer, expert, projection): MatrixAt) -> String {
    format!("layer {layer} expert {expert} {}", PROJECTIONS[projection])
}

/// The first few names of a list, and how many more there are.
pub(crate) fn listed<T>(items: &[T], name: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 6;
    let mut text = items.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if items.len() > SHOWN {
        text += &format!(" and {} more", items.len() - SHOWN);
    }
    text
}
