//! The commands, one a file.

mod bench;
mod bench_kernel;
mod chat;
mod completions;
mod diagnose;
mod doctor;
mod eval;
mod export;
mod gate;
pub(crate) mod generation;
mod import;
mod inspect;
mod logits;
mod plan;
mod quantize;
mod run;
mod synth;
mod test_quant;
mod verify;

use crate::ui::Ui;
use clap::Subcommand;
use smoe_codec::Codec;

/// How a command ended, other than by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Done,
    /// The answer is no: exit code 1.
    Negative,
}

impl Outcome {
    /// `Done` where `good`.
    pub(crate) fn of(good: bool) -> Self {
        if good { Self::Done } else { Self::Negative }
    }
}

/// What smoe does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Plan(plan::Plan),
    Quantize(quantize::Quantize),
    Run(run::Run),
    Chat(chat::Chat),
    Eval(eval::Eval),
    Gate(Box<gate::Gate>),
    Diagnose(diagnose::Diagnose),
    Logits(logits::Logits),
    Inspect(inspect::Inspect),
    Verify(verify::Verify),
    Import(import::Import),
    Export(export::Export),
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    TestQuant(test_quant::TestQuant),
    #[command(hide = true)]
    Synth(synth::Synth),
    Completions(completions::Completions),
}

/// Runs a command.
pub(crate) fn run(command: Command, ui: &Ui) -> anyhow::Result<Outcome> {
    match command {
        Command::Plan(it) => it.run(ui),
        Command::Quantize(it) => it.run(ui),
        Command::Run(it) => it.run(ui),
        Command::Chat(it) => it.run(ui),
        Command::Eval(it) => it.run(ui),
        Command::Gate(it) => it.run(ui),
        Command::Diagnose(it) => it.run(ui),
        Command::Logits(it) => it.run(ui),
        Command::Inspect(it) => it.run(ui),
        Command::Verify(it) => it.run(ui),
        Command::Import(it) => it.run(ui),
        Command::Export(it) => it.run(ui),
        Command::Bench(it) => it.run(ui),
        Command::Doctor(it) => it.run(ui),
        Command::TestQuant(it) => it.run(ui),
        Command::Synth(it) => it.run(ui),
        Command::Completions(it) => it.run(ui),
    }
}

/// A codec by its name on the command line; clap has checked the name.
fn codec(name: &str) -> anyhow::Result<Codec> {
    Codec::from_name(name).ok_or_else(|| anyhow::anyhow!("--codec: `{name}` is none"))
}
