//! [`generate`]: a prompt, then one token a step.

use crate::engine::Engine;
use crate::error::EngineError;
use crate::forward::Want;
use crate::observer::Silent;
use crate::sampler::{Sampler, SamplerParams};
use crate::session::Session;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What to generate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerateParams {
    /// At most so many tokens.
    pub max_tokens: usize,
    /// How they are chosen.
    pub sampler: SamplerParams,
    /// Goes on past the model's end-of-text ids.
    pub ignore_eos: bool,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The model ended its text with this id (not among the generated ids).
    EndOfText(u32),
    /// `max_tokens` were made.
    MaxTokens,
    /// The context is full.
    Context,
    /// The callback wanted no more.
    Callback,
    /// The cancel flag was raised.
    Cancelled,
}

/// A finished generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// The generated ids.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub stop: Stop,
    /// Prompt tokens taken in.
    pub prefill_tokens: usize,
    /// Time that took.
    pub prefill_seconds: f64,
    /// Tokens computed one at a time (the first generated one comes from the prefill).
    pub decode_tokens: usize,
    /// Time that took.
    pub decode_seconds: f64,
}

impl Generation {
    /// Prompt tokens a second; 0 where there were none.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prefill_tokens, self.prefill_seconds)
    }

    /// Generated tokens a second; 0 where none was computed by itself.
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.decode_tokens, self.decode_seconds)
    }
}

fn rate(tokens: usize, seconds: f64) -> f64 {
    if tokens == 0 || seconds <= 0.0 { 0.0 } else { tokens as f64 / seconds }
}

/// What the caller does meanwhile.
pub struct Control<'a> {
    /// Gets every id as it is made; [`ControlFlow::Break`] ends the generation.
    pub on_token: &'a mut dyn FnMut(u32) -> ControlFlow<()>,
    /// Raised from elsewhere to end it; looked at before every pass.
    pub cancel: &'a AtomicBool,
}

/// Takes `prompt` into the session and generates after it. Every generated id but the last is in the session then.
///
/// # Errors
/// A prompt that is empty or does not fit, an expert that cannot be read, or logits without a number.
pub fn generate(
    engine: &Engine,
    session: &mut Session,
    prompt: &[u32],
    params: &GenerateParams,
    control: Control<'_>,
) -> Result<Generation, EngineError> {
    let Control { on_token, cancel } = control;
    if prompt.is_empty() {
        return Err(EngineError::NoTokens);
    }
    if prompt.len() > session.room() {
        return Err(EngineError::ContextFull { wanted: session.len() + prompt.len(), context: session.context() });
    }
    let mut sampler = Sampler::new(params.sampler);
    prompt.iter().for_each(|&id| sampler.saw(id));
    let mut done = Generation {
        ids: Vec::new(),
        stop: Stop::MaxTokens,
        prefill_tokens: 0,
        prefill_seconds: 0.0,
        decode_tokens: 0,
        decode_seconds: 0.0,
    };
    let cancelled = || cancel.load(Ordering::Relaxed);
    let (began, chunk, mut logits) = (Instant::now(), session.chunk, Vec::new());
    for part in prompt.chunks(chunk) {
        if cancelled() {
            done.stop = Stop::Cancelled;
            break;
        }
        done.prefill_tokens += part.len();
        let want = if done.prefill_tokens == prompt.len() { Want::Last } else { Want::Nothing };
        let Some(row) = pass(engine, session, part, want)? else {
            done.stop = Stop::Cancelled;
            break;
        };
        logits = row;
    }
    done.prefill_seconds = began.elapsed().as_secs_f64();
    let began = Instant::now();
    while done.stop != Stop::Cancelled && done.ids.len() < params.max_tokens {
        let id = sampler.sample(&logits).ok_or(EngineError::NotANumber { position: session.len() - 1 })?;
        if !params.ignore_eos && engine.spec().tokens.eos.contains(&id) {
            done.stop = Stop::EndOfText(id);
            break;
        }
        sampler.saw(id);
        done.ids.push(id);
        if on_token(id).is_break() {
            done.stop = Stop::Callback;
            break;
        }
        if done.ids.len() == params.max_tokens {
            break;
        }
        if session.room() == 0 {
            done.stop = Stop::Context;
            break;
        }
        if cancelled() {
            done.stop = Stop::Cancelled;
            break;
        }
        let Some(row) = pass(engine, session, &[id], Want::Last)? else {
            done.stop = Stop::Cancelled;
            break;
        };
        logits = row;
        done.decode_tokens += 1;
    }
    done.decode_seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

/// One pass; `None` where the user interrupted a wait within it.
fn pass(engine: &Engine, session: &mut Session, ids: &[u32], want: Want) -> Result<Option<Vec<f32>>, EngineError> {
    match engine.forward(session, ids, &mut Silent, want) {
        Ok(logits) => Ok(Some(logits)),
        Err(EngineError::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
