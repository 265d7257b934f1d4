//! `smoe inspect`.

use super::Outcome;
use crate::ui::{Ui, bytes};
use clap::Args;
use serde_json::{Value, json};
use smoe_model::ModelSpec;
use smoe_vault::{VERSION, VaultFile};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is in a vault, and how it was made.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe inspect q3.vault
  smoe inspect q3.vault --json | jq .provenance")]
pub(crate) struct Inspect {
    /// A vault.
    vault: PathBuf,
}

impl Inspect {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let vault = VaultFile::open(&self.vault)?;
        say(&vault, ui)?;
        let (index, manifest) = (vault.index(), vault.manifest());
        let trunk_bytes: u64 = manifest.trunk.iter().map(|tensor| tensor.length).sum();
        let expert_bytes: u64 = index.experts.iter().map(|record| record.length).sum();
        ui.object(&json!({
            "version": VERSION,
            "bytes": index.header.file_length,
            "spec": manifest.spec,
            "codecs": manifest.codecs,
            "experts": index.experts.len(),
            "expert_bytes": expert_bytes,
            "trunk_tensors": manifest.trunk.len(),
            "trunk_bytes": trunk_bytes,
            "sections": manifest.sections.iter().map(|section| &section.name).collect::<Vec<_>>(),
            "provenance": manifest.provenance,
            "verdict": manifest.verdict,
        }))?;
        Ok(Outcome::Done)
    }
}

fn say(vault: &VaultFile, ui: &Ui) -> anyhow::Result<()> {
    let (index, manifest) = (vault.index(), vault.manifest());
    let line = |name: &str, value: String| ui.line(format_args!("{name:<15}{value}"));
    line("vault", format!("{}, version {VERSION}, {}", vault.name(), bytes(index.header.file_length)))?;
    if let Ok(spec) = serde_json::from_value::<ModelSpec>(manifest.spec.clone()) {
        let size = (spec.layers.len(), spec.hidden, spec.vocab, spec.context);
        let (layers, hidden, vocab, context) = size;
        line(
            "model",
            format!("{}, {layers} layers of width {hidden}, vocabulary {vocab}, context {context}", spec.family),
        )?;
    }
    let of_codec = |id: u8| index.experts.iter().filter(|r| r.codecs.iter().any(|c| c.id() == id)).count();
    for codec in &manifest.codecs {
        let size: u64 = index.experts.iter().filter(|r| r.codecs[0].id() == codec.id).map(|r| r.length).sum();
        line("experts", format!("{} in {}, {}", of_codec(codec.id), codec.name, bytes(size)))?;
    }
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in &manifest.trunk {
        let entry = types.entry(tensor.dtype.name()).or_default();
        *entry = (entry.0 + 1, entry.1 + tensor.length);
    }
    for (name, (tensors, size)) in types {
        line("trunk", format!("{tensors} tensors in {name}, {}", bytes(size)))?;
    }
    let names: Vec<_> = manifest.sections.iter().map(|section| section.name.as_str()).collect();
    line("files", if names.is_empty() { "none".into() } else { names.join(", ") })?;
    for (key, value) in manifest.provenance.as_object().into_iter().flatten() {
        if let Some(value) = short(value) {
            line(&format!("made: {key}"), value)?;
        }
    }
    line("verdict", manifest.verdict.as_ref().map_or_else(|| "none recorded".into(), verdict))?;
    Ok(())
}

/// A recorded verdict in a line; `--json` has the evidence.
fn verdict(recorded: &Value) -> String {
    recorded["summary"].as_str().map_or_else(|| recorded.to_string(), str::to_owned)
}

/// A value in a line: the scalars of an object by name, a list by its length; `--json` has the rest.
fn short(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => Some(list.len().to_string()),
        Value::Object(entries) => {
            let parts: Vec<_> =
                entries.iter().filter_map(|(key, value)| Some(format!("{key} {}", short(value)?))).collect();
            (!parts.is_empty()).then(|| parts.join(", "))
        }
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_its_summary_and_one_without_is_shown_whole() {
        assert_eq!(verdict(&json!({"verdict": "pass", "summary": "pass: KLD 0.1", "checks": [1]})), "pass: KLD 0.1");
        assert_eq!(verdict(&json!({"verdict": "pass"})), r#"{"verdict":"pass"}"#);
    }
}
