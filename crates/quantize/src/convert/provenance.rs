//! What the manifest says of how the experts were made (FORMAT.md, "Provenance").

use super::calibration::Making;
use super::prepare::Prepared;
use crate::calibrate::{Exempt, Facts, HeldOut, Outcome, TensorReport};
use serde_json::{Map, Value, json};
use smoe_codec::Codec;

/// Why an expert without tokens is calibrated all the same.
const ON_THE_PRIOR: &str = "no token was routed to it: calibrated on the prior";

/// The account of all experts; `reports` is empty without calibration.
pub(super) fn experts(prepared: &Prepared, codec: Codec, reports: &[TensorReport]) -> Value {
    let matrices = 3 * prepared.jobs.len();
    let calibrated = reports.iter().filter(|r| matches!(r.outcome, Outcome::Calibrated { .. })).count();
    let mut account = Map::new();
    let mut say = |key: &str, value: Value| account.insert(key.to_owned(), value);
    match &prepared.making {
        Making::Rtn(why) => {
            say("method", "rtn".into());
            say("why", why.as_str().into());
        }
        Making::Calibrated(calibrating) => {
            say("method", "calibrated".into());
            if let Some(why) = &calibrating.diagnostic {
                say("diagnostic", why.as_str().into());
            }
        }
    }
    say("codec", format!("smoe-{}", codec.name()).into());
    say("bits", codec.bits().into());
    say("matrices", matrices.into());
    say("calibrated_tensors", calibrated.into());
    say("rtn_tensors", (matrices - calibrated).into());
    if !reports.is_empty() {
        say("tensors", reports.iter().map(tensor).collect());
    }
    account.into()
}

/// The record of a matrix.
fn tensor(report: &TensorReport) -> Value {
    let at = report.at;
    let mut record = Map::new();
    let mut say = |key: &str, value: Value| record.insert(key.to_owned(), value);
    say("layer", at.layer.into());
    say("expert", at.expert.into());
    say("projection", at.projection.name().into());
    let (made, why) = match report.outcome {
        Outcome::Rtn { exempt } => ("rtn", Some(exempt.reason())),
        Outcome::Calibrated { .. } => ("calibrated", (report.tokens == 0).then_some(ON_THE_PRIOR)),
    };
    say("made", made.into());
    if let Some(why) = why {
        say("why", why.into());
    }
    if !matches!(report.outcome, Outcome::Rtn { exempt: Exempt::NotAskedFor }) {
        say("tokens", report.tokens.into());
        say("effective_tokens", short(report.effective_tokens));
        say("tokens_per_column", short(report.tokens_per_column));
        say("own_share", short(report.own_share));
    }
    if let Outcome::Calibrated { facts, held_out } = &report.outcome {
        for (key, value) in gains(facts, held_out.as_ref()) {
            say(key, value);
        }
    }
    record.into()
}

fn gains(facts: &Facts, held_out: Option<&HeldOut>) -> Vec<(&'static str, Value)> {
    let mut gains = vec![
        ("codes_differ", short(facts.codes_differ)),
        ("error", short(facts.objective)),
        ("rtn_error", short(facts.twin_objective)),
    ];
    if let Some(held_out) = held_out {
        gains.extend([
            ("held_out_error", short(held_out.error)),
            ("held_out_rtn_error", short(held_out.twin_error)),
            ("held_out_tokens", held_out.tokens.into()),
        ]);
    }
    if facts.damping_raised > 0 {
        gains.push(("damping", short(f64::from(facts.damping))));
    }
    if facts.rows_from_twin > 0 {
        gains.push(("rows_from_rtn", facts.rows_from_twin.into()));
    }
    if facts.dead_columns > 0 {
        gains.push(("dead_columns", facts.dead_columns.into()));
    }
    gains
}

/// Six significant digits: more say nothing.
fn short(value: f64) -> Value {
    json!(format!("{value:.5e}").parse::<f64>().unwrap_or(value))
}
