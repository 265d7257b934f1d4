//! What a vault says of how it was made (FORMAT.md, "Provenance"). The gate believes none of it: it is what is judged.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use smoe_codec::Codec;

/// How a vault's experts were made, by its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Making {
    /// At least one matrix was calibrated.
    Calibrated,
    /// Every matrix was rounded to nearest.
    Rtn,
    /// It does not say, or was imported.
    Unrecorded,
}

/// A matrix: layer, expert, projection (0 gate, 1 up, 2 down).
pub(crate) type MatrixAt = (usize, usize, usize);

/// The projections' names, in stored order.
pub(crate) const PROJECTIONS: [&str; 3] = ["gate", "up", "down"];

/// The account, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) making: Making,
    /// Why it is a diagnostic vault, where it is one.
    pub(crate) diagnostic: Option<String>,
    /// The codecs of gate, up and down that were asked for.
    pub(crate) codecs: Option<[Codec; 3]>,
    /// Matrices that are said to be rounded to nearest.
    pub(crate) rtn: BTreeSet<MatrixAt>,
    /// Trunk tensors that are said to be in `q8`; `None` where nothing is said of the trunk.
    pub(crate) q8: Option<BTreeSet<String>>,
}

impl Claims {
    pub(crate) fn of(provenance: &Value) -> Self {
        let experts = &provenance["experts"];
        let listed: Vec<_> = experts["tensors"].as_array().into_iter().flatten().filter_map(matrix).collect();
        let calibrated = listed.iter().any(|(_, calibrated)| *calibrated);
        let making = match (experts["method"].as_str(), calibrated) {
            (_, true) | (Some("calibrated"), false) if calibrated || listed.is_empty() => Making::Calibrated,
            (Some("rtn"), _) => Making::Rtn,
            _ if !listed.is_empty() => Making::Rtn,
            _ => Making::Unrecorded,
        };
        let rtn = listed.into_iter().filter(|(_, calibrated)| !calibrated).map(|(at, _)| at).collect();
        let q8 = provenance["trunk"]["q8"].as_array();
        let q8 = q8.map(|names| names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect());
        let diagnostic = diagnostic(&experts["diagnostic"]).or_else(|| diagnostic(&provenance["diagnostic"]));
        Self { making, diagnostic, codecs: codecs(&experts["codec"]), rtn, q8 }
    }
}

/// One entry of the list: which matrix, and whether it was calibrated.
fn matrix(entry: &Value) -> Option<(MatrixAt, bool)> {
    let index = |key: &str| entry[key].as_u64().and_then(|n| usize::try_from(n).ok());
    let projection = entry["projection"].as_str()?;
    let projection = PROJECTIONS.iter().position(|name| *name == projection)?;
    Some(((index("layer")?, index("expert")?, projection), entry["made"] == "calibrated"))
}

fn codecs(value: &Value) -> Option<[Codec; 3]> {
    let codec = |name: &Value| Codec::from_name(name.as_str()?.trim_start_matches("smoe-"));
    match value {
        Value::Object(by_projection) => {
            let [gate, up, down] = PROJECTIONS.map(|name| by_projection.get(name).and_then(codec));
            Some([gate?, up?, down?])
        }
        name => codec(name).map(|codec| [codec; 3]),
    }
}

fn diagnostic(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(why) => Some(why.clone()),
        Value::Bool(true) => Some("it was made to be measured".into()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accounts_are_read_and_gaps_are_unknown() {
        let tensors = |made: [&str; 2]| {
            let entry = |expert, made| json!({"layer": 1, "expert": expert, "projection": "down", "made": made});
            json!([entry(0, made[0]), entry(1, made[1])])
        };
        for (experts, making) in [
            (json!({"method": "rtn"}), Making::Rtn),
            (json!({"method": "calibrated"}), Making::Calibrated),
            (json!({"method": "calibrated", "tensors": tensors(["rtn", "calibrated"])}), Making::Calibrated),
            (json!({"method": "rtn", "tensors": tensors(["rtn", "calibrated"])}), Making::Calibrated),
            (json!({"method": "calibrated", "tensors": tensors(["rtn", "rtn"])}), Making::Rtn),
            (json!({"method": "imported"}), Making::Unrecorded),
            (json!({}), Making::Unrecorded),
            (Value::Null, Making::Unrecorded),
        ] {
            assert_eq!(Claims::of(&json!({ "experts": experts })).making, making, "{experts}");
        }
        let mixed = json!({"experts": {
            "codec": {"gate": "smoe-q2", "up": "q2", "down": "smoe-q4"},
            "diagnostic": "only gate-up",
            "tensors": tensors(["rtn", "calibrated"]),
        }, "trunk": {"q8": ["head"]}});
        let claims = Claims::of(&mixed);
        assert_eq!(claims.codecs, Some([Codec::Q2, Codec::Q2, Codec::Q4]));
        assert_eq!(claims.diagnostic.as_deref(), Some("only gate-up"));
        assert_eq!(claims.rtn, BTreeSet::from([(1, 0, 2)]));
        assert_eq!(claims.q8, Some(BTreeSet::from(["head".to_owned()])));
        assert_eq!(Claims::of(&json!({"experts": {"diagnostic": false, "codec": "q9"}})).diagnostic, None);
    }
}
