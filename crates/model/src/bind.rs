//! Binds the tensors of a checkpoint to the roles of a spec: each tensor used once or skipped by name, each role filled.

use crate::error::CheckpointError;
use crate::families::{Experts, Family, Seen};
use crate::needs::trunk_needs;
use crate::role::{Binding, Bindings, ExpertBindings, ExpertView, Role, Rows};
use crate::spec::{ModelSpec, MoeSpec};
use std::collections::{BTreeMap, BTreeSet};

/// What the binder may know of a tensor: its logical shape (block formats: of the decoded weights) and its file.
#[derive(Debug, Clone)]
pub struct Found {
    /// Logical shape.
    pub shape: Vec<usize>,
    /// File that holds it.
    pub file: String,
}

/// The result: bindings, and the tensors that rules skipped.
#[derive(Debug)]
pub struct Bound {
    /// Roles to tensors.
    pub bindings: Bindings,
    /// Rule and name of each skipped tensor.
    pub skipped: Vec<(&'static str, String)>,
}

/// Binds `tensors` (logical names) to `spec` by the tables of `family`.
///
/// # Errors
/// A role without a tensor, a shape that contradicts the config, a tensor that no rule claims.
pub fn bind(family: &Family, spec: &ModelSpec, tensors: &BTreeMap<String, Found>) -> Result<Bound, CheckpointError> {
    let mut binder = Binder { family, spec, tensors, claimed: BTreeSet::new() };
    let mut bindings = Bindings::default();
    for (role, shape) in trunk_needs(spec) {
        let binding = binder.trunk(role, shape)?;
        bindings.trunk.insert(role, binding);
    }
    for (l, moe) in spec.moe_layers() {
        let experts = binder.experts(l, moe)?;
        bindings.experts.insert(l, experts);
    }
    let skipped = binder.rest()?;
    Ok(Bound { bindings, skipped })
}

/// Runs of rows `(first, count)`.
type Runs = Vec<(usize, usize)>;

struct Binder<'a> {
    family: &'a Family,
    spec: &'a ModelSpec,
    tensors: &'a BTreeMap<String, Found>,
    claimed: BTreeSet<String>,
}

