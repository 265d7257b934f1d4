//! `smoe import`.

use super::Outcome;
use crate::job::watched;
use crate::model;
use crate::ui::{Ui, bytes};
use anyhow::Context;
use clap::Args;
use smoe_quantize::smoe_v2::{ImportOptions, import};
use std::path::PathBuf;

/// Turn a file of the S-MoE engine (version 2) into a vault, requantising nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe import model.smoe -o model.vault
  smoe import model.smoe -o model.vault --trunk model.scout.safetensors --tokenizer Qwen3-30B-A3B")]
pub(crate) struct Import {
    /// The .smoe file.
    file: PathBuf,
    /// The vault to write.
    #[arg(short, long, value_name = "VAULT")]
    output: PathBuf,
    /// The trunk [default: the .scout.safetensors file beside it].
    #[arg(long, value_name = "FILE")]
    trunk: Option<PathBuf>,
    /// A folder with tokenizer.json; without one the vault runs with --ids only.
    #[arg(long, value_name = "FOLDER")]
    tokenizer: Option<PathBuf>,
    /// Replace the output if it exists.
    #[arg(long)]
    force: bool,
}

impl Import {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let options = ImportOptions { trunk: self.trunk, tokenizer: self.tokenizer, force: self.force };
        let report = watched("importing", |control| import(&self.file, &self.output, &options, control));
        let report = report.with_context(|| model::name(&self.file))?;
        let (size, codec) = (bytes(report.bytes), report.codec);
        ui.line(format_args!(
            "{}: {} experts in {codec}, family {}, {size}",
            report.vault, report.experts, report.family
        ))?;
        report.notes.iter().for_each(|note| ui.note(format_args!("note: {note}")));
        ui.object(&serde_json::to_value(&report)?)?;
        Ok(Outcome::Done)
    }
}
