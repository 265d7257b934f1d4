//! Token mixers from fields.

use super::Builder;
use crate::config::{Field, RopeRequest, resolve_rope};
use crate::error::CheckpointError;
use crate::families::{MixerRule, WindowRule};
use crate::spec::{DeltaNet, Gqa, Mixer, Mla, QkNorm, Rope};

/// Names of `layer_types`.
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";
const LINEAR: &str = "linear_attention";
const CONV: &str = "conv";

impl Builder<'_> {
    /// The mixer of every layer.
    pub(super) fn mixers(&mut self) -> Result<Vec<Mixer>, CheckpointError> {
        let kinds = self.kinds()?;
        let (values, n) = (self.values, self.layers);
        match self.arch.mixer {
            MixerRule::Mla => {
                let mla = self.mla()?;
                Ok(vec![Mixer::Mla(mla); n])
            }
            rule => {
                let gqa = self.gqa()?;
                let other = match rule {
                    MixerRule::DeltaNet => Some(Mixer::DeltaNet(self.delta_net()?)),
                    MixerRule::ShortConv => Some(Mixer::ShortConv {
                        kernel: values.size(Field::ConvKernel)?,
                        bias: values.flag(Field::ConvBias)?,
                    }),
                    _ => None,
                };
                kinds.iter().map(|kind| self.mixer_of(kind, &gqa, other.as_ref())).collect()
            }
        }
    }

    fn mixer_of(&self, kind: &str, gqa: &Gqa, other: Option<&Mixer>) -> Result<Mixer, CheckpointError> {
        let full = || Gqa { window: None, ..gqa.clone() };
        match (kind, self.arch.mixer, self.arch.window) {
            (FULL, _, WindowRule::All) => Ok(Mixer::Gqa(gqa.clone())),
            (FULL, ..) => Ok(Mixer::Gqa(full())),
            (SLIDING, _, WindowRule::ByLayerType) if gqa.window.is_some() => Ok(Mixer::Gqa(gqa.clone())),
            (SLIDING, _, WindowRule::ByLayerType) => {
                Err(self.values.fault(Field::Window, "null, and `layer_types` has a layer with a window"))
            }
            (LINEAR, MixerRule::DeltaNet, _) | (CONV, MixerRule::ShortConv, _) => {
                other.cloned().ok_or_else(|| self.values.fault(Field::LayerTypes, "has a mixer without sizes"))
            }
            _ => Err(self.values.fault(Field::LayerTypes, format!("`{kind}` is not supported in this family"))),
        }
    }

    /// What each layer is called: by `layer_types`, or by an interval; both must agree.
    fn kinds(&self) -> Result<Vec<String>, CheckpointError> {
        let n = self.layers;
        if let Some(other) = self.values.counts(Field::AttentionKinds)?.iter().find(|kind| **kind != 1) {
            let text = format!("a layer of kind {other} is not supported; expected 1 (softmax attention) everywhere");
            return Err(self.values.fault(Field::AttentionKinds, text));
        }
        let words = self.values.words(Field::LayerTypes, n)?;
        let interval = self.values.size_or_off(Field::FullInterval)?;
        let by_interval =
            interval.map(|every| (0..n).map(|i| if (i + 1) % every == 0 { FULL } else { LINEAR }).collect::<Vec<_>>());
        let kinds = match (words, by_interval) {
            (Some(a), Some(b)) if a != b => {
                let text =
                    format!("does not agree with `{}`; keep the right one", self.values.key(Field::FullInterval));
                return Err(self.values.fault(Field::LayerTypes, text));
            }
            (Some(kinds), _) | (None, Some(kinds)) => kinds,
            (None, None) => match (self.arch.mixer, self.arch.window) {
                (MixerRule::Gqa | MixerRule::Mla, WindowRule::Never | WindowRule::All) => vec![FULL; n],
                (MixerRule::Gqa, _) if self.values.get(Field::Window).is_none() => vec![FULL; n],
                (MixerRule::Gqa, _) if self.values.get(Field::WindowFrom).is_some() => {
                    let first = self.values.count(Field::WindowFrom)?.unwrap_or(n);
                    (0..n).map(|i| if i < first { FULL } else { SLIDING }).collect()
                }
                _ => return Err(self.values.fault(Field::LayerTypes, "this family needs it")),
            },
        };
        Ok(kinds.into_iter().map(str::to_owned).collect())
    }

    fn rope(&self, head_dim: usize) -> Result<(Rope, f64), CheckpointError> {
        self.check_rope_pairs(head_dim)?;
        let request =
            RopeRequest { head_dim, pairing: self.arch.pairing, partial: self.arch.partial, alpha: self.arch.alpha };
        resolve_rope(self.values, &request)
    }

    fn gqa(&self) -> Result<Gqa, CheckpointError> {
        let (values, arch) = (self.values, self.arch);
        let heads = values.size(Field::Heads)?;
        let kv_heads = values.size_or_off(Field::KvHeads)?.unwrap_or(heads);
        if heads % kv_heads != 0 {
            let text = format!("{kv_heads} does not divide the {heads} heads of `{}`", values.key(Field::Heads));
            return Err(values.fault(Field::KvHeads, text));
        }
        let head_dim = match values.size_or_off(Field::HeadDim)? {
            Some(dim) => dim,
            None if self.hidden.is_multiple_of(heads) => self.hidden / heads,
            None => {
                let text = format!("{heads} heads do not divide the width {}, and there is no head width", self.hidden);
                return Err(values.fault(Field::Heads, text));
            }
        };
        self.product([Field::Heads, Field::HeadDim], heads, head_dim)?;
        let (rope, _) = self.rope(head_dim)?;
        let scale = match values.number_or_off(Field::AttentionScale)? {
            Some(scale) => scale,
            None => (head_dim as f64).powf(-0.5),
        };
        let (qk_norm, normed) = arch.qk_norm;
        let qk_norm = if self.flag(normed, Field::QkNorm)? { qk_norm } else { QkNorm::Absent };
        let clip_qkv = match values.number_or_off(Field::ClipQkv)? {
            Some(clip) if clip <= 0.0 => {
                return Err(values.fault(Field::ClipQkv, format!("expected a number above 0, found {clip}")));
            }
            clip => clip.map(|clip| clip as f32),
        };
        Ok(Gqa {
            heads,
            kv_heads,
            head_dim,
            scale: scale as f32,
            rope: Some(rope),
            qk_norm,
            qk_norm_eps: self.eps()?,
            qkv_bias: self.flag(arch.qkv_bias, Field::AttentionBias)?,
            o_bias: self.flag(arch.o_bias, Field::AttentionBias)?,
            window: match arch.window {
                WindowRule::Never => None,
                _ => values.size_or_off(Field::Window)?,
            },
            sinks: arch.sinks,
            output_gate: arch.output_gate,
            clip_qkv,
        })
    }

    fn mla(&self) -> Result<Mla, CheckpointError> {
        let values = self.values;
        let (heads, rope_dim) = (values.size(Field::Heads)?, values.size(Field::RopeDim)?);
        let (nope_dim, v_dim) = (values.size(Field::NopeDim)?, values.size(Field::ValueDim)?);
        for (field, width) in [(Field::NopeDim, nope_dim + rope_dim), (Field::ValueDim, nope_dim + v_dim)] {
            self.product([Field::Heads, field], heads, width)?;
        }
        let (rope, logit_factor) = self.rope(rope_dim)?;
        if rope.dim != rope_dim {
            let text = format!("rotates {} of {rope_dim} channels; expected all of them", rope.dim);
            return Err(values.fault(Field::RopeDim, text));
        }
        Ok(Mla {
            heads,
            q_rank: values.size_or_off(Field::QRank)?,
            kv_rank: values.size(Field::KvRank)?,
            nope_dim,
            rope_dim,
            v_dim,
            rope,
            scale: (((nope_dim + rope_dim) as f64).powf(-0.5) * logit_factor) as f32,
            latent_norm_eps: self.arch.latent_eps,
            bias: values.flag(Field::AttentionBias)?,
        })
    }

    fn delta_net(&self) -> Result<DeltaNet, CheckpointError> {
        let values = self.values;
        let (key_heads, value_heads) = (values.size(Field::DeltaKeyHeads)?, values.size(Field::DeltaValueHeads)?);
        if value_heads % key_heads != 0 {
            let text =
                format!("{value_heads} is no multiple of the {key_heads} of `{}`", values.key(Field::DeltaKeyHeads));
            return Err(values.fault(Field::DeltaValueHeads, text));
        }
        let (key_dim, value_dim) = (values.size(Field::DeltaKeyDim)?, values.size(Field::DeltaValueDim)?);
        self.product([Field::DeltaKeyHeads, Field::DeltaKeyDim], key_heads, key_dim)?;
        self.product([Field::DeltaValueHeads, Field::DeltaValueDim], value_heads, value_dim)?;
        let conv_kernel = values.size(Field::DeltaKernel)?;
        Ok(DeltaNet { key_heads, value_heads, key_dim, value_dim, conv_kernel, norm_eps: self.eps()? })
    }
}
