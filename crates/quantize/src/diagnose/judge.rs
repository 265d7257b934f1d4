//! What the arms of a diagnosis mean, in plain words. Pure.

use serde::Serialize;

/// Divergence of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Divergence {
    /// Mean KL(reference || arm), nats a token.
    pub kld: f64,
    /// Its interval.
    pub interval: Option<[f64; 2]>,
}

/// What is calibrated in each arm: nothing, gate and up, down, all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Rounded to nearest.
    pub none: f64,
    /// Gate and up, at all tokens and at a quarter of them.
    pub gate_up: [f64; 2],
    /// Down.
    pub down: [f64; 2],
    /// All three.
    pub both: [f64; 2],
    /// Tokens over the rank bound of the down statistic.
    pub bounds: f64,
}

/// What is the matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Nothing: each part gains.
    Healthy,
    /// The statistics of down are mostly noise: more text is the lever.
    Starvation,
    /// What is calibrated does not see what it should, or is not used.
    WiringFault,
}

/// Shares of the rounded divergence: below the first a difference is noise of the text, above the second a loss is no
/// starvation of gate and up, whose statistics need fewer tokens.
const NOISE: f64 = 0.02;
const HARM: f64 = 0.10;
/// From this many rank bounds on, the statistics of down have enough tokens.
const ENOUGH: f64 = 8.0;

/// The cause and its reasons.
#[must_use]
pub fn judge(figures: &Figures) -> (Cause, Vec<String>) {
    let faults = wiring_faults(figures);
    if !faults.is_empty() {
        return (Cause::WiringFault, faults);
    }
    let Figures { none, gate_up: [gate_up, _], down: [down, down_quarter], both: [both, both_quarter], bounds } =
        *figures;
    let noise = NOISE * none;
    let mut words = Vec::new();
    if both > gate_up - noise {
        words.push(format!(
            "calibrating down on top of gate and up gains nothing ({both:.4} against {gate_up:.4}): its statistics are \
             mostly noise"
        ));
    }
    if down > none - noise {
        words.push(format!("calibrating down alone gains nothing ({down:.4} against {none:.4} rounded)"));
    }
    if words.is_empty() {
        words.push(format!(
            "calibration works: {both:.4} against {none:.4} rounded; gate and up alone {gate_up:.4}, down alone {down:.4}"
        ));
        if both < both_quarter - noise {
            words.push(format!("more text still helps: a quarter of it gave {both_quarter:.4}"));
        }
        return (Cause::Healthy, words);
    }
    if down < down_quarter - noise {
        words.push(format!("with four times the text down went from {down_quarter:.4} to {down:.4}"));
    }
    let wanted = if bounds < ENOUGH {
        format!("; {bounds:.1} rank bounds were given, {ENOUGH:.0} are wanted")
    } else {
        String::new()
    };
    words.push(format!("starvation of the down statistics: more text is the lever{wanted}"));
    (Cause::Starvation, words)
}

/// Signs of codes or statistics that go astray.
fn wiring_faults(figures: &Figures) -> Vec<String> {
    let Figures { none, gate_up, down, both, bounds } = *figures;
    let (noise, mut faults) = (NOISE * none, Vec::new());
    for (what, [kld, _]) in [("gate and up", gate_up), ("down", down), ("all three", both)] {
        if kld == none {
            faults
                .push(format!("calibrating {what} changed nothing at all: the codes that were asked for are not used"));
        }
    }
    if both[0] == gate_up[0] && both[0] != none {
        faults.push("down calibrated or not gives the same scores: its codes are not used".into());
    }
    if both[0] == down[0] && both[0] != none {
        faults.push("gate and up calibrated or not give the same scores: their codes are not used".into());
    }
    if gate_up[0] > none * (1.0 + HARM) {
        faults.push(format!(
            "calibrating gate and up does harm ({:.4} against {none:.4} rounded), though their statistics are shared by \
             all tokens: they are calibrated on other inputs than they see",
            gate_up[0]
        ));
    }
    if down[0] > none + noise && down[0] > down[1] - noise && bounds >= ENOUGH {
        faults.push(format!(
            "calibrating down does harm ({:.4} against {none:.4} rounded) at {bounds:.0} rank bounds, and four times the \
             text did not help: it is calibrated on other inputs than it sees",
            down[0]
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f64 = 0.1873;

    fn figures(gate_up: [f64; 2], down: [f64; 2], both: [f64; 2], bounds: f64) -> Figures {
        Figures { none: NONE, gate_up, down, both, bounds }
    }

    fn check(figures: Figures, cause: Cause, said: &str) {
        let (found, words) = judge(&figures);
        let words = words.join("; ");
        assert_eq!(found, cause, "{words}");
        assert!(words.contains(said), "{words}");
    }

    /// Figures measured on a trained model (QUANT-RECIPE.md, sections 7 to 9).
    #[test]
    fn causes_are_told_apart() {
        let healthy = figures([0.1383, 0.1450], [0.1670, 0.1700], [0.1122, 0.1258], 64.0);
        check(healthy, Cause::Healthy, "more text still helps");
        let plain = figures([0.190, 0.195], [0.307, 0.420], [0.313, 0.430], 1.0);
        check(plain, Cause::Starvation, "more text is the lever; 1.0 rank bounds were given, 8 are wanted");
        let tied = figures([0.1383, 0.1450], [0.1860, 0.1900], [0.1380, 0.1455], 2.0);
        check(tied, Cause::Starvation, "gains nothing");
    }

    #[test]
    fn parts_that_change_nothing_or_do_harm_are_wiring_faults() {
        check(figures([NONE; 2], [0.1670; 2], [0.1670; 2], 16.0), Cause::WiringFault, "gate and up changed nothing");
        check(figures([0.1383; 2], [NONE; 2], [0.1383; 2], 16.0), Cause::WiringFault, "down calibrated or not");
        check(figures([0.25; 2], [0.1670; 2], [0.24; 2], 16.0), Cause::WiringFault, "other inputs than they see");
        check(figures([0.1383; 2], [0.3, 0.3], [0.3, 0.3], 16.0), Cause::WiringFault, "other inputs than it sees");
    }
}
