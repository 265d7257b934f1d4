//! The command line of smoe.
fn main() {}
