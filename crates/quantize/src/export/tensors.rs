//! Which tensors a checkpoint folder of a vault has, and how each is made of the vault's.

use super::Element;
use crate::error::{QuantizeError, Result};
use crate::opened::Opened;
use crate::shards::Entry;
use smoe_model::checkpoint::bind::{Found, bind_described};
use smoe_model::families::{ConfigPlan, tensors};
use smoe_model::role::{Bindings, ExpertBindings, ExpertView, Proj};
use smoe_model::spec::MoeSpec;
use smoe_model::store;
use smoe_vault::Dtype;
use std::collections::{BTreeMap, BTreeSet};

/// How a tensor is made.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A trunk tensor, by its name.
    Trunk(String),
    /// One expert's matrix as it is.
    Matrix { layer: usize, expert: usize, proj: Proj },
    /// Matrices of all experts of a layer, in one tensor.
    Stack { layer: usize, tensor: String, stride: usize },
    /// Biases of all experts of a layer, in one tensor.
    BiasStack { layer: usize, tensor: String, stride: usize },
    /// One expert's bias.
    Bias { layer: usize, expert: usize, proj: Proj },
}

/// A tensor to be written.
pub(super) struct Tensor {
    pub(super) entry: Entry,
    pub(super) source: Source,
}

/// Gate, up and down.
pub(super) const PROJS: [Proj; 3] = [Proj::Gate, Proj::Up, Proj::Down];

/// `[rows, cols]` of an expert matrix.
pub(super) fn shape(hidden: usize, moe: &MoeSpec, proj: Proj) -> [usize; 2] {
    if proj == Proj::Down { [hidden, moe.width] } else { [moe.width, hidden] }
}

/// The tensors of a folder, and where the experts lie in them.
pub(super) struct Target {
    pub(super) tensors: Vec<Tensor>,
    pub(super) experts: BTreeMap<usize, ExpertBindings>,
}

/// The folder's tensors in the order in which the weights came; where that order belongs to a block format that the
/// folder is not in, the experts lie as the family's unquantised releases have them. The list is bound as a checkpoint
/// of `plan` before anything is written.
pub(super) fn target(vault: &Opened, plan: &ConfigPlan, element: Element) -> Result<Target> {
    let own = &vault.bindings.experts;
    let as_it_came = list(vault, own, element).and_then(|tensors| Ok((fits(vault, plan, own, &tensors)?, tensors)));
    if let Ok((true, tensors)) = as_it_came {
        return Ok(Target { tensors, experts: own.clone() });
    }
    let plain = |(name, shape): (String, Vec<usize>)| found(name, store::Dtype::F32, shape);
    let plain = bind_described(plan, tensors(plan)?.into_iter().map(plain).collect())?.0.experts;
    let tensors = list(vault, &plain, element)?;
    if fits(vault, plan, &plain, &tensors)? {
        return Ok(Target { tensors, experts: plain });
    }
    Err(QuantizeError::Refused(format!(
        "{}: its experts lie in an order that no unquantised checkpoint of {} has",
        vault.file.name(),
        vault.spec.family
    )))
}

/// Whether a checkpoint with these tensors is bound as the vault is, its experts as `experts` says.
fn fits(
    vault: &Opened,
    plan: &ConfigPlan,
    experts: &BTreeMap<usize, ExpertBindings>,
    tensors: &[Tensor],
) -> Result<bool> {
    let of = |t: &Tensor| found(t.entry.name.clone(), store::Dtype::F32, t.entry.shape.clone());
    let (bound, skipped) = bind_described(plan, tensors.iter().map(of).collect())?;
    let wanted = Bindings { trunk: vault.bindings.trunk.clone(), experts: experts.clone() };
    Ok(skipped.is_empty() && bound == wanted)
}

fn found(name: String, dtype: store::Dtype, shape: Vec<usize>) -> Found {
    Found { name, dtype, shape, file: "the export".into() }
}

