//! Progress on stderr: a bar with rate and time left on a terminal; elsewhere one line after two seconds and one at
//! the end, so that a log stays readable.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Work shorter than this says nothing.
const QUIET: Duration = Duration::from_secs(2);

/// One piece of work of a known size.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    unit: Unit,
    started: Instant,
    bar: Option<ProgressBar>,
    total: u64,
    announced: bool,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes.
    Bytes,
    /// Anything else, by its plural.
    Count(&'static str),
}

impl Progress {
    pub(crate) fn new(what: &'static str, unit: Unit, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(style(unit));
            bar.set_message(what);
            bar
        });
        Self { what, unit, started: Instant::now(), bar, total, announced: false }
    }

    /// `done` of `total`; the total may become known late.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        self.total = total;
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
        } else if !self.announced && self.started.elapsed() > QUIET && done < total {
            self.announced = true;
            let (percent, total) = (done * 100 / total, self.amount(total));
            eprintln!("{}: {percent} % of {total} after 2 s", self.what);
        }
    }

    /// A line above the bar.
    pub(crate) fn note(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// Takes the bar away; in a log, says how long it took.
    pub(crate) fn finish(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        } else if self.announced {
            let seconds = self.started.elapsed().as_secs_f64();
            eprintln!("{}: {} in {seconds:.1} s", self.what, self.amount(self.total));
        }
    }

    fn amount(&self, n: u64) -> String {
        match self.unit {
            Unit::Bytes => super::bytes(n),
            Unit::Count(noun) => format!("{n} {noun}"),
        }
    }
}

fn style(unit: Unit) -> ProgressStyle {
    let amount = match unit {
        Unit::Bytes => "{bytes}/{total_bytes} {bytes_per_sec}".to_owned(),
        Unit::Count(noun) => format!("{{pos}}/{{len}} {noun} {{per_sec}}"),
    };
    let template = format!("{{msg}} [{{wide_bar}}] {amount}, {{eta}} left");
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}
