//! The numbers of the recipe and what decides them: the tokens given against the rank bound.

use super::error::CalibrateError;
use super::levels::Levels;
use serde::Serialize;
use smoe_codec::Codec;

/// How codes are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Solver {
    /// Shrunk statistics, GPTQ, joint scale refit, coordinate descent.
    Recipe,
    /// Textbook GPTQ, for diagnosis: one gate/up statistic for all experts, down from the routed tokens alone, all
    /// tokens weighing the same, 1 % damping, no refit, no descent.
    GptqPlain,
}

/// Which projections are calibrated; the others are rounded to nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// All: the one arm that is no diagnosis.
    Both,
    /// Gate and up.
    GateUp,
    /// Down.
    Down,
}

/// The recipe, resolved for a number of tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recipe {
    /// How codes are chosen.
    pub solver: Solver,
    /// Shrinkage: the weight of an expert's own statistic is `n_e / (n_e + kappa * cols)`.
    pub kappa: f64,
    /// Damping as a share of the mean diagonal.
    pub damping: f32,
    /// Exponent of the combine weight in the statistics: 2, 1 or 0.
    pub gate_power: u32,
    /// Share of the correction of the layers below (asymmetric target).
    pub beta: f32,
    /// Rounds of refit and descent.
    pub rounds: usize,
    /// Sweeps of a descent.
    pub sweeps: usize,
    /// Tokens of the down projection's prior, evenly spaced; `None` for all.
    pub prior_tokens: Option<usize>,
}

/// Multiples of the rank bound at which the recipe changes.
const FEW: f64 = 4.0;
const ENOUGH: f64 = 8.0;
const MANY: f64 = 64.0;

impl Recipe {
    /// The recipe for `tokens` tokens under the rank bound `bound` ([`rank_bound`]).
    #[must_use]
    pub fn for_tokens(tokens: usize, bound: f64) -> Self {
        let ratio = tokens as f64 / bound;
        let beta = if ratio < ENOUGH {
            0.0
        } else if ratio < MANY {
            0.25
        } else {
            0.5
        };
        Self {
            solver: Solver::Recipe,
            kappa: 3.0,
            damping: if ratio < FEW { 0.1 } else { 0.03 },
            gate_power: if ratio < MANY { 2 } else { 1 },
            beta,
            rounds: 2,
            sweeps: 2,
            prior_tokens: None,
        }
    }

    /// Textbook GPTQ ([`Solver::GptqPlain`]).
    #[must_use]
    pub fn plain() -> Self {
        Self {
            solver: Solver::GptqPlain,
            kappa: 0.0,
            damping: 0.01,
            gate_power: 0,
            beta: 0.0,
            rounds: 0,
            sweeps: 0,
            prior_tokens: None,
        }
    }

    /// Refuses what would calibrate nothing, before any work.
    ///
    /// # Errors
    /// [`CalibrateError::Options`] for loops of zero iterations, numbers out of range or a codec without levels.
    pub fn check(&self, codecs: &[Codec]) -> Result<(), CalibrateError> {
        let refuse = |text: String| Err(CalibrateError::Options(text));
        if self.solver == Solver::Recipe && (self.rounds == 0 || self.sweeps == 0) {
            return refuse(format!(
                "the solver asks for rounds of descent, found {} rounds of {} sweeps; nothing would be solved",
                self.rounds, self.sweeps
            ));
        }
        if !(self.damping > 0.0 && self.damping.is_finite() && self.kappa >= 0.0 && self.kappa.is_finite()) {
            return refuse(format!(
                "expected a damping above 0 and kappa from 0, found {}, {}",
                self.damping, self.kappa
            ));
        }
        if !(0.0..=1.0).contains(&self.beta) || self.gate_power > 2 || self.prior_tokens == Some(0) {
            return refuse(format!("beta {}, power {} or prior sample is out of range", self.beta, self.gate_power));
        }
        match codecs.iter().find(|&&codec| Levels::of(codec).is_none()) {
            Some(codec) => refuse(format!("{} cannot be calibrated; use q2 or q4", codec.name())),
            None => Ok(()),
        }
    }

    /// Whether the stream through the unquantised layers is needed.
    #[must_use]
    pub fn needs_reference(&self) -> bool {
        self.beta > 0.0
    }
}

/// Tokens at which the down statistic of an average expert can have full rank: `width * experts / top_k`.
#[must_use]
pub fn rank_bound(width: usize, experts: usize, top_k: usize) -> f64 {
    width as f64 * experts as f64 / top_k.max(1) as f64
}

/// The tokens that the recipe wants before it corrects the layers below: 8 times the bound.
#[must_use]
pub fn wanted_tokens(bound: f64) -> usize {
    (ENOUGH * bound).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_follows_the_rank_bound() {
        let bound = rank_bound(128, 32, 4);
        assert_eq!(bound, 1024.0);
        for (tokens, damping, beta, power) in
            [(2048, 0.1, 0.0, 2), (4096, 0.03, 0.0, 2), (8192, 0.03, 0.25, 2), (65536, 0.03, 0.5, 1)]
        {
            let recipe = Recipe::for_tokens(tokens, bound);
            assert_eq!((recipe.damping, recipe.beta, recipe.gate_power), (damping, beta, power), "{tokens}");
        }
        assert_eq!(wanted_tokens(bound), 8192);
    }

    #[test]
    fn refuses_loops_of_nothing_and_codecs_without_levels() {
        let good = Recipe::for_tokens(1000, 10.0);
        assert!(good.check(&[Codec::Q2, Codec::Q4]).is_ok());
        assert!(Recipe::plain().check(&[Codec::Q2]).is_ok());
        for bad in [
            Recipe { rounds: 0, ..good.clone() },
            Recipe { sweeps: 0, ..good.clone() },
            Recipe { damping: 0.0, ..good.clone() },
            Recipe { damping: f32::NAN, ..good.clone() },
            Recipe { kappa: -1.0, ..good.clone() },
            Recipe { beta: 2.0, ..good.clone() },
        ] {
            assert!(matches!(bad.check(&[Codec::Q2]), Err(CalibrateError::Options(_))), "{bad:?}");
        }
        assert!(good.check(&[Codec::Q8]).is_err());
    }
}
