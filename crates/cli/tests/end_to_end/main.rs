//! The program as a user meets it: run as a process, judged by what it prints, writes and returns.

mod generate;
mod golden;
mod process;
mod usage;
