//! `smoe`: the command line. Arguments, progress and printing; what is computed is computed by the other crates.
#![forbid(unsafe_code)]

mod args;
mod calibration;
mod chat;
mod commands;
mod fault;
mod interrupt;
mod job;
mod model;
mod streaming;
mod ui;

use std::process::ExitCode;

fn main() -> ExitCode {
    fault::report_panics();
    interrupt::install();
    let cli = match args::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return fault::usage(&error),
    };
    let ui = ui::Ui::new(cli.json);
    match commands::run(cli.command, &ui) {
        Ok(commands::Outcome::Done) => ExitCode::SUCCESS,
        Ok(commands::Outcome::Negative) => ExitCode::from(1),
        Err(error) => fault::report(&error, &ui),
    }
}
