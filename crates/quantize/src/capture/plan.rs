//! [`CapturePlan`]: what a calibration will take and how good its statistics can be, from shapes alone.

use super::streams::hidden_bytes;
use crate::calibrate::{Arm, Recipe, Solver, rank_bound, wanted_tokens};
use serde::Serialize;
use smoe_kernels::Isa;
use smoe_model::counts::counts;
use smoe_model::spec::{ModelSpec, MoeSpec};

/// Multiples of the rank bound that the default asks for.
const DEFAULT_BOUNDS: f64 = 64.0;
/// The default's time.
const HOUR: f64 = 3600.0;
/// Memory of the program itself, and of what it keeps of each token: its id, whom the router chose, lists by expert.
const PROGRAM_BYTES: u64 = 24 << 20;
const TOKEN_BYTES: u64 = 64;
const CHOICE_BYTES: u64 = 32;
/// Operations that all experts' priors of the down projection may take before they are estimated on a sample; of the
/// model's shape alone, so that the bytes of a vault do not depend on the machine.
const PRIOR_OPERATIONS: f64 = 2e15;
/// The least sample of it.
const PRIOR_TOKENS: usize = 4096;
/// Operations of the solver per weight and column: GPTQ, two rounds of descent and refits, from both starts, once for
/// the result and once for the held-out gain.
const SOLVER_OPERATIONS: f64 = 60.0;

/// What a calibration will take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapturePlan {
    /// Tokens that calibrate.
    pub tokens: usize,
    /// Tokens that the text has.
    pub available: usize,
    /// Tokens at which the down statistic of an average expert can have full rank.
    pub rank_bound: f64,
    /// Tokens from which the layers below are corrected too.
    pub wanted: usize,
    /// The numbers of the recipe.
    pub recipe: Recipe,
    /// Bytes of hidden states.
    pub hidden_bytes: u64,
    /// Whether they lie in a temporary file.
    pub spilled: bool,
    /// Estimated peak memory.
    pub memory_bytes: u64,
    /// Estimated time on this machine.
    pub seconds: f64,
}

/// What decides a plan besides the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) tokens: usize,
    pub(crate) available: usize,
    pub(crate) solver: Solver,
    pub(crate) threads: usize,
    /// Memory for hidden states; what is beyond goes to a temporary file.
    pub(crate) memory_bytes: u64,
    /// What the process holds already: the calibration text, and what an allocator keeps after it was written.
    pub(crate) held_bytes: u64,
}

impl CapturePlan {
    pub(crate) fn new(spec: &ModelSpec, given: Given) -> Self {
        let bound = largest_bound(spec);
        let mut recipe = match given.solver {
            Solver::Recipe => Recipe::for_tokens(given.tokens, bound),
            Solver::GptqPlain => Recipe::plain(),
        };
        let prior: f64 = spec.moe_layers().map(|(_, moe)| prior_operations(spec, moe, &recipe)).sum();
        if prior * given.tokens as f64 > PRIOR_OPERATIONS {
            recipe.prior_tokens = Some(((PRIOR_OPERATIONS / prior) as usize).max(PRIOR_TOKENS));
        }
        let hidden = hidden_bytes(given.tokens, spec.hidden, recipe.needs_reference());
        let spilled = hidden > given.memory_bytes;
        let work = fixed_operations(spec) + token_operations(spec, &recipe, given.tokens);
        Self {
            tokens: given.tokens,
            available: given.available,
            rank_bound: bound,
            wanted: wanted_tokens(bound),
            hidden_bytes: hidden,
            spilled,
            memory_bytes: PROGRAM_BYTES.max(given.held_bytes)
                + layer_bytes(spec, given.threads)
                + given.tokens as u64 * (TOKEN_BYTES + CHOICE_BYTES * most_chosen(spec))
                + if spilled { 0 } else { hidden },
            seconds: work / (operations_per_second() * given.threads as f64),
            recipe,
        }
    }

    /// What the user should read before the work begins, one line each.
    #[must_use]
    pub fn lines(&self, arm: Arm) -> Vec<String> {
        let ratio = self.tokens as f64 / self.rank_bound;
        let mut lines = vec![format!(
            "calibrating on {} of {} tokens: {ratio:.1} times the rank bound of {:.0}",
            self.tokens, self.available, self.rank_bound
        )];
        if self.tokens < self.wanted && self.recipe.solver == Solver::Recipe {
            lines.push(format!(
                "WARNING: {} tokens are too few for good statistics of the down projections; {} are wanted: give more \
                 text or raise --tokens",
                self.tokens, self.wanted
            ));
        }
        let place = if self.spilled { "in a temporary file" } else { "in memory" };
        lines.push(format!(
            "about {} on this machine, {} MB of memory, {} MB of hidden states {place}",
            duration(self.seconds),
            self.memory_bytes.div_ceil(1_000_000),
            self.hidden_bytes.div_ceil(1_000_000)
        ));
        if let Some(n) = self.recipe.prior_tokens {
            lines.push(format!("the prior of the down projections is taken on a sample of {n} tokens"));
        }
        if arm != Arm::Both || self.recipe.solver != Solver::Recipe {
            lines.push("this vault is a diagnosis, not for use: the gate will not pass it".into());
        }
        lines
    }
}

