//! `smoe plan`.

use super::{Outcome, codec};
use crate::model;
use crate::ui::{Size, Ui, bytes, count};
use anyhow::Context;
use clap::Args;
use smoe_quantize::plan::{PlanOptions, PlanReport, plan};
use std::path::PathBuf;

/// Sizes and speeds before anything is converted: from headers, or from a config.json alone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe plan Qwen3-235B-A22B/config.json --drive-gbps 7.4
  smoe plan Qwen3-30B-A3B --codec q2 --context 8192 --ram 16G")]
pub(crate) struct Plan {
    /// A checkpoint folder, a config.json, or a vault.
    #[arg(value_name = "CHECKPOINT|config.json|VAULT")]
    model: PathBuf,
    /// The codec of the experts.
    #[arg(long, default_value = "q4", value_parser = ["q2", "q4"])]
    codec: String,
    /// Tokens that the caches must hold.
    #[arg(long, value_name = "TOKENS", default_value_t = 4096)]
    context: usize,
    /// How fast the drive reads, in GB/s.
    #[arg(long, value_name = "GB/S", default_value_t = 3.0, value_parser = rate)]
    drive_gbps: f64,
    /// Memory that may be used, such as 16G [default: what this machine has].
    #[arg(long, value_name = "SIZE")]
    ram: Option<Size>,
    /// Accept a config key that is not understood.
    #[arg(long, value_name = "KEY")]
    ignore_config: Vec<String>,
}

impl Plan {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let options = PlanOptions {
            codec: codec(&self.codec)?,
            context: self.context,
            drive_gbps: self.drive_gbps,
            ram: self.ram.map(|size| size.0),
            ignore_config: self.ignore_config.clone(),
        };
        let report = plan(&self.model, &options).with_context(|| model::name(&self.model))?;
        say(&report, ui)?;
        ui.object(&serde_json::to_value(&report)?)?;
        Ok(Outcome::Done)
    }
}

fn say(it: &PlanReport, ui: &Ui) -> std::io::Result<()> {
    let line = |name: &str, value: String| ui.line(format_args!("{name:<14}{value}"));
    line("family", format!("{}, from {}", it.family, it.source))?;
    let (all, active) = (count(it.parameters as f64), count(it.active_parameters as f64));
    line("parameters", format!("{all}, of which {active} work for one token"))?;
    let shape = (it.experts_per_layer, it.moe_layers, it.top_k);
    line("experts", format!("{} in each of {} layers, {} a token", shape.0, shape.1, shape.2))?;
    let (size, rate) = (it.expert_bytes, it.experts_per_second);
    let of = [("bf16", size.bf16, rate.bf16), ("q4", size.q4, rate.q4), ("q2", size.q2, rate.q2)];
    for (name, size, rate) in of {
        let rate = count(rate);
        line("", format!("{name:<5} {:>8} an expert, {rate} experts/s at {} GB/s", bytes(size), it.drive_gbps))?;
    }
    let about = if it.vault_bytes_exact { "" } else { "about " };
    let parts = format!("experts {}, trunk {}", bytes(it.all_expert_bytes), bytes(it.trunk_bytes));
    line("vault", format!("{about}{} in {}: {parts}", bytes(it.vault_bytes), it.codec))?;
    let ram = it.ram_bytes.map(|ram| format!("; {} is there", bytes(ram))).unwrap_or_default();
    line("memory floor", format!("{} with a context of {}{ram}", bytes(it.memory_floor_bytes), it.context))?;
    let speed = it.tokens_per_second;
    let warm = speed.warm.map_or_else(|| "not limited by the drive".into(), |warm| format!("{} tokens/s", count(warm)));
    line("speed", format!("cold {} tokens/s, warm {warm}", count(speed.cold)))?;
    for (rule, skipped) in &it.skipped_parameters {
        line("left out", format!("{} parameters: {rule}", count(*skipped as f64)))?;
    }
    it.notes.iter().for_each(|note| ui.note(format_args!("note: {note}")));
    Ok(())
}

fn rate(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|rate| (0.001..=10_000.0).contains(rate));
    value.ok_or_else(|| "expected GB/s, such as 7.4".into())
}
