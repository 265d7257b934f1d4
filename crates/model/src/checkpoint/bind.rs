//! Which tensor plays which role: every role finds its tensor, every tensor is used or skipped by a rule.

use super::encoded::{self, Encoded, FP8_SCALE};
use super::expert_layout;
use super::header::{FileDtype, RawTensor};
use super::shards::{Located, Shards};
use crate::error::{CheckpointError, list};
use crate::families::{Family, Packed, SkipRule};
use crate::needs::{part_shape, role_shape};
use crate::plan::ConfigPlan;
use crate::role::{Binding, Bindings, ExpertBindings, Part, Role, Rows};
use crate::spec::{DeltaNet, Head, Mixer, ModelSpec};
use crate::store::Dtype;
use std::collections::BTreeMap;

/// A tensor that is described and not read.
#[derive(Debug, Clone)]
pub struct Found {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// The file that holds it, for messages.
    pub file: String,
}

/// Binds described tensors as those of a checkpoint; also gives rule and name of each that was skipped.
///
/// # Errors
/// A role without a tensor, a shape that contradicts the config, a tensor that no rule claims.
pub fn bind_described(
    plan: &ConfigPlan,
    tensors: Vec<Found>,
) -> Result<(Bindings, Vec<(String, String)>), CheckpointError> {
    let family = crate::families::by_model_type(&plan.spec.family)?;
    let describe = |found: Found| {
        let dtype = match found.dtype {
            Dtype::Bf16 => FileDtype::Bf16,
            Dtype::F16 => FileDtype::F16,
            Dtype::F32 => FileDtype::F32,
            Dtype::Q8 => FileDtype::Other("Q8".into(), None),
        };
        (found.file, RawTensor { name: found.name.into(), dtype, shape: found.shape, offset: 0, len: 0 })
    };
    let shards = Shards::described(tensors.into_iter().map(describe).collect());
    let bound = bind(&shards, family, plan)?;
    Ok((bound.bindings, bound.skipped))
}

/// The result of binding.
pub(crate) struct Bound {
    pub(crate) bindings: Bindings,
    /// Rule and name of each tensor that was skipped.
    pub(crate) skipped: Vec<(String, String)>,
    /// A head's tensor where the config ties the head: its bytes must be the embedding's.
    pub(crate) spare_head: Option<String>,
    /// Tensors by storage format.
    pub(crate) formats: BTreeMap<String, usize>,
}

/// Binds a checkpoint's tensors.
pub(crate) fn bind(shards: &Shards, family: &Family, plan: &ConfigPlan) -> Result<Bound, CheckpointError> {
    let prefix = prefix(shards, family)?;
    let used = vec![false; shards.tensors().len()];
    let mut binder = Binder { shards, family, plan, prefix, used, formats: BTreeMap::new() };
    let mut trunk = BTreeMap::new();
    for (name, role) in family.globals {
        if let Some(shape) = role_shape(&plan.spec, *role) {
            let name = binder.global(name, *role);
            trunk.insert(*role, binder.whole(&[name], &[shape])?);
        }
    }
    let spare_head = binder.spare_head();
    let mut experts = BTreeMap::new();
    for i in 0..plan.spec.layers.len() {
        binder.layer(i, &mut trunk)?;
        if let Some(found) = binder.experts(i)? {
            experts.insert(i, found);
        }
    }
    let skipped = binder.rest()?;
    Ok(Bound { bindings: Bindings { trunk, experts }, skipped, spare_head, formats: binder.formats })
}

/// What stands before the names, by the tensor that every model has.
fn prefix<'a>(shards: &Shards, family: &Family) -> Result<&'a str, CheckpointError>
where
    'static: 'a,
{
    let embedding = family.globals.iter().find(|(_, role)| *role == Role::Embedding).map_or("", |(name, _)| name);
    let found = family.prefixes.iter().find(|prefix| shards.get(&format!("{prefix}{embedding}")).is_some());
    found.copied().ok_or_else(|| {
        let names: Vec<String> = family.prefixes.iter().map(|prefix| format!("{prefix}{embedding}")).collect();
        let text = format!("in no file; found there: {}", shards.found_below("", 8));
        CheckpointError::item(shards.all(), names.join("` or `"), text)
    })
}

pub(super) struct Binder<'a> {
    pub(super) shards: &'a Shards,
    pub(super) family: &'a Family,
    pub(super) plan: &'a ConfigPlan,
    prefix: &'a str,
    used: Vec<bool>,
    formats: BTreeMap<String, usize>,
}

