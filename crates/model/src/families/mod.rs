//! Families: one file each, all of it data. A family says how its config keys become fields, which mechanisms follow
//! from the family itself, and how its tensors are called.

mod deepseek_v2;
mod deepseek_v3;
mod dots1;
mod ernie4_5_moe;
mod family;
mod glm4_moe;
mod glm4_moe_lite;
mod gpt_oss;
mod granitemoe;
mod hunyuan_v1_moe;
mod lfm2_moe;
mod minimax_m2;
mod mixtral;
mod names;
mod olmoe;
mod phimoe;
mod qwen2_moe;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod refused;
mod tensors;

pub use family::Family;
pub(crate) use family::{
    Arch, ExpertNames, Flag, Fused, GroupRule, MixerRule, NormalRule, Packed, SharedRule, SkipRule, WindowRule,
};
pub use tensors::tensors;

pub use crate::plan::{ConfigPlan, spec_from_config};

use crate::error::{CheckpointError, list};

/// Every family that is read.
pub const ALL: &[&Family] = &[
    &mixtral::FAMILY,
    &qwen2_moe::FAMILY,
    &qwen3_moe::FAMILY,
    &qwen3_next::FAMILY,
    &qwen3_5_moe::FAMILY,
    &olmoe::FAMILY,
    &deepseek_v2::FAMILY,
    &deepseek_v3::FAMILY,
    &glm4_moe::FAMILY,
    &glm4_moe_lite::FAMILY,
    &gpt_oss::FAMILY,
    &minimax_m2::FAMILY,
    &granitemoe::FAMILY,
    &lfm2_moe::FAMILY,
    &ernie4_5_moe::FAMILY,
    &hunyuan_v1_moe::FAMILY,
    &dots1::FAMILY,
    &phimoe::FAMILY,
];

/// The family that answers to a `model_type`.
///
/// # Errors
/// When none does, with the reason where it is known, and the families that are read as the hint.
pub fn by_model_type(model_type: &str) -> Result<&'static Family, CheckpointError> {
    if let Some(family) = ALL.iter().find(|family| family.model_types.contains(&model_type)) {
        return Ok(family);
    }
    let why = refused::why(model_type).unwrap_or("not a family that is known");
    let fault = format!("family {model_type} is not read: {why}");
    Err(CheckpointError::key("model_type", fault).hint(format!("families that are read: {}", names())))
}

fn names() -> String {
    ALL.iter().map(|family| family.name).collect::<Vec<_>>().join(", ")
}

/// Whether the tensors are those of the family that `model_type` names.
pub(crate) fn confirm(family: &Family, has: &dyn Fn(&str) -> bool) -> Result<(), CheckpointError> {
    let fits = |f: &Family| f.marks.has.iter().all(|mark| has(mark)) && !f.marks.lacks.iter().any(|mark| has(mark));
    if fits(family) {
        return Ok(());
    }
    let missing: Vec<&str> = family.marks.has.iter().filter(|mark| !has(mark)).copied().collect();
    let extra: Vec<&str> = family.marks.lacks.iter().filter(|mark| has(mark)).copied().collect();
    let what = if missing.is_empty() {
        format!("a layer holds {}, which that family does not have", list(&extra, 3))
    } else {
        format!("no layer holds {}", list(&missing, 3))
    };
    let others: Vec<&str> = ALL.iter().filter(|f| fits(f)).map(|f| f.name).collect();
    let others = if others.is_empty() { "no family that is read".into() } else { others.join(" or ") };
    let fault = format!("says {}, but {what}; the tensors are those of {others}", family.name);
    Err(CheckpointError::key("model_type", fault))
}
