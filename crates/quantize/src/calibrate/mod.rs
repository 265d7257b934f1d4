//! Calibrated quantisation of the routed experts, as a pure core: statistics of what each expert matrix really sees, a
//! solver for codes and scales under them, and the rules by which a calibration that did nothing is a failure. It opens
//! no file and reads no clock; the same inputs give the same bytes whatever the number of threads.
//!
//! The method is: second moments weighted by the router's combine weights and shrunk to a prior ([`Statistic`]), GPTQ
//! with coordinate descent and a joint refit of the scales ([`solve()`]), gate and up first and then down on the outputs
//! of the quantised gate and up ([`calibrate_layer`]).

mod activation;
mod error;
mod expert;
mod factor;
mod lanes;
mod layer;
mod levels;
mod moments;
mod recipe;
mod refit;
mod report;
mod rows;
mod solve;
mod statistic;

pub use error::{CalibrateError, SourceError, StatisticFault};
pub use layer::{ExpertResult, Layer, LayerSource, Options, Routed, Shape, Stream, Tamper, Untouched, calibrate_layer};
pub use levels::Levels;
pub use moments::{Inputs, Moments};
pub use recipe::{Arm, Recipe, Solver, rank_bound, wanted_tokens};
pub use report::{Exempt, Facts, HeldOut, Outcome, Projection, Summary, TensorAt, TensorReport, check_reports};
pub use solve::{Encoded, Problem, Unsolved, output_error, solve};
pub use statistic::{Statistic, check_inputs_differ, check_moments};

#[cfg(test)]
mod tests;