/// The default of `--tokens`: 64 times the rank bound, or what this machine's cores do in an hour, one bound at least.
#[must_use]
pub fn hour_of_tokens(spec: &ModelSpec) -> usize {
    let bound = largest_bound(spec);
    let most = (DEFAULT_BOUNDS * bound).ceil() as usize;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let recipe = Recipe::for_tokens(most, bound);
    let hour = HOUR * operations_per_second() * cores - fixed_operations(spec);
    let each = token_operations(spec, &recipe, most) / most as f64;
    // Whole windows, and steps that hide the difference between two machines of a kind.
    let possible = (hour / each / 8192.0).floor().max(0.0) as usize * 8192;
    possible.max(bound.ceil() as usize).min(most)
}

fn largest_bound(spec: &ModelSpec) -> f64 {
    spec.moe_layers().map(|(_, moe)| rank_bound(moe.width, moe.experts, moe.top_k)).fold(0.0, f64::max)
}

/// Experts a token of the layer that chooses most.
fn most_chosen(spec: &ModelSpec) -> u64 {
    spec.moe_layers().map(|(_, moe)| moe.top_k as u64).max().unwrap_or(0)
}

fn streams(recipe: &Recipe) -> f64 {
    if recipe.needs_reference() { 2.0 } else { 1.0 }
}

/// Operations of one layer's prior of down, per token.
fn prior_operations(spec: &ModelSpec, moe: &MoeSpec, recipe: &Recipe) -> f64 {
    if recipe.solver == Solver::GptqPlain {
        return 0.0;
    }
    let (hidden, width) = (spec.hidden as f64, moe.width as f64);
    let cross = if recipe.needs_reference() { 2.0 } else { 0.0 };
    moe.experts as f64 * (4.0 * hidden * width * streams(recipe) + (1.0 + cross) * width * width)
}

/// Operations that grow with the tokens: forward passes and statistics.
fn token_operations(spec: &ModelSpec, recipe: &Recipe, tokens: usize) -> f64 {
    let counted = counts(spec);
    let body = counted.active.saturating_sub(counted.embedding + counted.head) as f64;
    let all = tokens as f64;
    let mut sum = 2.0 * body * streams(recipe) * all;
    for (_, moe) in spec.moe_layers() {
        let (hidden, width) = (spec.hidden as f64, moe.width as f64);
        let moment = if recipe.needs_reference() { 3.0 } else { 1.0 };
        let routed =
            moe.top_k as f64 * (moment * (hidden * hidden + width * width) + 4.0 * hidden * width * streams(recipe));
        let prior = recipe.prior_tokens.unwrap_or(tokens).min(tokens) as f64;
        sum += all * (routed + moment * hidden * hidden) + prior * prior_operations(spec, moe, recipe);
    }
    sum
}

/// Operations of the solver.
fn fixed_operations(spec: &ModelSpec) -> f64 {
    let one = |moe: &MoeSpec| {
        let (hidden, width) = (spec.hidden as f64, moe.width as f64);
        moe.experts as f64 * SOLVER_OPERATIONS * (2.0 * width * hidden * hidden + hidden * width * width)
    };
    spec.moe_layers().map(|(_, moe)| one(moe)).sum()
}

/// Bytes of the largest layer: trunk and experts as published, its new blobs, each thread's expert and statistics.
fn layer_bytes(spec: &ModelSpec, threads: usize) -> u64 {
    let counted = counts(spec);
    let embedding = 2 * counted.embedding.max(counted.trunk / spec.layers.len().max(1) as u64);
    let one = |moe: &MoeSpec| {
        let (hidden, width) = (spec.hidden as u64, moe.width as u64);
        let (wide, matrices) = (hidden.max(width), 3 * hidden * width);
        let thread = 16 * 8 * wide * wide + 4 * 4 * matrices + 4 * 4096 * wide;
        3 * moe.experts as u64 * matrices + threads as u64 * thread
    };
    embedding + spec.moe_layers().map(|(_, moe)| one(moe)).max().unwrap_or(0)
}

/// What a core does in a calibration: measured, all parts together, and rounded down.
fn operations_per_second() -> f64 {
    if Isa::detect() == Isa::Scalar { 2e9 } else { 3e10 }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{:.0} s", s.max(1.0)),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(tokens: usize) -> CapturePlan {
        let given = Given {
            tokens,
            available: 70_000,
            solver: Solver::Recipe,
            threads: 2,
            memory_bytes: u64::MAX,
            held_bytes: 0,
        };
        CapturePlan::new(&crate::tests::spec(), given)
    }

    #[test]
    fn too_few_tokens_is_a_loud_warning_with_the_number_needed() {
        let few = plan(2048);
        assert_eq!((few.rank_bound, few.wanted), (1024.0, 8192));
        let text = few.lines(Arm::Both).join("\n");
        assert!(
            text.contains("2.0 times the rank bound of 1024") && text.contains("WARNING") && text.contains("8192"),
            "{text}"
        );
        assert!(!plan(8192).lines(Arm::Both).join("\n").contains("WARNING"));
        assert!(plan(8192).lines(Arm::Down).join("\n").contains("diagnosis"));
    }

    #[test]
    fn hidden_states_beyond_the_bound_are_spilled() {
        let given = Given {
            tokens: 1000,
            available: 1000,
            solver: Solver::Recipe,
            threads: 1,
            memory_bytes: 1000,
            held_bytes: 0,
        };
        let spilled = CapturePlan::new(&crate::tests::spec(), given);
        assert!(spilled.spilled && spilled.lines(Arm::Both).join("\n").contains("in a temporary file"));
        assert!(
            spilled.memory_bytes
                < CapturePlan::new(&crate::tests::spec(), Given { memory_bytes: u64::MAX, ..given }).memory_bytes
        );
    }

    #[test]
    fn the_default_is_64_bounds_where_an_hour_is_enough() {
        assert_eq!(hour_of_tokens(&crate::tests::spec()), 65_536);
    }
}
