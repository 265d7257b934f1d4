//! Opening a model for the commands that compute.

use crate::args::{Compute, Gpu};
use crate::fault::Hint;
use crate::interrupt;
use crate::streaming::{self, Streaming};
use crate::ui::{Size, Ui, bytes};
use anyhow::Context;
use serde_json::Value;
use smoe_engine::VaultStore;
use smoe_engine::cpu::Activations;
use smoe_engine::{Engine, EngineOptions, MemoryEstimate};
use smoe_model::counts::counts;
use smoe_model::store::TensorStore;
use smoe_model::text::{TOKENIZER_FILE, TextFiles, TextModel};
use smoe_model::{Checkpoint, ModelSpec, OpenOptions};
use smoe_quantize::sections::TEXT_SETTINGS;
use smoe_vault::VaultFile;
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
    /// Where the experts come from a drive.
    pub(crate) streaming: Option<Streaming>,
}

/// Opens a vault or a checkpoint folder, to measure it: with activations as they are.
pub(crate) fn open(path: &Path, compute: &Compute, context: Option<usize>, ui: &Ui) -> anyhow::Result<Opened> {
    open_with(path, compute, (context, Activations::F32), ui)
}

/// Opens a vault or a checkpoint folder to run it, the fastest way unless `--exact` says otherwise.
pub(crate) fn open_to_run(path: &Path, compute: &Compute, context: Option<usize>, ui: &Ui) -> anyhow::Result<Opened> {
    let activations = if compute.exact { Activations::F32 } else { Activations::fastest() };
    if activations == Activations::F32 && !compute.exact {
        ui.note("note: this CPU has no fast kernels; computing in plain code with f32 activations, slowly");
    }
    open_with(path, compute, (context, activations), ui)
}

fn open_with(
    path: &Path,
    compute: &Compute,
    (context, activations): (Option<usize>, Activations),
    ui: &Ui,
) -> anyhow::Result<Opened> {
    refuse_gpu(compute)?;
    let threads = usize::from(compute.threads.unwrap_or(0));
    let options = EngineOptions { threads, context, activations, ..Default::default() };
    let opened =
        if path.is_dir() { checkpoint(path, compute, options, ui)? } else { vault(path, compute, options, ui)? };
    if interrupt::requested() { Err(interrupt::error()) } else { Ok(opened) }
}

/// Refuses a GPU that was asked for by number: nothing computes on one yet.
pub(crate) fn refuse_gpu(compute: &Compute) -> anyhow::Result<()> {
    let Gpu::Number(n) = compute.gpu else { return Ok(()) };
    Err(anyhow::anyhow!("--gpu {n}: this version computes on the CPU only")).hint("leave --gpu out")
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
    let text = text_of_folder(path)?;
    let generation_config = match checkpoint.generation_config() {
        Some(text) => serde_json::from_str(text).with_context(|| name(path))?,
        None => Value::Null,
    };
    let counted = counts(checkpoint.spec());
    // Two bytes a weight: what is narrower is widened, and nothing that is released is wider.
    let resident = Resident { spec: checkpoint.spec(), trunk: 2 * counted.trunk, experts: 2 * counted.experts };
    keep_promise(&resident, compute.ram, &mut options, ui).with_context(|| name(path))?;
    let engine = Engine::of_checkpoint(&Arc::new(checkpoint), &options).with_context(|| name(path))?;
    Ok(Opened { engine, text, generation_config, streaming: None })
}

/// Opens a vault.
fn vault(path: &Path, compute: &Compute, options: EngineOptions, ui: &Ui) -> anyhow::Result<Opened> {
    let store = VaultStore::open(path)?;
    let text = text_of_vault(store.file())?;
    let generation_config = match store.file().section(GENERATION_CONFIG)? {
        Some(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("{}: {GENERATION_CONFIG}", name(path)))?
        }
        None => Value::Null,
    };
    let (engine, streaming) = streaming::open(path, &store, compute, options, ui).with_context(|| name(path))?;
    Ok(Opened { engine, text, generation_config, streaming })
}

/// The tokenizer of a checkpoint folder, where it has one.
fn text_of_folder(path: &Path) -> anyhow::Result<Option<TextModel>> {
    let files = TextFiles::open(path).with_context(|| name(path))?;
    files.as_ref().map(TextModel::new).transpose().with_context(|| name(path))
}

/// The tokenizer of a vault, where it has one.
fn text_of_vault(file: &VaultFile) -> anyhow::Result<Option<TextModel>> {
    match (file.section(TOKENIZER_FILE)?, file.section(TEXT_SETTINGS)?) {
        (Some(tokenizer), Some(settings)) => {
            let files = TextFiles::from_sections(&tokenizer, &settings).with_context(|| file.name().to_owned())?;
            Ok(Some(TextModel::new(&files).with_context(|| file.name().to_owned())?))
        }
        _ => Ok(None),
    }
}

/// The tokenizer of a vault or a folder, without opening the rest.
pub(crate) fn text(path: &Path) -> anyhow::Result<Option<TextModel>> {
    if path.is_dir() { text_of_folder(path) } else { text_of_vault(&VaultFile::open(path)?) }
}

/// Says what the gate recorded of a vault, and refuses one that failed unless `--force` is given. Reads no weights.
pub(crate) fn heed_verdict(path: &Path, force: bool, ui: &Ui) -> anyhow::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let file = VaultFile::open(path)?;
    let Some(verdict) = &file.manifest().verdict else {
        ui.note("verdict: none recorded; smoe gate --record judges a vault");
        return Ok(());
    };
    let summary = verdict["summary"].as_str().map_or_else(|| verdict.to_string(), str::to_owned);
    if verdict["verdict"] == "fail" && !force {
        return Err(anyhow::anyhow!("{}: its recorded verdict: {summary}", name(path)))
            .hint("--force runs it all the same; smoe gate --record judges it again");
    }
    ui.note(format_args!("verdict: {summary}"));
    Ok(())
}

/// How to open a checkpoint, as `--ignore-config` says.
pub(crate) fn open_options(ignore_config: &[String]) -> OpenOptions {
    OpenOptions { ignore_config: ignore_config.to_vec() }
}

/// A path as messages show it.
pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}
