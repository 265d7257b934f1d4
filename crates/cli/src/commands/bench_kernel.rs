//! `smoe bench kernel`.

use crate::commands::Outcome;
use crate::ui::{Size, Ui, bytes};
use clap::Args;
use serde_json::json;
use smoe_kernels::{Isa, bench};
use std::time::Duration;

/// The CPU's kernels beside its own memory: GB/s of packed weights with one token, GFLOP/s with 128.
///
/// Reading and computing take turns on the same bytes, in all threads. The bytes are more than the last cache holds, four
/// times, so that both come from memory. Exit code 1 where a product is faster than reading: then something is wrong with
/// the measurement.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe bench kernel
  smoe bench kernel --isa avx2 --threads 1
  smoe bench kernel --seconds 3 --json")]
pub(super) struct Kernel {
    /// Threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Only this instruction set [default: every one that this CPU has].
    #[arg(long, value_name = "NAME", value_parser = isa)]
    isa: Option<Isa>,
    /// How long to measure each.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = super::bench::seconds)]
    seconds: f64,
    /// Bytes of weights [default: four times the last cache].
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
}

/// Where the system does not tell its caches.
const UNKNOWN_CACHE: u64 = 64 << 20;

impl Kernel {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let threads = self.threads.map_or_else(cores, usize::from);
        let isas = self.isa.map_or_else(|| Isa::paths().into_iter().skip(1).collect(), |isa| vec![isa]);
        let isas = if isas.is_empty() { vec![Isa::Scalar] } else { isas };
        let cache = last_cache();
        if cache.is_none() {
            ui.note("the system does not tell the size of its last cache; 64 MiB are assumed");
        }
        let wanted = 4 * cache.unwrap_or(UNKNOWN_CACHE);
        let size = self.size.map_or(wanted, |size| size.0);
        if size < wanted {
            ui.note(format_args!(
                "{} of weights are less than four times the last cache ({}): the figures may be those of the cache",
                bytes(size),
                bytes(wanted / 4)
            ));
        }
        let found = bench::kernel(&isas, threads, usize::try_from(size)?, Duration::from_secs_f64(self.seconds));
        ui.line(format_args!("{} threads, {} of weights in memory", found.threads, bytes(found.bytes as u64)))?;
        ui.line("instructions  weights  activations   GB/s  of reading        GFLOP/s at 128 tokens")?;
        for it in &found.results {
            let (isa, format, x) = (it.isa.name(), it.format, it.activations.name());
            let (gb, roof, share, flops) = (it.gb_per_second, it.roof_gb_per_second, it.share * 100.0, it.gflops);
            ui.line(format_args!("{isa:13} {format:8} {x:11} {gb:6.1}  {roof:6.1} {share:4.0} %   {flops:12.0}"))?;
        }
        let impossible: Vec<_> = found.results.iter().filter(|it| it.share > 1.0).collect();
        for it in &impossible {
            ui.note(format_args!(
                "error: {} {} is above what reading alone takes: the measurement is wrong; close what else runs, or measure \
                 longer with --seconds",
                it.isa.name(),
                it.format
            ));
        }
        let results = found.results.iter().map(|it| {
            json!({
                "isa": it.isa.name(),
                "format": it.format,
                "activations": it.activations.name(),
                "gb_per_second": it.gb_per_second,
                "roof_gb_per_second": it.roof_gb_per_second,
                "share": it.share,
                "prefill_gflops": it.gflops,
            })
        });
        ui.object(&json!({
            "threads": found.threads,
            "bytes": found.bytes,
            "last_cache_bytes": cache,
            "prefill_tokens": bench::PREFILL,
            "results": results.collect::<Vec<_>>(),
        }))?;
        Ok(Outcome::of(impossible.is_empty()))
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn isa(text: &str) -> Result<Isa, String> {
    let names = || Isa::paths().iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
    Isa::from_name(text).ok_or_else(|| format!("this CPU has {}", names()))
}

/// Bytes of the largest cache, as the system tells.
fn last_cache() -> Option<u64> {
    let folders = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = folders.filter_map(|folder| std::fs::read_to_string(folder.ok()?.path().join("size")).ok());
    sizes.filter_map(|text| text.trim().strip_suffix('K')?.parse::<u64>().ok()).max().map(|kib| kib << 10)
}
