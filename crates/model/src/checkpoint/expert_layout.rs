//! Expert tensors: which published layout a layer has, and each matrix as a view of it.

use super::bind::Binder;
use super::encoded::Encoded;
use crate::error::{CheckpointError, list};
use crate::families::{ExpertNames, Fused};
use crate::role::{ExpertBindings, ExpertView};
use crate::spec::MoeSpec;

/// Binds the experts of a layer.
pub(super) fn bind(binder: &mut Binder<'_>, layer: usize, moe: &MoeSpec) -> Result<ExpertBindings, CheckpointError> {
    let prefix = binder.layer_prefix(layer);
    let mut found = Vec::new();
    for layout in binder.family.experts {
        if present(binder, &prefix, layout)? {
            found.push(layout);
        }
    }
    match found[..] {
        [ExpertNames::Each(names)] => each(binder, &prefix, names, moe),
        [ExpertNames::Stacked { .. }] => stacked(binder, &prefix, found[0], moe),
        [] => Err(none(binder, &prefix, layer, moe)),
        [a, b, ..] => {
            let text =
                format!("layer {layer} holds experts in two layouts, {} and {}; remove one", describe(a), describe(b));
            Err(CheckpointError::file(binder.shards.all(), text))
        }
    }
}

/// A layout in words.
pub(super) fn describe(layout: &ExpertNames) -> String {
    match layout {
        ExpertNames::Each([gate, ..]) => (*gate).to_owned(),
        ExpertNames::Stacked { gate_up, blocks, .. } => format!("{gate_up}{}", if *blocks { "_blocks" } else { "" }),
    }
}

fn present(binder: &Binder<'_>, prefix: &str, layout: &ExpertNames) -> Result<bool, CheckpointError> {
    match layout {
        ExpertNames::Each(names) => Ok(names.iter().any(|name| {
            let stem = name.split("{e}").next().unwrap_or(name);
            let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
            let start = format!("{prefix}{stem}");
            binder.shards.starting_with(&start).any(|t| numbered(&t.entry.name[start.len()..]))
        })),
        ExpertNames::Stacked { gate_up, down, blocks, .. } => {
            for name in [gate_up, down] {
                let found = binder.find(&format!("{prefix}{name}"))?;
                if found.is_some_and(|weight| matches!(weight, Encoded::Mxfp4 { .. }) == *blocks) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

fn none(binder: &Binder<'_>, prefix: &str, layer: usize, moe: &MoeSpec) -> CheckpointError {
    let known: Vec<String> = binder.family.experts.iter().map(describe).collect();
    let (mut wanted, mut found) = (0, 0);
    for (i, moe) in binder.plan.spec.moe_layers() {
        wanted += 3 * moe.experts;
        found +=
            binder.shards.starting_with(&binder.layer_prefix(i)).filter(|t| t.entry.name.contains("experts.")).count();
    }
    let text = format!(
        "layer {layer} holds no expert under a known name ({}); expected {} experts there, {wanted} matrices in all; \
         {found} tensors with `experts.` in their names were found; the layer holds {}",
        list(&known, 4),
        moe.experts,
        binder.shards.found_below(prefix, 12)
    );
    CheckpointError::file(binder.shards.all(), text)
}

/// Claims a tensor that must be there.
fn take(binder: &mut Binder<'_>, name: String, shape: Vec<usize>) -> Result<(), CheckpointError> {
    match binder.find(&name)? {
        Some(weight) => binder.claim(&weight, &[shape]),
        None => Err(binder.missing(&[name], &shape)),
    }
}

fn each(
    binder: &mut Binder<'_>,
    prefix: &str,
    names: &[&str; 3],
    moe: &MoeSpec,
) -> Result<ExpertBindings, CheckpointError> {
    let hidden = binder.plan.spec.hidden;
    let shapes = [[moe.width, hidden], [moe.width, hidden], [hidden, moe.width]];
    for e in 0..moe.experts {
        for (name, shape) in names.iter().zip(shapes) {
            let name = format!("{prefix}{}", name.replace("{e}", &e.to_string()));
            take(binder, name, shape.to_vec())?;
        }
    }
    let view = |i: usize| ExpertView {
        tensor: format!("{prefix}{}", names[i]),
        offset: 0,
        expert_stride: 0,
        row_stride: shapes[i][1],
        col_stride: 1,
    };
    Ok(ExpertBindings { weights: [view(0), view(1), view(2)], biases: None })
}

fn stacked(
    binder: &mut Binder<'_>,
    prefix: &str,
    layout: &ExpertNames,
    moe: &MoeSpec,
) -> Result<ExpertBindings, CheckpointError> {
    let ExpertNames::Stacked { gate_up, down, biases, fused, transposed, .. } = layout else {
        return Err(CheckpointError::file("checkpoint", "a layout of one tensor an expert taken for a stacked one"));
    };
    let (hidden, width, experts) = (binder.plan.spec.hidden, moe.width, moe.experts);
    let shape = |rows, cols| if *transposed { vec![experts, cols, rows] } else { vec![experts, rows, cols] };
    take(binder, format!("{prefix}{gate_up}"), shape(2 * width, hidden))?;
    take(binder, format!("{prefix}{down}"), shape(hidden, width))?;
    // Elements from one row of the joint axis to the next, and from one column to the next.
    let (row, col) = if *transposed { (1, 2 * width) } else { (hidden, 1) };
    let (step, up) = match fused {
        Fused::GateThenUp => (1, width),
        Fused::Interleaved => (2, 1),
    };
    let tensor = format!("{prefix}{gate_up}");
    let half = |offset: usize| ExpertView {
        tensor: tensor.clone(),
        offset: offset * row,
        expert_stride: 2 * width * hidden,
        row_stride: step * row,
        col_stride: col,
    };
    let (row, col) = if *transposed { (1, hidden) } else { (width, 1) };
    let tensor = format!("{prefix}{down}");
    let down = ExpertView { tensor, offset: 0, expert_stride: hidden * width, row_stride: row, col_stride: col };
    let weights = [half(0), half(up), down];
    let biases = match biases {
        None => None,
        Some([gate_up, down]) => {
            take(binder, format!("{prefix}{gate_up}"), vec![experts, 2 * width])?;
            take(binder, format!("{prefix}{down}"), vec![experts, hidden])?;
            let view = |name: &str, offset, expert_stride, row_stride| ExpertView {
                tensor: format!("{prefix}{name}"),
                offset,
                expert_stride,
                row_stride,
                col_stride: 0,
            };
            let [gate, up] = [0, up].map(|offset| view(gate_up, offset, 2 * width, step));
            Some([gate, up, view(down, 0, hidden, 1)])
        }
    };
    Ok(ExpertBindings { weights, biases })
}
