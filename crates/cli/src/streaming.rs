//! A vault in the memory that there is: resident, or its experts streamed from the drive.

use crate::args::Compute;
use crate::fault::Hint;
use crate::interrupt;
use crate::ui::{Size, Ui, bytes};
use anyhow::Context;
use serde_json::{Value, json};
use smoe_engine::sources::expert_places;
use smoe_engine::{Engine, EngineOptions, MemoryEstimate, VaultStore, machine_memory};
use smoe_model::ModelSpec;
use smoe_model::store::TensorStore;
use smoe_stream::{Budget, Direct, Key, Needs, Reads, StreamOptions, Streamed};
use smoe_vault::VaultFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A context that is lowered to fit is not lowered further.
const LEAST_CONTEXT: usize = 1024;
/// Passes of a prefill that are tried, the largest first: a smaller one takes less memory and reads more.
const CHUNKS: [usize; 3] = [512, 128, 32];
/// Of the free memory, what is left to others where no promise was asked for.
const SHARE: f64 = 0.9;

/// Experts that come from the drive.
pub(crate) struct Streaming {
    source: Arc<Streamed>,
    reads: Reads,
    /// The file beside the vault that remembers which experts were used most, and which vault that was.
    hot: Hot,
    /// Experts that it had read at the start.
    warmed: usize,
}

/// Which experts a vault's runs used most, in a small file beside it. Only a hint: one that is missing, of another vault or
/// cannot be read costs time and nothing else.
struct Hot {
    path: PathBuf,
    vault: String,
}

impl Hot {
    fn of(path: &Path, file: &VaultFile) -> Self {
        let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
        let header = file.index().header;
        Self {
            path: path.with_file_name(format!("{name}.hot.json")),
            vault: format!("{:016x}", header.manifest_checksum),
        }
    }

    fn read(&self) -> Vec<Key> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        if json["vault"] != self.vault.as_str() {
            return Vec::new();
        }
        let key = |pair: &Value| {
            let (layer, expert) = (pair[0].as_u64()?, pair[1].as_u64()?);
            Some((usize::try_from(layer).ok()?, u32::try_from(expert).ok()?))
        };
        json["experts"].as_array().into_iter().flatten().filter_map(key).collect()
    }

    fn write(&self, experts: &[Key]) -> std::io::Result<()> {
        let partial = self.path.with_extension("json.tmp");
        std::fs::write(&partial, json!({ "vault": self.vault, "experts": experts }).to_string())?;
        std::fs::rename(partial, &self.path)
    }
}

/// Opens a vault within `--ram`, or within what the machine has free.
pub(crate) fn open(
    path: &Path,
    store: &VaultStore,
    compute: &Compute,
    mut options: EngineOptions,
    ui: &Ui,
) -> anyhow::Result<(Engine, Option<Streaming>)> {
    let free = machine_memory().map(|free| (free as f64 * SHARE) as u64);
    let Some(ram) = compute.ram.map(|Size(ram)| ram).or(free) else {
        ui.note("note: the system does not tell how much memory is free; all experts are loaded");
        return Ok((Engine::of_vault(store, &options)?, None));
    };
    match fit(store, ram, compute.ram.is_some(), &mut options, ui)? {
        None => Ok((Engine::of_vault(store, &options)?, None)),
        Some(budget) => stream(path, budget, &options, ui).map(|(engine, streaming)| (engine, Some(streaming))),
    }
}

