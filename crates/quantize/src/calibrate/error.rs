//! What stops a calibration. The conversion adds the checkpoint's name.

use super::report::TensorAt;
use smoe_codec::EncodeError;

/// What a source of hidden states and weights may fail with.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Why a layer cannot be calibrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// An option that leaves nothing to do, or a codec that cannot be calibrated.
    #[error("{0}")]
    Options(String),
    /// Lengths that do not belong together.
    #[error("layer {layer}: {what}: expected {expected}, found {found}")]
    Shape {
        /// The layer.
        layer: usize,
        /// What is counted.
        what: String,
        /// As the layer's shape says.
        expected: usize,
        /// As given.
        found: usize,
    },
    /// The engine did not report what it was asked for.
    #[error(
        "layer {layer}, text {text}: expected {expected} {what}, found {found}; the capture is broken, nothing was \
         calibrated on it"
    )]
    Capture {
        /// The layer.
        layer: usize,
        /// Index of the calibration text.
        text: usize,
        /// What is counted.
        what: &'static str,
        /// As the text and the model say.
        expected: usize,
        /// As reported.
        found: usize,
    },
    /// A NaN or an infinity in what the experts see.
    #[error(
        "layer {layer}, token {token}: {what} is not finite; calibrate on other text, or check the checkpoint with \
         `smoe logits`"
    )]
    NotFinite {
        /// The layer.
        layer: usize,
        /// Index of the token in the calibration stream.
        token: usize,
        /// Which quantity.
        what: &'static str,
    },
    /// A statistic that cannot come from real activations.
    #[error("{at}: {fault}; the capture is broken, nothing was calibrated on it")]
    Statistic {
        /// Whose statistic.
        at: TensorAt,
        /// What is wrong with it.
        fault: StatisticFault,
    },
    /// The factor does not exist even with the damping raised.
    #[error(
        "{at}: the statistic is not positive definite at column {column} with damping {damping}; calibrate on more text"
    )]
    NotPositiveDefinite {
        /// The matrix.
        at: TensorAt,
        /// Where the pivot failed.
        column: usize,
        /// The last damping tried.
        damping: f32,
    },
    /// A weight that no codec can store.
    #[error("{at}: row {row}: {source}")]
    Encode {
        /// The matrix.
        at: TensorAt,
        /// Its row.
        row: usize,
        /// Why.
        source: EncodeError,
    },
    /// A loop of the solver did nothing, or its objective rose: a fault of this program.
    #[error("{at}: {what}; this is a fault of the solver, please report it")]
    Solver {
        /// The matrix.
        at: TensorAt,
        /// What happened.
        what: String,
    },
    /// Hidden states or weights could not be read.
    #[error("layer {layer}: {source}")]
    Source {
        /// The layer.
        layer: usize,
        /// Why.
        source: SourceError,
    },
    /// Tensors that were to be calibrated and are their round-to-nearest twins.
    #[error("calibration changed nothing in {}: equal to round-to-nearest, codes and scales; the conversion failed", list(.0))]
    EqualsTwin(Vec<TensorAt>),
    /// A layer or a projection in which no matrix could be calibrated.
    #[error("{place}: no matrix was calibrated ({why}); the conversion failed")]
    AllExempt {
        /// The layer or projection.
        place: String,
        /// The first reason.
        why: String,
    },
    /// Matrices without a report, or reported twice.
    #[error("expected one report of each of {expected} expert matrices, found {found}; missing: {}", list(missing))]
    Missing {
        /// Matrices of the layers.
        expected: usize,
        /// Reports.
        found: usize,
        /// Which have none.
        missing: Vec<TensorAt>,
    },
}

/// A statistic that cannot be real.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StatisticFault {
    /// NaN or infinity.
    #[error("its statistic is not finite")]
    NotFinite,
    /// Every entry the same.
    #[error("its statistic is constant (every entry {0})")]
    Constant(f64),
    /// A multiple of the identity matrix.
    #[error("its statistic is the identity times {0}")]
    Identity(f64),
    /// All tokens have the same input.
    #[error("all {0} tokens of the layer have the same input")]
    OneInput(u64),
    /// Bit for bit the statistic of another expert.
    #[error("its statistic is that of expert {0}, which saw other tokens")]
    Repeated(usize),
    /// Tokens lost or counted twice.
    #[error("its statistic holds {found} tokens, the router sent it {expected}")]
    Tokens {
        /// By the router.
        expected: u64,
        /// In the statistic.
        found: u64,
    },
    /// A negative sum of squares.
    #[error("its statistic has the negative diagonal entry {value} at column {column}")]
    Negative {
        /// Where.
        column: usize,
        /// What.
        value: f64,
    },
}

/// The first of many, and their number.
fn list(tensors: &[TensorAt]) -> String {
    const SHOWN: usize = 8;
    let names: Vec<_> = tensors.iter().take(SHOWN).map(ToString::to_string).collect();
    let rest = tensors.len().saturating_sub(SHOWN);
    if rest == 0 { names.join(", ") } else { format!("{} and {rest} more", names.join(", ")) }
}
