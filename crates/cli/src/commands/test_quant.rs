//! `smoe test-quant`.

use super::Outcome;
use crate::ui::Ui;
use clap::Args;
use serde_json::json;
use smoe_codec::smoke;

/// The smoke test of the codecs: is this build's quantiser as good as it must be?
///
/// A random 128 x 64 tensor and a million Gaussian weights (fixed seed) go through q2 and q4. Fails with exit code 1
/// when the signal-to-noise ratio over the million is outside its bounds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  smoe test-quant
  smoe test-quant --json")]
pub(crate) struct TestQuant {}

impl TestQuant {
    pub(crate) fn run(self, ui: &Ui) -> anyhow::Result<Outcome> {
        let outcomes = smoke::run(smoke::encode_and_decode)?;
        let passed = outcomes.iter().all(smoke::Outcome::passed);
        let [rows, cols] = smoke::TENSOR;
        for it in &outcomes {
            let (name, small, large) = (it.codec.name(), it.tensor, it.sample);
            ui.line(format_args!(
                "{name} {rows}x{cols}: RMSE={:.5} absmax={:.5} SNR={:.2} dB",
                small.rmse, small.absmax, small.snr_db
            ))?;
            ui.line(format_args!(
                "{name} 1M:     RMSE={:.5} absmax={:.5} SNR={:.3} dB, must be {} to {}: {}",
                large.rmse,
                large.absmax,
                large.snr_db,
                it.bounds.0,
                it.bounds.1,
                if it.passed() { "ok" } else { "FAILED" }
            ))?;
        }
        let quality = |q: &smoke::Quality| json!({ "rmse": q.rmse, "absmax": q.absmax, "snr_db": q.snr_db });
        let results = outcomes.iter().map(|it| {
            json!({
                "codec": it.codec.name(), "tensor": quality(&it.tensor), "sample": quality(&it.sample),
                "bounds_db": [it.bounds.0, it.bounds.1], "passed": it.passed(),
            })
        });
        ui.object(&json!({ "passed": passed, "results": results.collect::<Vec<_>>() }))?;
        Ok(Outcome::of(passed))
    }
}