impl<'a> Binder<'a> {
    fn spec(&self) -> &'a ModelSpec {
        &self.plan.spec
    }

    /// The head lies beside the model, all else inside it.
    fn global(&self, name: &str, role: Role) -> String {
        match role {
            Role::Head | Role::HeadBias => name.to_owned(),
            _ => format!("{}{name}", self.prefix),
        }
    }

    pub(super) fn layer_prefix(&self, i: usize) -> String {
        format!("{}layers.{i}.", self.prefix)
    }

    pub(super) fn find(&self, name: &str) -> Result<Option<Encoded<'a>>, CheckpointError> {
        encoded::find(self.shards, self.plan.format, name)
    }

    /// Claims the weight `name`, which must have one of the shapes.
    pub(super) fn claim(&mut self, weight: &Encoded<'a>, shapes: &[Vec<usize>]) -> Result<(), CheckpointError> {
        weight.check(self.shards, shapes)?;
        *self.formats.entry(weight.format().to_owned()).or_default() += 1;
        for tensor in weight.tensors() {
            if let Some(at) = self.shards.position(&tensor.entry.name) {
                self.used[at] = true;
            }
        }
        Ok(())
    }

    /// Binds the first of `names` that is there, all of it. The first of the shapes is the role's.
    fn whole(&mut self, names: &[String], shapes: &[Vec<usize>]) -> Result<Binding, CheckpointError> {
        for name in names {
            if let Some(weight) = self.find(name)? {
                self.claim(&weight, shapes)?;
                return Ok(Binding { tensor: name.clone(), rows: Rows::All, shape: shapes[0].clone() });
            }
        }
        Err(self.missing(names, &shapes[0]))
    }

    /// The error about a tensor that is in no file.
    pub(super) fn missing(&self, names: &[String], shape: &[usize]) -> CheckpointError {
        let name = names.join("` or `");
        let parent = names[0].trim_end_matches(".weight").rsplit_once('.').map_or("", |(parent, _)| parent);
        let text = format!("in no file, expected {shape:?}; {}", self.near(&format!("{parent}.")));
        CheckpointError::item(self.shards.all(), name, text + "; download what is missing, or correct config.json")
    }

    /// Tensors below `prefix` that nothing has claimed yet, in words.
    fn near(&self, prefix: &str) -> String {
        let unused = |t: &&Located| self.shards.position(&t.entry.name).is_some_and(|at| !self.used[at]);
        let near: Vec<&str> = self.shards.starting_with(prefix).filter(unused).map(|t| &*t.entry.name).collect();
        if near.is_empty() {
            format!("nothing else begins with `{prefix}`")
        } else {
            format!("there is {}", list(&near, 6))
        }
    }

    fn spare_head(&mut self) -> Option<String> {
        if self.spec().head != Head::Tied {
            return None;
        }
        let (name, _) = self.family.globals.iter().find(|(_, role)| *role == Role::Head)?;
        let at = self.shards.position(name)?;
        self.used[at] = true;
        Some((*name).to_owned())
    }

    /// Binds the trunk parts of a layer.
    fn layer(&mut self, i: usize, trunk: &mut BTreeMap<Role, Binding>) -> Result<(), CheckpointError> {
        let spec = self.spec();
        let prefix = self.layer_prefix(i);
        let mut packed = BTreeMap::new();
        if let Mixer::DeltaNet(net) = &spec.layers[i].mixer {
            for (name, kind) in self.family.packed {
                self.unpack(&format!("{prefix}{name}"), *kind, net, &mut packed)?;
            }
        }
        for part in Part::ALL {
            let Some(shape) = part_shape(spec, &spec.layers[i], part) else { continue };
            let binding = match packed.remove(&part) {
                Some(binding) => binding,
                None => {
                    let tables = self.family.tensors.iter().flat_map(|table| table.iter());
                    let names: Vec<String> =
                        tables.filter(|(_, p)| *p == part).map(|(name, _)| format!("{prefix}{name}")).collect();
                    if names.is_empty() {
                        let text = format!("{part:?} of layer {i} has no name in family {}", self.family.name);
                        return Err(CheckpointError::file("checkpoint", text));
                    }
                    self.whole(&names, &stored_shapes(part, shape))?
                }
            };
            trunk.insert(Role::Layer(i, part), binding);
        }
        Ok(())
    }

    /// Splits a tensor that holds several parts by key head. A file may hold the parts apart instead.
    fn unpack(
        &mut self,
        name: &str,
        kind: Packed,
        net: &DeltaNet,
        out: &mut BTreeMap<Part, Binding>,
    ) -> Result<(), CheckpointError> {
        let Some(weight) = self.find(name)? else { return Ok(()) };
        let values = net.value_heads / net.key_heads;
        // Rows of one key head's block, and which part each run belongs to, in the order of the part's own rows.
        let (k, v) = (net.key_dim, values * net.value_dim);
        let parts: &[(Part, &[(usize, usize)])] = match kind {
            Packed::QkvzPerHead => {
                &[(Part::DeltaQkv, &[(0, k), (k, k), (2 * k, v)]), (Part::DeltaZ, &[(2 * k + v, v)])]
            }
            Packed::BaPerHead => &[(Part::DeltaB, &[(0, values)]), (Part::DeltaA, &[(values, values)])],
        };
        let block: usize = parts.iter().flat_map(|(_, runs)| runs.iter()).map(|(_, count)| count).sum();
        let hidden = self.spec().hidden;
        self.claim(&weight, &[vec![block * net.key_heads, hidden]])?;
        for (part, runs) in parts {
            let rows: Vec<(usize, usize)> = runs
                .iter()
                .flat_map(|(at, count)| (0..net.key_heads).map(move |head| (head * block + at, *count)))
                .collect();
            let count = rows.iter().map(|(_, count)| count).sum();
            let binding = Binding { tensor: name.to_owned(), rows: Rows::Runs(rows), shape: vec![count, hidden] };
            out.insert(*part, binding);
        }
        Ok(())
    }

    fn experts(&mut self, i: usize) -> Result<Option<ExpertBindings>, CheckpointError> {
        match &self.spec().layers[i].mlp {
            crate::spec::Mlp::Dense { .. } => Ok(None),
            crate::spec::Mlp::Moe(moe) => expert_layout::bind(self, i, moe).map(Some),
        }
    }

    /// Skips what rules skip; any other tensor that is left is an error.
    fn rest(&self) -> Result<Vec<(String, String)>, CheckpointError> {
        let mut skipped = Vec::new();
        for (tensor, _) in self.shards.tensors().iter().zip(&self.used).filter(|(_, used)| !**used) {
            let name = &*tensor.entry.name;
            let rule = self.family.skips.iter().find(|skip| self.skips(&skip.what, name));
            let rule = rule.ok_or_else(|| self.unclaimed(tensor))?;
            skipped.push((rule.rule.to_owned(), name.to_owned()));
        }
        Ok(skipped)
    }

    fn skips(&self, rule: &SkipRule, name: &str) -> bool {
        match rule {
            SkipRule::Prefix(starts) => starts.iter().any(|start| name.starts_with(start)),
            SkipRule::Suffix(ends) => ends.iter().any(|end| name.ends_with(end)),
            SkipRule::LayersPast => self.layer_of(name).is_some_and(|layer| {
                let n = self.spec().layers.len();
                (n..n + self.plan.mtp_layers).contains(&layer)
            }),
        }
    }

    /// The layer's index in a tensor's name.
    fn layer_of(&self, name: &str) -> Option<usize> {
        let rest = name.strip_prefix(self.prefix)?.strip_prefix("layers.")?;
        rest.split_once('.')?.0.parse().ok()
    }

    fn unclaimed(&self, tensor: &Located) -> CheckpointError {
        let (name, family, n) = (&*tensor.entry.name, self.family.name, self.spec().layers.len());
        let layer = self.layer_of(name);
        let text = if name.ends_with(FP8_SCALE) {
            "the scales of an fp8 weight, which is in no file or is not fp8; download the checkpoint again".to_owned()
        } else if [".qweight", ".qzeros", ".g_idx"].iter().any(|end| name.ends_with(end)) {
            "a part of a GPTQ or AWQ weight, which is not read; use the unquantised release".to_owned()
        } else if let Some(layer) = layer.filter(|layer| *layer >= n) {
            let announced = self.plan.mtp_layers;
            format!(
                "layer {layer} is past the {n} layers of config.json, which announces {announced} prediction layers"
            )
        } else {
            let known = match layer {
                Some(layer) => format!("layer {layer} of it has {}", list(&self.known(layer), 40)),
                None => format!("outside of layers it has {}", list(&self.known_globals(), 8)),
            };
            format!("no rule of family {family} claims it; {known}")
        };
        CheckpointError::item(self.shards.file_of(tensor), name, text)
    }

    /// Names that a layer may have.
    fn known(&self, layer: usize) -> Vec<String> {
        let spec = self.spec();
        let has = |part: Part| part_shape(spec, &spec.layers[layer], part).is_some();
        let names = self.family.tensors.iter().flat_map(|table| table.iter());
        let mut names: Vec<String> = names.filter(|(_, part)| has(*part)).map(|(name, _)| (*name).to_owned()).collect();
        if matches!(spec.layers[layer].mlp, crate::spec::Mlp::Moe(_)) {
            names.extend(self.family.experts.iter().map(expert_layout::describe));
        }
        names
    }

    fn known_globals(&self) -> Vec<String> {
        let spec = self.spec();
        let has = |role: &Role| role_shape(spec, *role).is_some();
        self.family.globals.iter().filter(|(_, role)| has(role)).map(|(name, role)| self.global(name, *role)).collect()
    }
}

/// The shapes in which a role's tensor may be stored, its own first.
fn stored_shapes(part: Part, shape: Vec<usize>) -> Vec<Vec<usize>> {
    match (part, &shape[..]) {
        (Part::DeltaConv | Part::ConvTaps, &[channels, taps]) => vec![shape, vec![channels, 1, taps]],
        (Part::RouterSelectionBias, &[experts]) => vec![shape, vec![1, experts]],
        _ => vec![shape],
    }
}
