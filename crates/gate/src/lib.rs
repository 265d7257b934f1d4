//! Proof: what a conversion costs, measured on text.
//!
//! [`Windows`] is evaluation text as rows of token ids; [`evaluate`] runs one or two models over it and gives an
//! [`Evaluation`]; [`bootstrap`] defines its intervals well enough to compute them again in another language.
#![forbid(unsafe_code)]

pub mod bootstrap;
mod documents;
mod error;
mod eval;
mod gate;
mod html;
mod model;
mod per_token;
mod score;
pub mod shingles;
mod windows;

pub use error::GateError;
pub use eval::{Control, DocumentSums, EvalOptions, Evaluation, Outcome, Progress, evaluate};
pub use gate::{
    ArmReport, BootstrapReport, Check, Difference, DocumentReport, ExpertsReport, GateOptions, LayerReport, Making,
    Measures, OutputShares, ReferenceReport, Report, Subjects, SumsReport, TextReport, Verdict, WorstDocument,
    WorstTensor, gate, kld_bound,
};
pub use html::page;
pub use model::{EngineModel, LogitsModel, ModelFault};
pub use per_token::PerToken;
pub use shingles::{SHINGLES_SECTION, Shingles};
pub use windows::Windows;
