//! `smoe chat`.

use super::Outcome;
use super::generation::{Choice, answer, note};
use crate::args::Compute;
use crate::chat::conversation::Conversation;
use crate::chat::editor::{Editor, Typed};
use crate::chat::input::{HELP, Input};
use crate::fault::Hint;
use crate::ui::Ui;
use crate::{interrupt, model};
use clap::Args;
use smoe_engine::{GenerateParams, Stop};
use std::path::{Path, PathBuf};

/// Chat with a model in the terminal.
///
/// Ctrl-C ends an answer, Ctrl-D the chat; /help lists the commands.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe chat q3.vault
  smoe chat q3.vault --system \"Answer in one sentence.\" --temp 0.7")]
pub(crate) struct Chat {
    /// A vault or a checkpoint folder.
    model: PathBuf,
    /// A system message.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Keep no history of what was typed.
    #[arg(long)]
    no_history: bool,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    compute: Compute,
}

/// What the loop does after a line.
enum Next {
    Read,
    Leave,
}

impl Chat {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        model::heed_verdict(&self.model, self.compute.force, ui)?;
        let opened = model::open_to_run(&self.model, &self.compute, self.choice.context, ui)?;
        let name = self.model.display();
        if opened.text.as_ref().is_none_or(|text| !text.has_template()) {
            let missing = anyhow::anyhow!("{name}: has no tokenizer with a chat template");
            return Err(missing).hint("smoe run --raw, or smoe run --ids, generates without one");
        }
        let mut params = self.choice.params(&opened.generation_config);
        let mut conversation = Conversation::new(&opened, self.system.clone());
        let mut editor = Editor::new(!self.no_history)?;
        ui.note(format_args!("{name}, context {} tokens; /help for help", opened.engine.context()));
        loop {
            let line = match editor.read()? {
                Typed::Line(line) => line,
                Typed::Interrupt => {
                    ui.note("Ctrl-D or /quit leaves");
                    continue;
                }
                Typed::End => break,
            };
            match step(&mut conversation, Input::parse(&line), &mut params, ui) {
                Ok(Next::Read) => {}
                Ok(Next::Leave) => break,
                Err(error) => return Err(error),
            }
        }
        editor.save();
        if let Some(streaming) = &opened.streaming {
            streaming.remember(ui);
        }
        ui.object(&conversation.to_json())?;
        Ok(Outcome::Done)
    }
}

/// Does what a line says.
fn step(it: &mut Conversation<'_>, input: Input, params: &mut GenerateParams, ui: &Ui) -> anyhow::Result<Next> {
    match input {
        Input::Nothing => {}
        Input::Help => ui.note(HELP),
        Input::Quit => return Ok(Next::Leave),
        Input::Misunderstood(text) => ui.note(text),
        Input::Clear => {
            it.clear();
            ui.note("forgotten");
        }
        Input::System(text) => {
            let said = if text.is_some() { "a new conversation with this system message" } else { "no system message" };
            it.set_system(text);
            ui.note(said);
        }
        Input::Save(path) => ui.note(save(it, &path)),
        Input::Retry => {
            if it.take_back_answer() {
                params.sampler.seed = params.sampler.seed.wrapping_add(1);
                reply(it, params, ui)?;
            } else {
                ui.note("there is no answer yet");
            }
        }
        Input::Say(text) => {
            it.say(&text);
            reply(it, params, ui)?;
        }
    }
    Ok(Next::Read)
}

/// Answers the last message. What cannot be answered is taken back, with the reason, and the chat goes on.
fn reply(it: &mut Conversation<'_>, params: &GenerateParams, ui: &Ui) -> anyhow::Result<()> {
    let opened = it.opened;
    let (prompt, session) = match it.prompt(params) {
        Ok(prompt) => prompt,
        Err(error) => {
            ui.note(format_args!("{error:#}"));
            it.take_back_message();
            return Ok(());
        }
    };
    interrupt::clear();
    let said = answer(opened, session, &prompt, params, ui)?;
    interrupt::clear();
    if said.generation.stop != Stop::Cancelled || !said.text.is_empty() {
        note(&said.generation, opened.engine.context(), ui);
    }
    it.answered(&said, &prompt);
    Ok(())
}

fn save(it: &Conversation<'_>, path: &Path) -> String {
    let text = format!("{:#}\n", it.to_json());
    if path.exists() {
        return format!("{}: exists; choose another name", path.display());
    }
    match std::fs::write(path, text) {
        Ok(()) => format!("saved as {}", path.display()),
        Err(error) => format!("{}: {error}", path.display()),
    }
}
