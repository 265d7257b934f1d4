//! `smoe completions`.

use super::Outcome;
use crate::args::Cli;
use crate::ui::Ui;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::Write;

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe completions bash > ~/.local/share/bash-completion/completions/smoe
  smoe completions zsh > ~/.zfunc/_smoe
  smoe completions fish > ~/.config/fish/completions/smoe.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "smoe", &mut script);
        if ui.json {
            ui.object(&serde_json::json!({ "shell": self.shell.to_string(), "script": String::from_utf8(script)? }))?;
        } else {
            std::io::stdout().write_all(&script)?;
        }
        Ok(Outcome::Done)
    }
}
