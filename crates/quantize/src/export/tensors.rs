//! Which tensors a checkpoint folder of a vault has, and how each is made of the vault's.

use super::Element;
use crate::error::{QuantizeError, Result};
use crate::opened::Opened;
use crate::shards::Entry;
use smoe_model::role::{ExpertView, Proj};
use smoe_model::spec::MoeSpec;
use smoe_vault::Dtype;
use std::collections::BTreeSet;

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

/// Every tensor: the trunk in the vault's order, then the experts by layer.
pub(super) fn list(vault: &Opened, element: Element) -> Result<Vec<Tensor>> {
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
        let experts = vault.bindings.experts.get(&layer).ok_or_else(|| {
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
                    let stride = view.expert_stride;
                    if !stride.is_multiple_of(cols) || (view.col_stride != 1 && view.row_stride != 1) {
                        return Err(self.unknown(view));
                    }
                    let (long, n) = (stride / cols, self.moe.experts);
                    let shape = if view.col_stride == 1 { vec![n, long, cols] } else { vec![n, cols, long] };
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
