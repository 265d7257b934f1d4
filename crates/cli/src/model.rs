//! Opening a model for the commands that compute.

use crate::args::{Compute, Gpu};
use crate::fault::Hint;
use crate::interrupt;
use crate::ui::{Size, Ui, bytes};
use anyhow::Context;
use serde_json::Value;
use smoe_engine::VaultStore;
use smoe_engine::{Engine, EngineOptions, MemoryEstimate};
use smoe_model::counts::counts;
use smoe_model::store::TensorStore;
use smoe_model::text::{TOKENIZER_FILE, TextFiles, TextModel};
use smoe_model::{Checkpoint, ModelSpec, OpenOptions};
use smoe_quantize::sections::TEXT_SETTINGS;
use smoe_vault::section::GENERATION_CONFIG;
use std::path::Path;
use std::sync::Arc;

/// `--ram` lowers a context down to this before it refuses: a question and an answer.
const LEAST_CONTEXT: usize = 1024;

/// A model ready to compute.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    /// `None` for a model without a tokenizer, which runs on ids.
    pub(crate) text: Option<TextModel>,
    /// generation_config.json, or null.
    pub(crate) generation_config: Value,
}

/// Opens a vault or a checkpoint folder.
pub(crate) fn open(path: &Path, compute: &Compute, context: Option<usize>, ui: &Ui) -> anyhow::Result<Opened> {
    if let Gpu::Number(n) = compute.gpu {
        return Err(anyhow::anyhow!("--gpu {n}: this version computes on the CPU only")).hint("leave --gpu out");
    }
    let threads = usize::from(compute.threads.unwrap_or(0));
    let options = EngineOptions { threads, context, ..Default::default() };
    let opened =
        if path.is_dir() { checkpoint(path, compute, options, ui)? } else { vault(path, compute, options, ui)? };
    if interrupt::requested() { Err(interrupt::error()) } else { Ok(opened) }
}

/// What a model has in memory besides its caches and activations.
struct Resident<'a> {
    spec: &'a ModelSpec,
    trunk: u64,
    experts: u64,
}

/// Keeps the promise of `--ram` before anything is loaded: lowers the context to what fits, unless `--context` says
/// which must; refuses where nothing useful fits.
fn keep_promise(
    resident: &Resident<'_>,
    ram: Option<Size>,
    options: &mut EngineOptions,
    ui: &Ui,
) -> anyhow::Result<()> {
    let Some(Size(ram)) = ram else { return Ok(()) };
    let needed =
        |tokens| MemoryEstimate::new(resident.spec, resident.trunk, resident.experts, tokens, options.chunk).total();
    let asked = options.context.unwrap_or(resident.spec.context);
    let least = if options.context.is_some() { asked } else { asked.min(LEAST_CONTEXT) };
    let mut context = asked;
    while needed(context) > ram && context > least {
        context = (context / 2).max(least);
    }
    if needed(context) > ram {
        let (needed, ram) = (bytes(needed(context)), bytes(ram));
        return Err(anyhow::anyhow!("needs {needed} with a context of {context} tokens, --ram allows {ram}"))
            .hint("take a smaller codec, --trunk q8 or a lower --context; smoe plan shows what each needs");
    }
    if context < asked {
        ui.note(format_args!("note: --ram {} holds a context of {context} tokens, not of {asked}", bytes(ram)));
        options.context = Some(context);
    }
    Ok(())
}

/// Opens an unquantised checkpoint folder.
fn checkpoint(path: &Path, compute: &Compute, mut options: EngineOptions, ui: &Ui) -> anyhow::Result<Opened> {
    let checkpoint = Checkpoint::open(path, &open_options(&compute.ignore_config)).with_context(|| name(path))?;
    for note in &checkpoint.report().notes {
        ui.note(format_args!("note: {note}"));
    }
    let text = TextFiles::open(path).with_context(|| name(path))?;
    let text = text.as_ref().map(TextModel::new).transpose().with_context(|| name(path))?;
    let generation_config = match checkpoint.generation_config() {
        Some(text) => serde_json::from_str(text).with_context(|| name(path))?,
        None => Value::Null,
    };
    let counted = counts(checkpoint.spec());
    // Two bytes a weight: what is narrower is widened, and nothing that is released is wider.
    let resident = Resident { spec: checkpoint.spec(), trunk: 2 * counted.trunk, experts: 2 * counted.experts };
    keep_promise(&resident, compute.ram, &mut options, ui).with_context(|| name(path))?;
    let engine = Engine::of_checkpoint(&Arc::new(checkpoint), &options).with_context(|| name(path))?;
    Ok(Opened { engine, text, generation_config })
}

/// Opens a vault.
fn vault(path: &Path, compute: &Compute, mut options: EngineOptions, ui: &Ui) -> anyhow::Result<Opened> {
    let store = VaultStore::open(path)?;
    let section = |name: &str| store.file().section(name);
    let text = match (section(TOKENIZER_FILE)?, section(TEXT_SETTINGS)?) {
        (Some(tokenizer), Some(settings)) => {
            let files = TextFiles::from_sections(&tokenizer, &settings).with_context(|| name(path))?;
            Some(TextModel::new(&files).with_context(|| name(path))?)
        }
        _ => None,
    };
    let generation_config = match section(GENERATION_CONFIG)? {
        Some(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("{}: {GENERATION_CONFIG}", name(path)))?
        }
        None => Value::Null,
    };
    let manifest = store.file().manifest();
    let resident = Resident {
        spec: store.spec(),
        trunk: manifest.trunk.iter().map(|tensor| tensor.length).sum(),
        experts: store.file().experts().iter().map(|record| record.length).sum(),
    };
    keep_promise(&resident, compute.ram, &mut options, ui).with_context(|| name(path))?;
    let engine = Engine::of_vault(&store, &options)?;
    Ok(Opened { engine, text, generation_config })
}

/// How to open a checkpoint, as `--ignore-config` says.
pub(crate) fn open_options(ignore_config: &[String]) -> OpenOptions {
    OpenOptions { ignore_config: ignore_config.to_vec() }
}

/// A path as messages show it.
pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}
