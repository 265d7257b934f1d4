//! Opening a model for the commands that compute.

use crate::args::{Compute, Gpu};
use crate::fault::Hint;
use crate::interrupt;
use crate::ui::{Ui, bytes};
use anyhow::Context;
use serde_json::Value;
use smoe_engine::VaultStore;
use smoe_engine::{Engine, EngineOptions};
use smoe_model::text::{TOKENIZER_FILE, TextFiles, TextModel};
use smoe_model::{Checkpoint, OpenOptions};
use smoe_quantize::sections::TEXT_SETTINGS;
use smoe_vault::section::GENERATION_CONFIG;
use std::path::Path;
use std::sync::Arc;

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
    let options = EngineOptions { threads: usize::from(compute.threads.unwrap_or(0)), context, ..Default::default() };
    let opened = if path.is_dir() { checkpoint(path, compute, &options, ui)? } else { vault(path, &options)? };
    keep_promise(&opened.engine, compute, path)?;
    if interrupt::requested() { Err(interrupt::error()) } else { Ok(opened) }
}

/// Opens an unquantised checkpoint folder.
fn checkpoint(path: &Path, compute: &Compute, options: &EngineOptions, ui: &Ui) -> anyhow::Result<Opened> {
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
    let engine = Engine::of_checkpoint(&Arc::new(checkpoint), options).with_context(|| name(path))?;
    Ok(Opened { engine, text, generation_config })
}

/// Opens a vault.
fn vault(path: &Path, options: &EngineOptions) -> anyhow::Result<Opened> {
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
    let engine = Engine::of_vault(&store, options)?;
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

/// Refuses before loading what `--ram` cannot hold.
fn keep_promise(engine: &Engine, compute: &Compute, path: &Path) -> anyhow::Result<()> {
    let Some(ram) = compute.ram else { return Ok(()) };
    let needed = engine.memory_estimate(engine.context()).total();
    if needed <= ram.0 {
        return Ok(());
    }
    let (needed, ram) = (bytes(needed), bytes(ram.0));
    Err(anyhow::anyhow!("{}: needs {needed} with a context of {}, --ram allows {ram}", name(path), engine.context()))
        .hint("lower --context, or quantise to a smaller codec; smoe plan shows sizes")
}
