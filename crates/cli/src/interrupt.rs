//! Ctrl-C: the first asks the work to end, the second ends the program.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag that Ctrl-C sets, for work that asks it between steps.
pub(crate) fn flag() -> Arc<AtomicBool> {
    Arc::clone(FLAG.get_or_init(Arc::default))
}

/// Whether Ctrl-C was pressed since [`clear`].
pub(crate) fn requested() -> bool {
    flag().load(Ordering::Relaxed)
}

/// Forgets a Ctrl-C that has been answered (`chat` goes on after one).
pub(crate) fn clear() {
    flag().store(false, Ordering::Relaxed);
}

/// The error of work that Ctrl-C ended.
pub(crate) fn error() -> anyhow::Error {
    anyhow::anyhow!("interrupted")
}

/// Puts the handler in place. Without one (a sandbox without signals) Ctrl-C kills at once, which is no fault.
pub(crate) fn install() {
    let flag = flag();
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}
