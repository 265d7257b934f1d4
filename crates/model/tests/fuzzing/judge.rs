//! What must hold of every case: a refusal that can be read, or a plan that fits its tensors.

use smoe_model::checkpoint::described::{Folder, Understood, understand};
use smoe_model::checkpoint::header::json_len;
use smoe_model::needs::trunk_needs;
use smoe_model::role::{ExpertView, Rows};
use smoe_model::{CheckpointError, OpenOptions};
use std::collections::BTreeMap;

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Refused, with this message.
    Refused(String),
    /// Understood.
    Accepted,
}

/// Opens a folder and checks the outcome; an error is a fault of the program.
pub(crate) fn judge(folder: &Folder) -> Result<Verdict, String> {
    match understand(folder, &OpenOptions::default()) {
        Ok(understood) => fits(&understood).map(|()| Verdict::Accepted),
        Err(e) => readable(&e).map(Verdict::Refused),
    }
}

/// Whether the reader came past the check of the header's length in every file.
pub(crate) fn past_lengths(folder: &Folder, verdict: &Verdict) -> bool {
    let before = |message: &String| {
        ["config.json: not valid", "config.json: expected", "config.json: `model_type`: ", "generation_config.json: "]
            .iter()
            .any(|start| message.starts_with(start))
            || message.contains("the index does not match the files, download")
            || message.contains("not a valid index")
            || message.contains("shards of its series")
    };
    let early = match verdict {
        Verdict::Refused(message) => before(message) && !message.contains("the tensors are those of"),
        Verdict::Accepted => false,
    };
    let whole = |start: &[u8], len| start.first_chunk().is_some_and(|prefix| json_len(*prefix, len).is_ok());
    !early && !folder.files.is_empty() && folder.files.iter().all(|file| whole(&file.start, file.len))
}

/// A refusal names a file and fits on a screen.
fn readable(error: &CheckpointError) -> Result<String, String> {
    let text = error.to_string();
    let fault = match &text {
        _ if error.file.is_empty() || error.fault.is_empty() => "says nothing",
        _ if text.chars().count() > 5000 => "is too long",
        _ if text.chars().any(char::is_control) => "has control characters",
        _ if error.fault.ends_with('.') => "ends in a full stop",
        _ => return Ok(text),
    };
    Err(format!("a refusal that {fault}: {}", text.chars().take(300).collect::<String>()))
}

/// Every role and every expert lies inside a tensor of the right size; every tensor is used or skipped by a rule.
fn fits(understood: &Understood) -> Result<(), String> {
    let Understood { plan, bindings, report, tensors } = understood;
    if report.used + report.skipped.len() != tensors.len() {
        return Err(format!("{} used, {} skipped, of {}", report.used, report.skipped.len(), tensors.len()));
    }
    let names: BTreeMap<&str, &[usize]> = tensors.iter().map(|t| (&*t.name, &t.shape[..])).collect();
    let elements = |name: &str| -> Option<usize> {
        if let Some(shape) = names.get(name) {
            return Some(shape.iter().product());
        }
        let packed = names.get(format!("{name}_packed").as_str()).map(|shape| 8 * shape.iter().product::<usize>());
        packed.or_else(|| names.get(format!("{name}_blocks").as_str()).map(|shape| 2 * shape.iter().product::<usize>()))
    };
    let needs = trunk_needs(&plan.spec);
    if needs.len() != bindings.trunk.len() {
        return Err(format!("{} roles, {} bound", needs.len(), bindings.trunk.len()));
    }
    for (role, shape) in needs {
        let binding = bindings.trunk.get(&role).ok_or_else(|| format!("{role:?} is not bound"))?;
        let has =
            elements(&binding.tensor).ok_or_else(|| format!("{role:?} is bound to a tensor that is not there"))?;
        let wants: usize = shape.iter().product();
        let right = match &binding.rows {
            Rows::All => has == wants,
            Rows::Runs(runs) => runs.iter().all(|(at, n)| (at + n) * shape[1] <= has),
        };
        if binding.shape != shape || !right {
            return Err(format!("{role:?} of {shape:?} is bound to {has} elements"));
        }
    }
    for (layer, moe) in plan.spec.moe_layers() {
        let bound = bindings.experts.get(&layer).ok_or_else(|| format!("no experts in layer {layer}"))?;
        let (width, hidden) = (moe.width, plan.spec.hidden);
        for (view, (rows, cols)) in bound.weights.iter().zip([(width, hidden), (width, hidden), (hidden, width)]) {
            inside(view, moe.experts, rows, cols, &elements).map_err(|e| format!("layer {layer}: {e}"))?;
        }
        for (view, rows) in bound.biases.iter().flatten().zip([width, width, hidden]) {
            inside(view, moe.experts, rows, 1, &elements).map_err(|e| format!("layer {layer}: {e}"))?;
        }
    }
    Ok(())
}

fn inside(
    view: &ExpertView,
    experts: usize,
    rows: usize,
    cols: usize,
    elements: &dyn Fn(&str) -> Option<usize>,
) -> Result<(), String> {
    for expert in [0, experts - 1] {
        let name = view.tensor_of(expert);
        let has = elements(&name).ok_or_else(|| format!("{name} is not there"))?;
        let last =
            view.offset + expert * view.expert_stride + (rows - 1) * view.row_stride + (cols - 1) * view.col_stride;
        if last >= has {
            return Err(format!("{name}: element {last} of {has}"));
        }
    }
    Ok(())
}

/// The kind of an outcome: the plain words of its message, without names, numbers and values.
pub(crate) fn signature(verdict: &Verdict) -> String {
    let Verdict::Refused(message) = verdict else { return "accepted".into() };
    let file = ["config.json", "generation_config.json", "model.safetensors.index.json"]
        .into_iter()
        .find(|file| message.starts_with(&format!("{file}:")));
    let mut out = file.unwrap_or("weights").to_owned();
    let (mut quote, mut gap, mut word) = (None, false, String::new());
    for c in message.chars().skip_while(|c| *c != ':').chain([' ']) {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '`' || c == '"' => (quote, gap) = (Some(c), true),
            None if c == ' ' => {
                let plain = word.trim_end_matches([',', ';', ':']);
                match plain.chars().all(|c| c.is_ascii_alphabetic()) && plain.len() < 14 {
                    true if plain.is_empty() => {}
                    true => {
                        out.push_str(if std::mem::take(&mut gap) { " _ " } else { " " });
                        out.push_str(plain);
                    }
                    false => gap = true,
                }
                word.clear();
            }
            None => word.push(c),
        }
    }
    // Values of a config are of endless kinds.
    let cut = out
        .find(" found ")
        .or_else(|| out.find(" there is "))
        .or_else(|| out.find(" is not read"))
        .unwrap_or(out.len());
    out[..cut].chars().take(110).collect()
}