impl Binder<'_> {
    fn trunk(&mut self, role: Role, shape: Vec<usize>) -> Result<Binding, CheckpointError> {
        let (name, rows) = self.name(role)?;
        let found = &self.tensors[&name];
        let stored = drop_ones(&found.shape);
        let (rows, stored) = match rows {
            None => (Rows::All, stored),
            Some(runs) => {
                let count = runs.iter().map(|r| r.1).sum();
                let in_file = stored.first().copied().unwrap_or(0);
                if runs.iter().any(|&(first, n)| first + n > in_file) {
                    return Err(self.shape_fault(&name, found, &shape));
                }
                (Rows::Runs(runs), [&[count], stored.get(1..).unwrap_or(&[])].concat())
            }
        };
        if stored != drop_ones(&shape) {
            return Err(self.shape_fault(&name, found, &shape));
        }
        self.claimed.insert(name.clone());
        Ok(Binding { tensor: name, rows, shape })
    }

    fn shape_fault(&self, name: &str, found: &Found, expected: &[usize]) -> CheckpointError {
        CheckpointError::item(
            &found.file,
            name,
            format!("expected shape {expected:?} by config.json, found {:?}", found.shape),
        )
    }

    /// The tensor that holds `role` and the rows of it.
    fn name(&self, role: Role) -> Result<(String, Option<Runs>), CheckpointError> {
        let trunk = &self.family.trunk;
        let bias = |name: &str| name.replace(".weight", ".bias");
        let fixed = |name: String| {
            if self.tensors.contains_key(&name) { Ok((name.clone(), None)) } else { Err(self.missing(&name)) }
        };
        let (l, part) = match role {
            Role::Embedding => return fixed(trunk.embedding.into()),
            Role::FinalNorm => return fixed(trunk.final_norm.into()),
            Role::FinalNormBias => return fixed(bias(trunk.final_norm)),
            Role::Head => return fixed(trunk.head.into()),
            Role::HeadBias => return fixed(bias(trunk.head)),
            Role::Layer(l, part) => (l, part),
        };
        let entries: Vec<(String, Seen)> = trunk
            .layer
            .iter()
            .filter(|entry| entry.0 == part)
            .map(|entry| (entry.1.replace("{l}", &l.to_string()), entry.2))
            .collect();
        let Some((name, seen)) = entries.iter().find(|(name, _)| self.tensors.contains_key(name)) else {
            let name = entries.first().map_or_else(|| format!("{part:?} of layer {l}"), |e| e.0.clone());
            return Err(self.missing(&name));
        };
        let rows = match seen {
            Seen::Whole => None,
            Seen::Rows(of) => Some(of(&self.spec.layers[l])),
        };
        Ok((name.clone(), rows))
    }

    /// A missing tensor, with what its layer has instead.
    fn missing(&self, name: &str) -> CheckpointError {
        let parent = name.trim_end_matches(".weight").rsplit_once('.').map_or("", |p| p.0);
        let prefix = format!("{parent}.");
        let near: Vec<&str> = self
            .tensors
            .keys()
            .filter(|n| n.starts_with(&prefix) && !self.claimed.contains(*n))
            .map(String::as_str)
            .take(4)
            .collect();
        let there = if near.is_empty() {
            format!("no tensor begins with {prefix}")
        } else {
            format!("there is {}", near.join(", "))
        };
        CheckpointError::item("checkpoint", name, format!("is missing; {there}"))
            .hint(format!("config.json of family {} asks for it; download the checkpoint again", self.family.name))
    }

    fn experts(&mut self, l: usize, moe: &MoeSpec) -> Result<ExpertBindings, CheckpointError> {
        let at = |name: &str| name.replace("{l}", &l.to_string());
        let layouts = self.family.experts;
        let there = layouts.iter().find(|layout| {
            let first = match layout {
                Experts::Each { names } => at(names[0]).replace("{e}", "0"),
                Experts::Stacked { gate_up, .. } => at(gate_up),
            };
            self.tensors.contains_key(&first)
        });
        let (width, hidden, n) = (moe.width, self.spec.hidden, moe.experts);
        match there.or(layouts.first()) {
            None => Err(CheckpointError::file("checkpoint", format!("layer {l} has no expert layout"))),
            Some(Experts::Each { names }) => {
                let shapes = [[width, hidden], [width, hidden], [hidden, width]];
                let mut views = Vec::new();
                for (name, shape) in names.iter().zip(shapes) {
                    let pattern = at(name);
                    for e in 0..n {
                        self.claim(&pattern.replace("{e}", &e.to_string()), &shape)?;
                    }
                    views.push(ExpertView {
                        tensor: pattern,
                        offset: 0,
                        expert_stride: 0,
                        row_stride: shape[1],
                        col_stride: 1,
                    });
                }
                let weights = views.try_into().map_err(|_| CheckpointError::file("checkpoint", "three projections"))?;
                Ok(ExpertBindings { weights, biases: None })
            }
            Some(Experts::Stacked { gate_up, down, transposed, interleaved, biases }) => {
                let (gate_up, down) = (at(gate_up), at(down));
                let (gu_shape, d_shape) = if *transposed {
                    ([n, hidden, 2 * width], [n, width, hidden])
                } else {
                    ([n, 2 * width, hidden], [n, hidden, width])
                };
                self.claim(&gate_up, &gu_shape)?;
                self.claim(&down, &d_shape)?;
                let weights = stacked_views(&gate_up, &down, [width, hidden], *transposed, *interleaved);
                let biases = match biases {
                    Some([b_gu, b_d]) if moe.expert_bias => {
                        let (b_gu, b_d) = (at(b_gu), at(b_d));
                        self.claim(&b_gu, &[n, 2 * width])?;
                        self.claim(&b_d, &[n, hidden])?;
                        Some(stacked_biases(&b_gu, &b_d, [width, hidden], *interleaved))
                    }
                    _ => None,
                };
                Ok(ExpertBindings { weights, biases })
            }
        }
    }

    fn claim(&mut self, name: &str, shape: &[usize]) -> Result<(), CheckpointError> {
        let found = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        if found.shape != shape {
            return Err(self.shape_fault(name, found, shape));
        }
        self.claimed.insert(name.to_owned());
        Ok(())
    }

    /// What is left is skipped by a rule or refused.
    fn rest(&self) -> Result<Vec<(&'static str, String)>, CheckpointError> {
        let mut skipped = Vec::new();
        for (name, found) in self.tensors.iter().filter(|(name, _)| !self.claimed.contains(*name)) {
            let rule = self.family.skips.iter().find(|s| skips(s.prefix, name, self.spec.layers.len()));
            let rule = rule.ok_or_else(|| {
                CheckpointError::item(
                    &found.file,
                    name,
                    format!("no rule of family {} claims this tensor", self.family.name),
                )
                .hint("config.json may be of another model, or the family has a variant that is not read")
            })?;
            skipped.push((rule.rule, name.clone()));
        }
        Ok(skipped)
    }
}

fn skips(prefix: &str, name: &str, layers: usize) -> bool {
    match prefix.split_once("{L}") {
        None => name.starts_with(prefix),
        Some((before, _)) => name
            .strip_prefix(before)
            .and_then(|rest| rest.split('.').next())
            .and_then(|index| index.parse::<usize>().ok())
            .is_some_and(|index| index >= layers),
    }
}

fn drop_ones(shape: &[usize]) -> Vec<usize> {
    shape.iter().copied().filter(|&d| d != 1).collect()
}

fn stacked_views(
    gate_up: &str,
    down: &str,
    [width, hidden]: [usize; 2],
    transposed: bool,
    interleaved: bool,
) -> [ExpertView; 3] {
    let (first, step) = if interleaved { (1, 2) } else { (width, 1) };
    let (row, col) = if transposed { (1, 2 * width) } else { (hidden, 1) };
    let view = |offset| ExpertView {
        tensor: gate_up.to_owned(),
        offset,
        expert_stride: 2 * width * hidden,
        row_stride: step * row,
        col_stride: col,
    };
    let (row_d, col_d) = if transposed { (1, hidden) } else { (width, 1) };
    let down = ExpertView {
        tensor: down.to_owned(),
        offset: 0,
        expert_stride: width * hidden,
        row_stride: row_d,
        col_stride: col_d,
    };
    [view(0), view(first * row), down]
}

fn stacked_biases(gate_up: &str, down: &str, [width, hidden]: [usize; 2], interleaved: bool) -> [ExpertView; 3] {
    let (first, step) = if interleaved { (1, 2) } else { (width, 1) };
    let view = |tensor: &str, offset, stride, step| ExpertView {
        tensor: tensor.to_owned(),
        offset,
        expert_stride: stride,
        row_stride: step,
        col_stride: 0,
    };
    [view(gate_up, 0, 2 * width, step), view(gate_up, first, 2 * width, step), view(down, 0, hidden, 1)]
}
