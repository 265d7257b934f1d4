//! `smoe verify`.

use super::Outcome;
use crate::ui::{Progress, Ui, Unit, bytes};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Check every byte of a vault; name each section or expert that is damaged (exit code 1).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe verify q3.vault
  smoe verify q3.vault --json")]
pub(crate) struct Verify {
    /// A vault.
    vault: PathBuf,
}

impl Verify {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let mut bar = Progress::new("verifying", Unit::Bytes, 0);
        let mut checked = 0;
        let faults = smoe_vault::verify(&self.vault, &mut |done, total| {
            checked = done;
            bar.set(done, total);
        });
        bar.finish();
        let faults = faults?;
        let name = self.vault.display();
        for fault in &faults {
            ui.line(format_args!("{name}: {fault}"))?;
        }
        if faults.is_empty() {
            ui.line(format_args!("{name}: whole, {} checked", bytes(checked)))?;
        }
        let listed =
            faults.iter().map(|fault| json!({ "place": fault.place.to_string(), "fault": fault.kind.to_string() }));
        let listed: Vec<_> = listed.collect();
        ui.object(&json!({ "vault": self.vault, "ok": faults.is_empty(), "faults": listed, "bytes": checked }))?;
        Ok(Outcome::of(faults.is_empty()))
    }
}
