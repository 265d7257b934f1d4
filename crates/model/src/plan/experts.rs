//! Feed-forward parts from fields.

use super::Builder;
use crate::config::Field;
use crate::error::CheckpointError;
use crate::families::{GroupRule, NormalRule, SharedRule};
use crate::spec::{Activation, ExpertGroups, Mlp, MoeSpec, Normalise, RouterScore, RouterSpec, SharedExpert};

impl Builder<'_> {
    /// The feed-forward part of every layer.
    pub(super) fn mlps(&mut self) -> Result<Vec<Mlp>, CheckpointError> {
        let moe = self.moe_layers()?;
        if !moe.contains(&true) {
            return Err(self
                .values
                .fault(Field::Experts, "no layer has experts: a dense model, which smoe is not for"));
        }
        let mut of_kind = Vec::with_capacity(moe.len());
        for (i, moe) in moe.into_iter().enumerate() {
            let mlp = if moe {
                Mlp::Moe(self.moe(i)?)
            } else {
                Mlp::Dense { width: self.values.size(Field::DenseWidth)?, act: self.activation()? }
            };
            of_kind.push(mlp);
        }
        Ok(of_kind)
    }

    /// Which layers have experts: every rule that the config states must let the layer through.
    fn moe_layers(&self) -> Result<Vec<bool>, CheckpointError> {
        let (values, n) = (self.values, self.layers);
        if let Some(words) = values.words(Field::MlpTypes, n)? {
            let kind = |word: &str| match word {
                "sparse" => Ok(true),
                "dense" => Ok(false),
                _ => Err(values.fault(Field::MlpTypes, format!("`{word}` is not supported; expected sparse or dense"))),
            };
            let kinds = words.into_iter().map(kind).collect::<Result<Vec<bool>, _>>()?;
            let first = values.count(Field::FirstDense)?;
            if first.is_some_and(|first| kinds.iter().enumerate().any(|(i, moe)| *moe != (i >= first))) {
                let text = format!("does not agree with `{}`; keep the right one", values.key(Field::FirstDense));
                return Err(values.fault(Field::MlpTypes, text));
            }
            return Ok(kinds);
        }
        let first = values.count(Field::FirstDense)?.unwrap_or(0);
        let every = values.size_or_off(Field::MoeEvery)?.unwrap_or(1);
        let from = values.count(Field::MoeFrom)?.unwrap_or(0);
        let to = match values.get(Field::MoeTo).and_then(serde_json::Value::as_i64) {
            Some(-1) | None => n - 1,
            Some(_) => values.count(Field::MoeTo)?.unwrap_or(n - 1),
        };
        let dense = values.counts(Field::MlpOnly)?;
        if let Some(layer) = dense.iter().find(|layer| **layer >= n) {
            return Err(values.fault(Field::MlpOnly, format!("names layer {layer} of {n}")));
        }
        Ok((0..n).map(|i| i >= first && i >= from && i <= to && (i + 1) % every == 0 && !dense.contains(&i)).collect())
    }

    fn moe(&self, layer: usize) -> Result<MoeSpec, CheckpointError> {
        let (values, arch, n) = (self.values, self.arch, self.layers);
        let of_layer = |field| values.of_layer(field, layer, n);
        let need = |field, found: Option<usize>| {
            found.filter(|n| *n > 0).ok_or_else(|| values.fault(field, "expected a number above 0"))
        };
        let experts = need(Field::Experts, of_layer(Field::Experts)?)?;
        let top_k = need(Field::TopK, of_layer(Field::TopK)?)?;
        let width = need(Field::ExpertWidth, of_layer(Field::ExpertWidth)?)?;
        if let Some(other) = of_layer(Field::ExpertWidthToo)?.filter(|other| *other != width) {
            let text = format!("is {other}, and `{}` is {width}; keep the right one", values.key(Field::ExpertWidth));
            return Err(values.fault(Field::ExpertWidthToo, text));
        }
        if top_k > experts {
            let text = format!("chooses {top_k} of the {experts} experts of `{}`", values.key(Field::Experts));
            return Err(values.fault(Field::TopK, text));
        }
        if matches!(arch.score, RouterScore::SparseMixer { .. }) && top_k != 2 {
            return Err(
                values.fault(Field::TopK, format!("{top_k}, expected 2: this family's router takes two rounds"))
            );
        }
        let router = RouterSpec {
            score: self.score()?,
            logit_bias: arch.logit_bias,
            selection_bias: self.flag(arch.selection_bias, Field::SelectionBias)?,
            groups: self.groups(experts, top_k)?,
            normalise: self.normalise()?,
            scale: values.number_or_off(Field::RouterScale)?.unwrap_or(1.0) as f32,
        };
        let shared = self.shared(layer, width)?;
        Ok(MoeSpec { experts, top_k, width, act: self.activation()?, router, shared, expert_bias: arch.expert_bias })
    }

    /// The family's activation, with the constants of the config where it states the first of them: a config without
    /// it is older than the keys, and the family's constants hold.
    fn activation(&self) -> Result<Activation, CheckpointError> {
        match self.arch.act {
            Activation::ClampedSwiGlu { limit, .. } if self.values.get(Field::GateAlpha).is_some() => {
                let limit = match self.values.get(Field::GateLimit) {
                    Some(_) => self.values.positive(Field::GateLimit)? as f32,
                    None => limit,
                };
                Ok(Activation::ClampedSwiGlu { limit, alpha: self.values.number(Field::GateAlpha)? as f32 })
            }
            act => Ok(act),
        }
    }

    fn score(&self) -> Result<RouterScore, CheckpointError> {
        match self.arch.score {
            RouterScore::SparseMixer { .. } => {
                Ok(RouterScore::SparseMixer { jitter: self.values.number(Field::RouterJitter)? as f32 })
            }
            score => Ok(score),
        }
    }

    fn normalise(&self) -> Result<Option<Normalise>, CheckpointError> {
        match self.arch.normalise {
            NormalRule::Never => Ok(None),
            NormalRule::Always(normalise) => Ok(Some(normalise)),
            NormalRule::ByKey(normalise) => Ok(self.values.flag(Field::NormTopk)?.then_some(normalise)),
            NormalRule::Floor => {
                Ok(Some(Normalise { eps: 0.0, floor: self.values.positive(Field::NormFloor)? as f32 }))
            }
        }
    }

    fn shared(&self, layer: usize, expert_width: usize) -> Result<Option<SharedExpert>, CheckpointError> {
        let gated = match self.arch.shared {
            SharedRule::Never => return Ok(None),
            SharedRule::Plain => false,
            SharedRule::Gated => true,
        };
        let count = self.values.of_layer(Field::SharedCount, layer, self.layers)?.filter(|n| *n > 0);
        let width = match count {
            Some(count) => Some(self.product([Field::SharedCount, Field::ExpertWidth], count, expert_width)?),
            None => self.values.size_or_off(Field::SharedWidth)?,
        };
        Ok(width.map(|width| SharedExpert { width, gated }))
    }

    /// Groups and the relations that they must have; one group is none.
    fn groups(&self, experts: usize, top_k: usize) -> Result<Option<ExpertGroups>, CheckpointError> {
        let values = self.values;
        let scored_by = match self.arch.groups {
            GroupRule::Never => return Ok(None),
            GroupRule::Best(n) => n,
            GroupRule::ByMethod => match values.word(Field::GroupMethod)? {
                Some("group_limited_greedy") => 1,
                Some("greedy") => return Ok(None),
                other => {
                    let text = format!(
                        "{} is not supported; expected greedy or group_limited_greedy",
                        other.unwrap_or("null")
                    );
                    return Err(values.fault(Field::GroupMethod, text));
                }
            },
        };
        let count = match (values.size_or_off(Field::Groups)?, self.arch.groups) {
            (None, GroupRule::ByMethod) => return Err(values.fault(Field::Groups, "its router needs groups")),
            (count, _) => count.unwrap_or(1),
        };
        let keep = match values.size_or_off(Field::GroupsKept)? {
            None if count > 1 => return Err(values.fault(Field::GroupsKept, format!("how many of {count} groups?"))),
            keep => keep.unwrap_or(1),
        };
        let groups_key = values.key(Field::Groups).to_owned();
        let fault = |field, text: String| Err(values.fault(field, text));
        if count > experts || !experts.is_multiple_of(count) {
            let text =
                format!("{count} groups do not divide the {experts} experts of `{}`", values.key(Field::Experts));
            return fault(Field::Groups, text);
        }
        if keep > count {
            return fault(Field::GroupsKept, format!("keeps {keep} of the {count} groups of `{groups_key}`"));
        }
        let size = experts / count;
        if count > 1 && size < scored_by {
            let text = format!(
                "groups of {size}, expected at least {scored_by} experts: `{}` is too small",
                values.key(Field::Experts)
            );
            return fault(Field::Groups, text);
        }
        if top_k > keep * size {
            let text = format!(
                "chooses {top_k}, and the {keep} groups of `{}` hold {}",
                values.key(Field::GroupsKept),
                keep * size
            );
            return fault(Field::TopK, text);
        }
        Ok((count > 1).then_some(ExpertGroups { count, keep, scored_by }))
    }
}