/// The budget for experts, `None` where all fit. Lowers the pass and the context to what fits, and says so.
fn fit(
    store: &VaultStore,
    ram: u64,
    promised: bool,
    options: &mut EngineOptions,
    ui: &Ui,
) -> anyhow::Result<Option<u64>> {
    let (spec, trunk) = (store.spec(), store.file().manifest().trunk.iter().map(|tensor| tensor.length).sum());
    let lengths = || store.file().experts().iter().map(|record| record.length);
    let asked = options.context.unwrap_or(spec.context);
    let least = if options.context.is_some() { asked } else { asked.min(LEAST_CONTEXT) };
    let needs = |context: usize, chunk: usize| Needs {
        fixed: MemoryEstimate::new(spec, trunk, 0, context, chunk).total(),
        experts: lengths().sum(),
        largest: lengths().max().unwrap_or(0),
        token: token_bytes(store, spec),
    };
    let (mut context, mut refused) = (asked, 0);
    loop {
        for chunk in CHUNKS.into_iter().filter(|chunk| *chunk <= options.chunk) {
            let needs = needs(context, chunk);
            let budget = match Budget::new(&needs, ram) {
                Budget::Refused(floor) => {
                    refused = floor;
                    continue;
                }
                Budget::Resident => None,
                Budget::Streamed(budget) => Some(budget),
            };
            if context < asked {
                ui.note(format_args!("note: {} hold a context of {context} tokens, not of {asked}", bytes(ram)));
                options.context = Some(context);
            }
            if chunk < options.chunk {
                ui.note(format_args!("note: {} hold prefills of {chunk} tokens at a time", bytes(ram)));
                options.chunk = chunk;
            }
            if let Some(budget) = budget.filter(|budget| *budget < needs.token) {
                ui.note(format_args!(
                    "WARNING: a token visits {} of experts and {} are there to keep them: nearly all are read for every \
                     token; more --ram, or a vault with fewer bits, is faster",
                    bytes(needs.token),
                    bytes(budget)
                ));
            }
            return Ok(budget);
        }
        if context <= least {
            let whose = if promised { "--ram allows" } else { "this machine has" };
            return Err(anyhow::anyhow!(
                "needs {} with a context of {context} tokens, {whose} {}",
                bytes(refused),
                bytes(ram)
            ))
            .hint("take a smaller codec, --trunk q8 or a lower --context; smoe plan shows what each needs");
        }
        context = (context / 2).max(least);
    }
}

/// Bytes of the experts that one token visits.
fn token_bytes(store: &VaultStore, spec: &ModelSpec) -> u64 {
    let of = |layer: usize| {
        let lengths = store.file().experts().iter().filter(|record| record.layer as usize == layer);
        lengths.map(|record| record.length).max().unwrap_or(0)
    };
    spec.moe_layers().map(|(layer, moe)| of(layer) * moe.top_k as u64).sum()
}

fn stream(path: &Path, budget: u64, options: &EngineOptions, ui: &Ui) -> anyhow::Result<(Engine, Streaming)> {
    let drive = Direct::open(path).with_context(|| path.display().to_string())?;
    let reads = drive.reads().clone();
    let file = Arc::new(VaultFile::from_drive(Box::new(drive), &path.display().to_string())?);
    let store = VaultStore::new(Arc::clone(&file))?;
    let stream = StreamOptions { interrupted: interrupt::requested, ..StreamOptions::new(budget) };
    let source = Arc::new(Streamed::open(&file, store.spec(), &stream)?);
    let total: u64 = expert_places(&file, store.spec())?.iter().flatten().map(|place| place.record.length).sum();
    ui.note(format_args!(
        "streaming: {} of {} of experts in memory, {}, {} readers",
        bytes(budget),
        bytes(total),
        reads.describe(),
        stream.readers
    ));
    let engine = Engine::new(&store, Box::new(Arc::clone(&source)), options)?;
    file.check_unread()?;
    let hot = Hot::of(path, &file);
    let warmed = source.warm(&hot.read());
    if warmed > 0 {
        ui.note(format_args!("{warmed} experts that were used most are being read ({})", hot.path.display()));
    }
    Ok((engine, Streaming { source, reads, hot, warmed }))
}

impl Streaming {
    /// What was read, for `--json`.
    pub(crate) fn json(&self) -> Value {
        let (traffic, options) = (self.source.traffic(), self.source.options());
        let why = if let Reads::Buffered(why) = &self.reads { Some(why) } else { None };
        json!({
            "budget_bytes": options.budget,
            "readers": options.readers,
            "direct_io": self.reads == Reads::Direct,
            "buffered_because": why,
            "hits": traffic.hits,
            "misses": traffic.misses,
            "reads": traffic.reads,
            "read_bytes": traffic.read_bytes,
            "warmed": self.warmed,
            "wait_seconds": traffic.waited.as_secs_f64(),
        })
    }

    /// Remembers which experts were used most, for the next run.
    pub(crate) fn remember(&self, ui: &Ui) {
        if let Err(error) = self.hot.write(&self.source.hottest()) {
            ui.note(format_args!("note: {}: {error}; the next run starts cold", self.hot.path.display()));
        }
    }

    /// What was read, in a line.
    pub(crate) fn describe(&self) -> String {
        let traffic = self.source.traffic();
        let asked = (traffic.hits + traffic.misses).max(1);
        format!(
            "experts: {:.0} % were in memory, {} read, {:.1} s waited",
            100.0 * traffic.hits as f64 / asked as f64,
            bytes(traffic.read_bytes),
            traffic.waited.as_secs_f64()
        )
    }
}
