//! `smoe doctor`.

use super::Outcome;
use crate::ui::{Ui, bytes};
use clap::Args;
use serde_json::json;
use smoe_engine::cpu::Activations;
use smoe_engine::machine_memory;
use smoe_kernels::{DRIFT, Isa, selftest};
use smoe_stream::Direct;
use std::path::PathBuf;

/// What this machine has, and whether every kernel computes here what it must.
///
/// Multiplies the same matrices on every path that the CPU has and compares: exact products with the definition's within
/// 1e-5, products with eight-bit activations bit for bit; and says how far those are from exact ones. Exit code 1 where
/// something differs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe doctor
  smoe doctor qwen3.vault
  smoe doctor --json")]
pub(crate) struct Doctor {
    /// A vault: can its drive be read past the page cache?
    vault: Option<PathBuf>,
}

impl Doctor {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let reads = self.vault.as_deref().map(Direct::open).transpose()?.map(|drive| drive.reads().describe());
        let tested = selftest::run();
        let passed = tested.iter().all(selftest::Tested::passed);
        let names: Vec<_> = Isa::paths().iter().map(|isa| isa.name()).collect();
        let (cores, free) = (std::thread::available_parallelism().map_or(1, usize::from), machine_memory());
        ui.line(format_args!("smoe         {}", env!("CARGO_PKG_VERSION")))?;
        ui.line(format_args!("cores        {cores}"))?;
        ui.line(format_args!("paths        {}; {} is used", names.join(", "), Isa::detect().name()))?;
        ui.line(format_args!("activations  {} in run and chat, f32 with --exact", Activations::fastest().name()))?;
        ui.line(format_args!("memory       {}", free.map_or("not told by the system".into(), bytes)))?;
        if let Some(reads) = &reads {
            ui.line(format_args!("drive        {reads}"))?;
        }
        ui.line("")?;
        ui.line(format_args!("path         codec  exact, off by  int8, same bits  int8 from exact, at most {DRIFT}"))?;
        for it in &tested {
            let (isa, codec, same) = (it.isa.name(), it.codec.name(), if it.same_bits { "yes" } else { "NO" });
            let verdict = if it.passed() { "ok" } else { "FAILED" };
            ui.line(format_args!(
                "{isa:12} {codec:6} {:<14.1e} {same:16} {:<8.4} {verdict}",
                it.exact_difference, it.drift
            ))?;
        }
        let results = tested.iter().map(|it| {
            json!({
                "isa": it.isa.name(), "codec": it.codec.name(), "exact_difference": it.exact_difference,
                "same_bits": it.same_bits, "drift": it.drift, "passed": it.passed(),
            })
        });
        ui.object(&json!({
            "smoe": env!("CARGO_PKG_VERSION"),
            "cores": cores,
            "isas": names,
            "isa": Isa::detect().name(),
            "activations": Activations::fastest().name(),
            "memory_bytes": free,
            "reads": reads,
            "drift_tolerance": DRIFT,
            "kernels": results.collect::<Vec<_>>(),
            "passed": passed,
        }))?;
        Ok(Outcome::of(passed))
    }
}
