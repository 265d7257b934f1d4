//! Opening a model for the commands that compute.

use crate::args::{Compute, Gpu};
use crate::fault::Hint;
use crate::ui::Ui;
use serde_json::Value;
use smoe_engine::{Engine, EngineOptions};
use smoe_model::text::TextModel;
use std::path::Path;

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
    let _ = (path, ui, options);
    anyhow::bail!("not wired yet")
}
