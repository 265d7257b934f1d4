//! The tensors that a checkpoint of a plan has, by the family's names: for synthetic checkpoints.

use super::{ExpertNames, Family, Packed, by_model_type};
use crate::error::CheckpointError;
use crate::needs::{part_shape, role_shape};
use crate::plan::ConfigPlan;
use crate::role::{Part, Role};
use crate::spec::{Mixer, Mlp};

/// Names and shapes of all tensors of a planned model, unquantised, in the first of the family's published layouts.
///
/// # Errors
/// A plan of a family that is not read.
pub fn tensors(plan: &ConfigPlan) -> Result<Vec<(String, Vec<usize>)>, CheckpointError> {
    let (family, spec) = (by_model_type(&plan.spec.family)?, &plan.spec);
    let prefix = family.prefixes.first().copied().unwrap_or("");
    let mut all = Vec::new();
    for (name, role) in family.globals {
        let prefix = if matches!(role, Role::Head | Role::HeadBias) { "" } else { prefix };
        all.extend(role_shape(spec, *role).map(|shape| (format!("{prefix}{name}"), shape)));
    }
    for i in 0..spec.layers.len() {
        let mut add = |name: &str, shape| all.push((format!("{prefix}layers.{i}.{name}"), shape));
        trunk(family, plan, i, &mut add);
        if let Mlp::Moe(moe) = &spec.layers[i].mlp {
            experts(family, [moe.experts, moe.width, spec.hidden], &mut add);
        }
    }
    Ok(all)
}

fn trunk(family: &Family, plan: &ConfigPlan, layer: usize, add: &mut impl FnMut(&str, Vec<usize>)) {
    let (spec, of_layer) = (&plan.spec, &plan.spec.layers[layer]);
    let mut in_packed: Vec<Part> = Vec::new();
    if let Mixer::DeltaNet(_) = of_layer.mixer {
        for (name, kind) in family.packed {
            let parts = match kind {
                Packed::QkvzPerHead => [Part::DeltaQkv, Part::DeltaZ],
                Packed::BaPerHead => [Part::DeltaB, Part::DeltaA],
            };
            let rows = parts.iter().filter_map(|part| part_shape(spec, of_layer, *part)).map(|shape| shape[0]).sum();
            add(name, vec![rows, spec.hidden]);
            in_packed.extend(parts);
        }
    }
    for part in Part::ALL.into_iter().filter(|part| !in_packed.contains(part)) {
        let name = family.tensors.iter().copied().flatten().find(|(_, p)| *p == part).map(|(name, _)| *name);
        if let (Some(name), Some(shape)) = (name, part_shape(spec, of_layer, part)) {
            add(
                name,
                if part == Part::DeltaConv || part == Part::ConvTaps { vec![shape[0], 1, shape[1]] } else { shape },
            );
        }
    }
}

fn experts(family: &Family, [experts, width, hidden]: [usize; 3], add: &mut impl FnMut(&str, Vec<usize>)) {
    match family.experts.first() {
        None => {}
        Some(ExpertNames::Each(names)) => {
            for e in 0..experts {
                for (name, shape) in names.iter().zip([[width, hidden], [width, hidden], [hidden, width]]) {
                    add(&name.replace("{e}", &e.to_string()), shape.to_vec());
                }
            }
        }
        Some(ExpertNames::Stacked { gate_up, down, biases, transposed, .. }) => {
            let shape = |rows, cols| if *transposed { vec![experts, cols, rows] } else { vec![experts, rows, cols] };
            add(gate_up, shape(2 * width, hidden));
            add(down, shape(hidden, width));
            if let Some([gate_up, down]) = biases {
                add(gate_up, vec![experts, 2 * width]);
                add(down, vec![experts, hidden]);
            }
        }
    }
}
