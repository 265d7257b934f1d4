//! The program as a user meets it: run as a process, judged by what it prints, writes and returns.

mod calibrating;
mod gate;
mod generate;
mod golden;
mod hostile;
mod pipeline;
mod process;
mod usage;
