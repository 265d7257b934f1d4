//! `smoe run`.

use super::Outcome;
use super::generation::{Choice, answer, note, stdin_text, stop_word};
use crate::args::Compute;
use crate::fault::Hint;
use crate::streaming::Streaming;
use crate::ui::{Ui, parse_ids};
use crate::{interrupt, model};
use anyhow::Context;
use clap::Args;
use serde_json::json;
use smoe_engine::Stop;
use smoe_model::text::{Chat, TextModel};
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
    #[arg(long, value_name = "IDS", value_parser = parse_id_list)]
    ids: Option<IdList>,
    /// Give the prompt to the model as it is, without its chat template.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    compute: Compute,
}

/// A list of ids as one argument.
#[derive(Debug, Clone)]
struct IdList(Vec<u32>);

fn parse_id_list(text: &str) -> Result<IdList, String> {
    parse_ids(text).map(IdList)
}

impl Run {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let typed = match self.prompt.as_deref() {
            Some("-") => Some(stdin_text().context("stdin")?),
            other => other.map(String::from),
        };
        model::heed_verdict(&self.model, self.compute.force, ui)?;
        let opened = model::open_to_run(&self.model, &self.compute, self.choice.context, ui)?;
        let prompt = match (&self.ids, typed) {
            (Some(IdList(ids)), _) => ids.clone(),
            (None, typed) => {
                let missing = || anyhow::anyhow!("{}: has no tokenizer", self.model.display());
                let text = opened.text.as_ref().ok_or_else(missing).hint("give the prompt as --ids 1,2,3")?;
                self.encode(text, &typed.unwrap_or_default())?
            }
        };
        let params = self.choice.params(&opened.generation_config);
        let mut session = opened.engine.session();
        let said = answer(&opened, &mut session, &prompt, &params, ui)?;
        let generation = &said.generation;
        note(generation, opened.engine.context(), ui);
        if let Some(streaming) = &opened.streaming {
            ui.note(streaming.describe());
            streaming.remember(ui);
        }
        ui.object(&json!({
            "prompt_ids": prompt,
            "ids": generation.ids,
            "text": opened.text.is_some().then_some(&said.text),
            "stop": stop_word(generation.stop),
            "prefill_tokens_per_second": generation.prefill_tokens_per_second(),
            "decode_tokens_per_second": generation.decode_tokens_per_second(),
            "streaming": opened.streaming.as_ref().map(Streaming::json),
            "backend": opened.engine.backend(),
            "peak_rss_bytes": smoe_engine::peak_rss_bytes(),
        }))?;
        if generation.stop == Stop::Cancelled { Err(interrupt::error()) } else { Ok(Outcome::Done) }
    }

    fn encode(&self, text: &TextModel, prompt: &str) -> anyhow::Result<Vec<u32>> {
        if self.raw {
            return Ok(text.encode_prompt(prompt)?);
        }
        if !text.has_template() {
            let missing = anyhow::anyhow!("{}: has no chat template", self.model.display());
            return Err(missing).hint("add --raw to give the prompt to the model as it is");
        }
        let mut chat = Chat::default();
        if let Some(system) = &self.system {
            chat.push("system", system);
        }
        Ok(text.encode_chat(chat.push("user", prompt))?.ids)
    }
}
