//! The command line: every flag is defined once, here or in its command's file.

use crate::commands::Command;
use crate::ui::Size;
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;

/// Turns mixture-of-experts checkpoints into one vault file of 2 to 4 bits an expert weight, proves what that cost, and
/// runs it.
#[derive(Debug, Parser)]
#[command(name = "smoe", version, max_term_width = 110, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "\
Examples:
  smoe plan Qwen3-30B-A3B/config.json        what it will weigh, and how fast it will run
  smoe quantize Qwen3-30B-A3B -o q3.vault --codec q4
  smoe run q3.vault -p \"Why is the sky blue?\"
  smoe chat q3.vault

Exit codes: 0 done, 1 a negative result (a verdict, a verification, a comparison), 2 an error.")]
pub(crate) struct Cli {
    /// Print exactly one JSON object on stdout.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Parses a command line.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&Cli::command().try_get_matches_from(arguments)?)
}

/// Flags of every command that computes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Computing")]
pub(crate) struct Compute {
    /// Threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Which GPU: auto, off or its number.
    #[arg(long, value_name = "auto|off|N", default_value = "auto", value_parser = parse_gpu)]
    pub(crate) gpu: Gpu,
    /// Memory that weights and caches may take, such as 16G.
    #[arg(long, value_name = "SIZE")]
    pub(crate) ram: Option<Size>,
    /// Run with activations as they are, not rounded to eight bits before each product with codes (slower). What measures
    /// (eval, gate, logits) always does.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Run a vault in spite of a failed verdict.
    #[arg(long)]
    pub(crate) force: bool,
    /// Accept a checkpoint's config key that is not understood.
    #[arg(long, value_name = "KEY")]
    pub(crate) ignore_config: Vec<String>,
}

/// The choice of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Gpu {
    #[default]
    Auto,
    Off,
    Number(usize),
}

fn parse_gpu(text: &str) -> Result<Gpu, String> {
    match text {
        "auto" => Ok(Gpu::Auto),
        "off" => Ok(Gpu::Off),
        number => number.parse().map(Gpu::Number).map_err(|_| "auto, off, or the number of a GPU".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_with_an_example() {
        for command in Cli::command().get_subcommands().filter(|c| c.get_name() != "help") {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains(&format!("smoe {}", command.get_name())), "{}", command.get_name());
        }
    }

    /// Words of a shell line, quotes taken off.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().expect("never empty").push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    /// Lines of `text` that run smoe, without comments, pipes and redirections.
    fn commands(text: &str) -> impl Iterator<Item = &str> {
        let lines = text.lines().filter_map(|line| line.find("smoe ").map(|at| &line[at..]));
        let ends = [" #", " |", " >", "   "];
        lines.map(move |line| &line[..ends.iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len())])
    }

    #[test]
    fn every_command_that_we_show_parses() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut shown = std::fs::read_to_string(root.join("README.md")).expect("README.md");
        shown = shown.split("```sh").skip(1).filter_map(|block| block.split("```").next()).collect();
        for command in Cli::command().get_subcommands() {
            shown += &command.get_after_help().map(ToString::to_string).unwrap_or_default();
            shown.push('\n');
        }
        shown += &Cli::command().get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(commands(&shown).count() > 20);
        for line in commands(&shown) {
            let parsed = Cli::command().try_get_matches_from(words(line));
            assert!(parsed.is_ok(), "{line}\n{}", parsed.expect_err("not ok"));
        }
    }
}
