//! What `run` and `chat` share: how tokens are chosen, and an answer that is printed as it comes.

use crate::interrupt;
use crate::model::Opened;
use crate::ui::{Ui, count};
use clap::Args;
use serde_json::Value;
use smoe_engine::{Control, GenerateParams, Generation, SamplerParams, Session, Stop, generate};
use smoe_model::text::DecodeStream;
use std::io;
use std::ops::ControlFlow;

/// Flags of every command that generates.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Generation")]
pub(crate) struct Choice {
    /// The most tokens to generate.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 512)]
    max_tokens: usize,
    /// Temperature; 0 always takes the most likely token [default: the model's, else 0].
    #[arg(long, value_name = "T", value_parser = not_negative)]
    temp: Option<f32>,
    /// Choose among the K most likely tokens; 0 is no limit [default: the model's].
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Choose among the most likely tokens that hold this share of the probability [default: the model's].
    #[arg(long, value_name = "P", value_parser = share)]
    top_p: Option<f32>,
    /// Leave out tokens less likely than this share of the most likely one.
    #[arg(long, value_name = "P", value_parser = share)]
    min_p: Option<f32>,
    /// Divide the scores of tokens that have occurred by this; 1 is off [default: the model's].
    #[arg(long, value_name = "R", value_parser = positive)]
    repeat_penalty: Option<f32>,
    /// Seed of the choice.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Go on past the token that ends a text.
    #[arg(long)]
    ignore_eos: bool,
    /// Tokens that prompt and answer may take together [default: the model's].
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
}

fn number(text: &str, good: impl Fn(f32) -> bool, wanted: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| v.is_finite() && good(*v));
    value.ok_or_else(|| format!("expected {wanted}"))
}

fn not_negative(text: &str) -> Result<f32, String> {
    number(text, |v| v >= 0.0, "a number from 0 on")
}

fn positive(text: &str) -> Result<f32, String> {
    number(text, |v| v > 0.0, "a number above 0")
}

fn share(text: &str) -> Result<f32, String> {
    number(text, |v| (0.0..=1.0).contains(&v), "a number from 0 to 1")
}

impl Choice {
    /// The flags, and the model's generation_config.json where they are silent.
    pub(crate) fn params(&self, defaults: &Value) -> GenerateParams {
        let float = |key: &str| defaults.get(key).and_then(Value::as_f64).map(|v| v as f32).filter(|v| v.is_finite());
        let samples = defaults.get("do_sample").and_then(Value::as_bool).unwrap_or(false);
        let released = if samples { float("temperature").unwrap_or(1.0) } else { 0.0 };
        let top_k = defaults.get("top_k").and_then(Value::as_u64).and_then(|k| usize::try_from(k).ok());
        let sampler = SamplerParams {
            temperature: self.temp.unwrap_or(released.max(0.0)),
            top_k: self.top_k.or(top_k).unwrap_or(0),
            top_p: self.top_p.or(float("top_p").filter(|p| (0.0..=1.0).contains(p))).unwrap_or(1.0),
            min_p: self.min_p.or(float("min_p").filter(|p| (0.0..=1.0).contains(p))).unwrap_or(0.0),
            repeat_penalty: self.repeat_penalty.or(float("repetition_penalty").filter(|r| *r > 0.0)).unwrap_or(1.0),
            seed: self.seed,
        };
        GenerateParams { max_tokens: self.max_tokens, sampler, ignore_eos: self.ignore_eos }
    }
}

/// An answer, printed already.
pub(crate) struct Answer {
    /// Its text; empty where the model has no tokenizer.
    pub(crate) text: String,
    pub(crate) generation: Generation,
}

/// Generates after `prompt`, printing text (ids, without a tokenizer) as it comes. Ctrl-C ends the answer.
pub(crate) fn answer(
    opened: &Opened,
    session: &mut Session,
    prompt: &[u32],
    params: &GenerateParams,
    ui: &Ui,
) -> anyhow::Result<Answer> {
    let cancel = interrupt::flag();
    let mut stream = opened.text.as_ref().map(|text| text.decode_stream());
    let (mut said, mut failed) = (String::new(), None::<anyhow::Error>);
    let mut on_token = |id: u32| {
        let piece = match &mut stream {
            Some(stream) => stream.push(id).map_err(anyhow::Error::new),
            None => Ok(format!("{id} ")),
        };
        let printed = piece.and_then(|piece| {
            said.push_str(&piece);
            Ok(ui.piece(&piece)?)
        });
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let generation =
        generate(&opened.engine, session, prompt, params, Control { on_token: &mut on_token, cancel: &cancel })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let rest = stream.as_mut().map(DecodeStream::finish).transpose()?.unwrap_or_default();
    ui.piece(&rest)?;
    said.push_str(&rest);
    if !said.ends_with('\n') {
        ui.piece("\n")?;
    }
    if opened.text.is_none() {
        said.clear();
    }
    Ok(Answer { text: said, generation })
}

/// The word of `--json` for the end of a generation.
pub(crate) fn stop_word(stop: Stop) -> &'static str {
    match stop {
        Stop::EndOfText(_) => "end_of_text",
        Stop::MaxTokens => "max_tokens",
        Stop::Context => "context",
        Stop::Callback | Stop::Cancelled => "interrupted",
    }
}

/// Speeds, and why the text ended where that is not plain to see, on stderr.
pub(crate) fn note(generation: &Generation, context: usize, ui: &Ui) {
    let rate = |tokens: usize, rate: f64| format!("{tokens} tokens at {}/s", count(rate));
    let prompt = rate(generation.prefill_tokens, generation.prefill_tokens_per_second());
    let decoded = rate(generation.ids.len(), generation.decode_tokens_per_second());
    let end = match generation.stop {
        Stop::EndOfText(_) => String::new(),
        Stop::MaxTokens => "; ended at -n".into(),
        Stop::Context => format!("; ended at the context of {context} tokens"),
        Stop::Callback | Stop::Cancelled => "; interrupted".into(),
    };
    ui.note(format_args!("[prompt {prompt}, answer {decoded}{end}]"));
}

/// All of stdin, for `-p -`.
pub(crate) fn stdin_text() -> io::Result<String> {
    io::read_to_string(io::stdin().lock())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        choice: Choice,
    }

    fn sampler(flags: &str, defaults: &Value) -> SamplerParams {
        let words = std::iter::once("x").chain(flags.split_whitespace());
        Flags::parse_from(words).choice.params(defaults).sampler
    }

    #[test]
    fn flags_come_before_the_model_and_the_model_before_greedy() {
        let released = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95});
        assert_eq!(sampler("", &json!({})), SamplerParams::default());
        let by_model = sampler("", &released);
        assert_eq!((by_model.temperature, by_model.top_k, by_model.top_p), (0.6, 20, 0.95));
        assert_eq!(sampler("--temp 0 --top-k 5", &released).temperature, 0.0);
        assert_eq!(sampler("--temp 0 --top-k 5", &released).top_k, 5);
        assert_eq!(sampler("", &json!({"do_sample": false, "temperature": 0.6})).temperature, 0.0);
        assert_eq!(sampler("", &json!({"do_sample": true})).temperature, 1.0);
        assert_eq!(
            sampler("", &json!({"top_p": 7, "repetition_penalty": -1, "do_sample": "x"})),
            SamplerParams::default()
        );
        assert!(
            Flags::try_parse_from(["x", "--temp", "-1"]).is_err()
                && Flags::try_parse_from(["x", "--top-p", "2"]).is_err()
        );
    }
}
