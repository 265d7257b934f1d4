//! `smoe logits`.

use super::Outcome;
use crate::args::Compute;
use crate::fault::Hint;
use crate::model;
use crate::ui::{Ui, parse_ids};
use anyhow::Context;
use clap::Args;
use serde_json::json;
use smoe_engine::compare::{Comparison, Golden, compare, golden_arrays};
use smoe_engine::sampler::argmax;
use smoe_engine::{Engine, Observer, Recording, Silent, Want, tensors};
use std::path::{Path, PathBuf};

/// Raw logits of a token sequence; compare them with a golden file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe logits q3.vault --ids 1,2,3 -o logits.safetensors --hidden
  smoe logits Qwen3-30B-A3B --compare golden.safetensors --chunk 7 --json")]
pub(crate) struct Logits {
    /// A vault or a checkpoint folder.
    model: PathBuf,
    /// Token ids: 1,2,3, a text file of them, or a .safetensors file with `input_ids`.
    #[arg(long, value_name = "FILE|LIST", required_unless_present = "compare")]
    ids: Option<String>,
    /// Write input_ids and logits to this .safetensors file.
    #[arg(short, long, value_name = "OUT.safetensors")]
    output: Option<PathBuf>,
    /// Add hidden states and router choices to the output.
    #[arg(long, requires = "output")]
    hidden: bool,
    /// Tokens a prefill step takes [default: all].
    #[arg(long, value_name = "N")]
    chunk: Option<usize>,
    /// Compare with this file: input_ids, logits, hidden_states, router_topk, greedy_continuation.
    #[arg(long, value_name = "GOLDEN.safetensors")]
    compare: Option<PathBuf>,
    #[command(flatten)]
    compute: Compute,
}

impl Logits {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let golden = self.compare.as_deref().map(Golden::open).transpose()?;
        let ids = self.ids.as_deref().map(ids).transpose()?;
        let ids = ids.or_else(|| golden.as_ref().map(|g| g.input_ids.clone())).unwrap_or_default();
        let opened = model::open(&self.model, &self.compute, None, ui)?;
        let chunk = self.chunk.unwrap_or(ids.len()).max(1);
        if let Some(output) = &self.output {
            let mut session = opened.engine.session();
            session.chunk = chunk;
            let mut recording = Recording::default();
            let mut silent = Silent;
            let observer: &mut dyn Observer = if self.hidden { &mut recording } else { &mut silent };
            let logits = opened.engine.forward(&mut session, &ids, observer, Want::All)?;
            tensors::write(output, &golden_arrays(&ids, logits, self.hidden.then_some(recording)))?;
            ui.line(format_args!("{}: logits of {} tokens", output.display(), ids.len()))?;
        }
        let Some(golden) = golden else {
            if self.output.is_none() {
                return self.most_likely(&opened.engine, &ids, chunk, ui);
            }
            ui.object(&json!({ "tokens": ids.len(), "vocab": opened.engine.spec().vocab, "output": self.output }))?;
            return Ok(Outcome::Done);
        };
        let found = compare(&opened.engine, &golden, chunk)?;
        say(&found, ui)?;
        ui.object(&serde_json::to_value(&found)?)?;
        Ok(Outcome::of(found.equal))
    }

    /// Without an output: what the model finds most likely after each token.
    fn most_likely(&self, engine: &Engine, ids: &[u32], chunk: usize, ui: &Ui) -> anyhow::Result<Outcome> {
        let mut session = engine.session();
        session.chunk = chunk;
        let logits = engine.forward(&mut session, ids, &mut Silent, Want::All)?;
        let rows = logits.chunks_exact(engine.spec().vocab);
        let best: Vec<_> = rows.map(|row| argmax(row).map(|id| (id, row[id as usize]))).collect();
        for (id, best) in ids.iter().zip(&best) {
            match best {
                Some((next, logit)) => ui.line(format_args!("{id:>8} -> {next} ({logit:.4})"))?,
                None => ui.line(format_args!("{id:>8} -> not a number"))?,
            }
        }
        let argmax: Vec<_> = best.iter().map(|best| best.map(|(id, _)| id)).collect();
        ui.object(&json!({ "tokens": ids.len(), "vocab": engine.spec().vocab, "argmax": argmax }))?;
        Ok(Outcome::Done)
    }
}

/// Ids from a list, or from a file that has them: safetensors with `input_ids`, or text.
fn ids(given: &str) -> anyhow::Result<Vec<u32>> {
    let path = Path::new(given);
    if !path.exists() {
        let hint = "--ids takes a list such as 1,2,3, or the name of a file that exists";
        return parse_ids(given).map_err(anyhow::Error::msg).hint(hint);
    }
    if path.extension().is_none_or(|e| e != "safetensors") {
        let text = std::fs::read_to_string(path).with_context(|| given.to_owned())?;
        return parse_ids(&text).map_err(|e| anyhow::anyhow!("{given}: {e}"));
    }
    let arrays = tensors::read(path)?;
    let array = ["input_ids", "ids"].into_iter().find_map(|name| arrays.get(name)?.as_integers());
    let values = array.with_context(|| format!("{given}: holds no integers named `input_ids`"))?;
    let narrow = |&id: &i32| u32::try_from(id).with_context(|| format!("{given}: `input_ids` holds {id}"));
    values.iter().map(narrow).collect()
}

fn say(found: &Comparison, ui: &Ui) -> std::io::Result<()> {
    let word = |good| if good { "equal" } else { "DIFFERENT" };
    ui.line(format_args!(
        "logits       largest difference {:.3e} of largest |logit| {:.4}: {:.2e}",
        found.max_abs_diff, found.max_abs_logit, found.relative
    ))?;
    ui.line(format_args!("argmax       {} of {} equal", found.argmax_equal, found.argmax_total))?;
    if let Some(worst) = found.hidden.iter().max_by(|a, b| a.relative.total_cmp(&b.relative)) {
        ui.line(format_args!(
            "hidden       largest relative difference {:.2e} at entry {}",
            worst.relative, worst.entry
        ))?;
    }
    if found.router_total > 0 {
        let weights = found.router_weights_max_abs_diff;
        ui.line(format_args!(
            "router       {} of {} choices equal, weights within {weights:.1e}",
            found.router_equal, found.router_total
        ))?;
    }
    if let Some(layer) = found.first_differing_layer {
        ui.line(format_args!("layers       the first that differs is {layer}"))?;
    }
    if let Some(equal) = found.greedy_equal {
        ui.line(format_args!("continuation {}", word(equal)))?;
    }
    ui.line(format_args!("all          {}", word(found.equal)))
}
