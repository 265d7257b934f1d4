//! `smoe export`.

use super::Outcome;
use crate::job::watched;
use crate::model;
use crate::ui::{Ui, bytes};
use anyhow::Context;
use clap::Args;
use smoe_quantize::export::{Element, HfOptions, to_hf};
use smoe_quantize::smoe_v2::to_smoe_v2;
use std::path::PathBuf;

/// Write a vault in another program's format.
///
/// `hf` is an ordinary checkpoint folder of the dequantised weights, for any other tool to run and judge; `s-moe-v2` is
/// the file of the S-MoE engine with its trunk beside it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe export q3.vault --to hf -o q3-dequantised --dtype bf16
  smoe export q3.vault --to s-moe-v2 -o q3.smoe")]
pub(crate) struct Export {
    /// A vault.
    vault: PathBuf,
    /// The format.
    #[arg(long, value_name = "FORMAT", value_parser = ["hf", "s-moe-v2"])]
    to: String,
    /// The file or folder to write.
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
    /// Element type of `hf`.
    #[arg(long, default_value = "bf16", value_parser = ["bf16", "f32"])]
    dtype: String,
    /// Replace the output if it exists.
    #[arg(long)]
    force: bool,
}

impl Export {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let (vault, target) = (&self.vault, &self.output);
        let report = watched("exporting", |control| match self.to.as_str() {
            "hf" => {
                let element = Element::from_name(&self.dtype).unwrap_or(Element::Bf16);
                to_hf(vault, target, HfOptions { element, force: self.force }, control)
            }
            _ => to_smoe_v2(vault, target, self.force, control),
        });
        let report = report.with_context(|| model::name(vault))?;
        let files = report.files.join(", ");
        ui.line(format_args!("{}: {} in {}: {files}", report.path, bytes(report.bytes), report.format))?;
        report.notes.iter().for_each(|note| ui.note(format_args!("note: {note}")));
        ui.object(&serde_json::to_value(&report)?)?;
        Ok(Outcome::Done)
    }
}
