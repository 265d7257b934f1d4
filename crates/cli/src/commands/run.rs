//! `smoe run`.

use super::Outcome;
use crate::args::Compute;
use crate::ui::Ui;
use clap::Args;
use std::path::PathBuf;

/// Generate text from a vault or a checkpoint folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe run q3.vault -p \"Why is the sky blue?\"
  smoe run q3.vault --raw -p \"Once upon a time\" -n 100 --temp 0
  cat question.txt | smoe run q3.vault -p - --json
  smoe run q3.vault --ids 9707,11,1879 -n 5 --ignore-eos")]
pub(crate) struct Run {
    /// A vault or a checkpoint folder.
    model: PathBuf,
    /// The prompt; - reads it from stdin.
    #[arg(short, long, value_name = "TEXT", required_unless_present = "ids", conflicts_with = "ids")]
    prompt: Option<String>,
    /// A system message before the prompt.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["raw", "ids"])]
    system: Option<String>,
    /// The prompt as token ids: 1,2,3.
    #[arg(long, value_name = "IDS")]
    ids: Option<String>,
    /// Give the prompt to the model as it is, without its chat template.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    generation: Generation,
    #[command(flatten)]
    compute: Compute,
}

/// Flags of every command that generates.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct Generation {
    /// The most tokens to generate.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 512)]
    pub(crate) max_tokens: usize,
    /// Temperature; 0 always takes the most likely token [default: the model's, else 0].
    #[arg(long, value_name = "T")]
    pub(crate) temp: Option<f32>,
    /// Choose among the K most likely tokens [default: the model's].
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Choose among the most likely tokens that hold this share of the probability [default: the model's].
    #[arg(long, value_name = "P")]
    pub(crate) top_p: Option<f32>,
    /// Leave out tokens less likely than this share of the most likely one.
    #[arg(long, value_name = "P")]
    pub(crate) min_p: Option<f32>,
    /// Divide the scores of tokens that have occurred by this.
    #[arg(long, value_name = "R")]
    pub(crate) repeat_penalty: Option<f32>,
    /// Seed of the choice.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Go on past the token that ends a text.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Tokens that prompt and answer may take together [default: the model's].
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
}

impl Run {
    pub(crate) fn run(self, _ui: &Ui) -> anyhow::Result<Outcome> {
        anyhow::bail!("not wired yet")
    }
}
