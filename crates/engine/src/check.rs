//! Whether a [`ModelSpec`] can be computed at all: asked once when a model is opened, so that no operation asks again.

use crate::error::EngineError;
use smoe_model::spec::{Mixer, Mlp, ModelSpec, MoeSpec, Rope, RouterScore};

/// The largest size of any axis: beyond every model, and products of three stay within 64 bits.
const LIMIT: usize = 1 << 24;

/// Refuses sizes that are zero, absurd or do not divide.
///
/// # Errors
/// Names the layer and what is wrong with it.
pub(crate) fn check(spec: &ModelSpec) -> Result<(), EngineError> {
    let fail = |text: String| Err(EngineError::Spec(text));
    sizes("model", &[("vocab", spec.vocab), ("hidden", spec.hidden), ("context", spec.context.min(LIMIT))])?;
    if spec.layers.is_empty() || spec.layers.len() > 4096 {
        return fail(format!("{} layers", spec.layers.len()));
    }
    if spec.multipliers.logits_divisor == 0.0 {
        return fail("logits divided by zero".into());
    }
    for (i, layer) in spec.layers.iter().enumerate() {
        let at = format!("layer {i}");
        mixer(&at, &layer.mixer)?;
        match &layer.mlp {
            Mlp::Dense { width, .. } => sizes(&at, &[("width", *width)])?,
            Mlp::Moe(moe) => experts(&at, moe)?,
        }
    }
    Ok(())
}

/// Each named size is from 1 to [`LIMIT`].
fn sizes(at: &str, named: &[(&str, usize)]) -> Result<(), EngineError> {
    match named.iter().find(|(_, size)| !(1..=LIMIT).contains(size)) {
        Some((name, size)) => Err(EngineError::Spec(format!("{at}: {name} {size} is not within 1..={LIMIT}"))),
        None => Ok(()),
    }
}

fn ensure(ok: bool, text: impl FnOnce() -> String) -> Result<(), EngineError> {
    if ok { Ok(()) } else { Err(EngineError::Spec(text())) }
}

fn mixer(at: &str, mixer: &Mixer) -> Result<(), EngineError> {
    match mixer {
        Mixer::Gqa(gqa) => {
            sizes(at, &[("heads", gqa.heads), ("kv_heads", gqa.kv_heads), ("head_dim", gqa.head_dim)])?;
            sizes(at, &[("query width", gqa.heads.saturating_mul(gqa.head_dim).saturating_mul(2))])?;
            sizes(at, &[("window", gqa.window.unwrap_or(1).min(LIMIT))])?;
            ensure(gqa.heads.is_multiple_of(gqa.kv_heads), || {
                format!("{at}: {} query heads over {} key heads", gqa.heads, gqa.kv_heads)
            })?;
            ensure(gqa.clip_qkv.is_none_or(|clip| clip >= 0.0), || format!("{at}: clip_qkv is negative"))?;
            gqa.rope.as_ref().map_or(Ok(()), |r| rope(at, r, gqa.head_dim))
        }
        Mixer::Mla(mla) => {
            sizes(at, &[("heads", mla.heads), ("kv_rank", mla.kv_rank), ("q_rank", mla.q_rank.unwrap_or(1))])?;
            sizes(at, &[("nope_dim", mla.nope_dim), ("rope_dim", mla.rope_dim), ("v_dim", mla.v_dim)])?;
            let widest = mla.nope_dim.max(mla.rope_dim).max(mla.v_dim);
            sizes(at, &[("head widths", mla.heads.saturating_mul(widest).saturating_mul(2))])?;
            ensure(mla.rope.dim == mla.rope_dim, || {
                format!("{at}: rotary width {} of a rotated part of {}", mla.rope.dim, mla.rope_dim)
            })?;
            rope(at, &mla.rope, mla.rope_dim)
        }
        Mixer::DeltaNet(d) => {
            sizes(at, &[("key_heads", d.key_heads), ("value_heads", d.value_heads), ("key_dim", d.key_dim)])?;
            sizes(at, &[("value_dim", d.value_dim), ("conv_kernel", d.conv_kernel)])?;
            let widest = d.key_heads.max(d.value_heads).saturating_mul(d.key_dim.max(d.value_dim));
            let memory = d.value_heads.saturating_mul(d.key_dim).saturating_mul(d.value_dim);
            sizes(at, &[("head widths", widest.saturating_mul(3)), ("memory", memory)])?;
            ensure(d.value_heads.is_multiple_of(d.key_heads), || {
                format!("{at}: {} value heads over {} key heads", d.value_heads, d.key_heads)
            })
        }
        Mixer::ShortConv { kernel, .. } => sizes(at, &[("kernel", *kernel)]),
    }
}

fn rope(at: &str, rope: &Rope, head_dim: usize) -> Result<(), EngineError> {
    ensure(rope.dim.is_multiple_of(2) && rope.dim <= head_dim && rope.inv_freq.len() == rope.dim / 2, || {
        format!("{at}: rotary width {} with {} angles in heads of {head_dim}", rope.dim, rope.inv_freq.len())
    })
}

fn experts(at: &str, moe: &MoeSpec) -> Result<(), EngineError> {
    sizes(at, &[("experts", moe.experts), ("top_k", moe.top_k), ("width", moe.width)])?;
    sizes(at, &[("shared width", moe.shared.map_or(1, |s| s.width))])?;
    // Far above any model; activations take `top_k` times a pass's tokens.
    ensure(moe.top_k <= 512, || format!("{at}: {} experts a token, at most 512 are computed", moe.top_k))?;
    ensure(moe.top_k <= moe.experts, || format!("{at}: {} experts chosen of {}", moe.top_k, moe.experts))?;
    if let Some(groups) = moe.router.groups {
        sizes(at, &[("groups", groups.count), ("groups kept", groups.keep), ("scored_by", groups.scored_by)])?;
        ensure(moe.experts.is_multiple_of(groups.count) && groups.keep <= groups.count, || {
            format!("{at}: {} of {} groups over {} experts", groups.keep, groups.count, moe.experts)
        })?;
        let reachable = moe.experts / groups.count * groups.keep;
        ensure(moe.top_k <= reachable, || {
            format!("{at}: {} experts chosen of {reachable} in the kept groups", moe.top_k)
        })?;
    }
    let sparse = matches!(moe.router.score, RouterScore::SparseMixer { .. });
    ensure(!(sparse && moe.router.selection_bias), || format!("{at}: sparsemixer knows no selection bias"))
}

/// The positions that every rotary table of the model holds; `None` where none has a limit.
pub(crate) fn rope_limit(spec: &ModelSpec) -> Option<usize> {
    let ropes = spec.layers.iter().filter_map(|layer| match &layer.mixer {
        Mixer::Gqa(gqa) => gqa.rope.as_ref(),
        Mixer::Mla(mla) => Some(&mla.rope),
        Mixer::DeltaNet(_) | Mixer::ShortConv { .. } => None,
    });
    ropes.filter_map(|rope| rope.limit).min()
}