/// Every tensor: the trunk in the vault's order, then the experts by layer.
fn list(vault: &Opened, experts: &BTreeMap<usize, ExpertBindings>, element: Element) -> Result<Vec<Tensor>> {
    let mut out = Vec::new();
    for tensor in &vault.file.manifest().trunk {
        // f32 tensors among bf16 ones (router biases and the like) are published so; they stay.
        let keep = tensor.dtype == Dtype::F32;
        let (dtype, bytes) = if keep { ("F32", 4) } else { (element.safetensors(), element.bytes()) };
        let axis = |&n: &u64| {
            usize::try_from(n).map_err(|_| QuantizeError::Refused(format!("`{}`: an axis of {n}", tensor.name)))
        };
        let shape = tensor.shape.iter().map(axis).collect::<Result<_>>()?;
        let entry = Entry { name: tensor.name.clone(), dtype, shape, element: bytes };
        out.push(Tensor { entry, source: Source::Trunk(tensor.name.clone()) });
    }
    for (layer, moe) in vault.spec.moe_layers() {
        let experts = experts.get(&layer).ok_or_else(|| {
            QuantizeError::Refused(format!("layer {layer}: the vault does not say how its experts were named"))
        })?;
        let mut list = Layer { layer, hidden: vault.spec.hidden, moe, element, out: &mut out, stacks: BTreeSet::new() };
        list.matrices(&experts.weights)?;
        if let Some(biases) = &experts.biases {
            list.biases(biases);
        }
    }
    Ok(out)
}

struct Layer<'a> {
    layer: usize,
    hidden: usize,
    moe: &'a MoeSpec,
    element: Element,
    out: &'a mut Vec<Tensor>,
    stacks: BTreeSet<String>,
}

impl Layer<'_> {
    fn push(&mut self, name: String, shape: Vec<usize>, source: Source) {
        let entry = Entry { name, dtype: self.element.safetensors(), shape, element: self.element.bytes() };
        self.out.push(Tensor { entry, source });
    }

    fn matrices(&mut self, views: &[ExpertView; 3]) -> Result<()> {
        for expert in 0..self.moe.experts {
            for proj in PROJS {
                let view = &views[proj as usize];
                let [rows, cols] = shape(self.hidden, self.moe, proj);
                if view.expert_stride == 0 {
                    if (view.offset, view.row_stride, view.col_stride) != (0, cols, 1) {
                        return Err(self.unknown(view));
                    }
                    let source = Source::Matrix { layer: self.layer, expert, proj };
                    self.push(view.tensor_of(expert), vec![rows, cols], source);
                } else if self.stacks.insert(view.tensor.clone()) {
                    // The last axis runs over the columns, or over the rows of one or of both matrices.
                    let (stride, n) = (view.expert_stride, self.moe.experts);
                    let last = if view.col_stride == 1 { cols } else { view.col_stride };
                    let transposed = view.col_stride != 1;
                    if last == 0 || !stride.is_multiple_of(last) || (transposed && stride / last != cols) {
                        return Err(self.unknown(view));
                    }
                    let shape = vec![n, stride / last, last];
                    let source = Source::Stack { layer: self.layer, tensor: view.tensor.clone(), stride };
                    self.push(view.tensor.clone(), shape, source);
                }
            }
        }
        Ok(())
    }

    fn biases(&mut self, views: &[ExpertView; 3]) {
        for expert in 0..self.moe.experts {
            for proj in PROJS {
                let view = &views[proj as usize];
                if view.expert_stride == 0 {
                    let [rows, _] = shape(self.hidden, self.moe, proj);
                    self.push(view.tensor_of(expert), vec![rows], Source::Bias { layer: self.layer, expert, proj });
                } else if self.stacks.insert(view.tensor.clone()) {
                    let stride = view.expert_stride;
                    let source = Source::BiasStack { layer: self.layer, tensor: view.tensor.clone(), stride };
                    self.push(view.tensor.clone(), vec![self.moe.experts, stride], source);
                }
            }
        }
    }

    fn unknown(&self, view: &ExpertView) -> QuantizeError {
        QuantizeError::Refused(format!(
            "layer {}: `{}` lies in an order that cannot be written as a plain tensor",
            self.layer, view.tensor
        ))
    }
}
