//! Calls into the tokenizer library that may panic on hostile files: the panic becomes an error, and nothing is
//! printed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}
static HOOK: Once = Once::new();

/// Runs `work`; `Err` holds the message of its panic.
///
/// The panic hook of the process is wrapped once, so that a caught panic of this thread prints nothing; all other
/// panics reach the hook that was there.
pub(super) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            if !QUIET.with(Cell::get) {
                previous(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    result.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        format!("the tokenizer library gave up: {}", text.unwrap_or_else(|| "no reason given".into()))
    })
}
