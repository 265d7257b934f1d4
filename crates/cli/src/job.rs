//! Long jobs of the crate `quantize`: watched by a bar, stopped by Ctrl-C.

use crate::interrupt;
use crate::ui::{Progress, Unit};
use smoe_quantize::{Control, Progress as Step};
use std::sync::Mutex;

/// Runs a job that counts bytes, with a bar and Ctrl-C.
pub(crate) fn watched<T, E>(what: &'static str, job: impl FnOnce(&Control<'_>) -> Result<T, E>) -> Result<T, E> {
    counted(what, Unit::Bytes, job)
}

/// Runs a job that counts something, with a bar and Ctrl-C.
pub(crate) fn counted<T, E>(
    what: &'static str,
    unit: Unit,
    job: impl FnOnce(&Control<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let (bar, cancel) = (Mutex::new(Progress::new(what, unit, 0)), interrupt::flag());
    // A step that finds the bar in use is not shown: the job must not wait for the terminal.
    let progress = |step: Step| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.set(step.done, step.total);
        }
    };
    let say = |line: &str| match bar.lock() {
        Ok(bar) => bar.note(line),
        Err(_) => eprintln!("{line}"),
    };
    let result = job(&Control { progress: &progress, say: &say, cancel: &cancel });
    if let Ok(bar) = bar.into_inner() {
        bar.finish();
    }
    result
}
