//! What quantising one matrix does to its output, on inputs that the reference really sees.
//!
//! For a matrix W, its quantised form Q and inputs x: `sum |Q x - W x|^2 / sum |W x|^2`, over at most about [`ROWS`]
//! tokens of each expert, spread over all windows. Products in f32 by the kernels, sums in f64 in the order of tokens.
//! The inputs of down are the reference's own activations, so each matrix is judged by itself.

use rayon::prelude::*;
use smoe_engine::experts::{Expert, Part};
use smoe_engine::{EngineError, ExpertSource};
use smoe_kernels::{Data, Isa, Matrix, MatrixError, matmul};
use smoe_model::role::Proj;
use smoe_model::spec::ModelSpec;
use smoe_model::store::Dtype;

use super::survey::Tap;
use crate::error::GateError;

/// Tokens of an expert that are looked at; rounded up to a whole number a window.
const ROWS: usize = 64;

const PROJ: [Proj; 3] = [Proj::Gate, Proj::Up, Proj::Down];

/// One matrix.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct OutputError {
    /// Tokens looked at.
    pub(crate) rows: u64,
    /// `sum |W x|^2`.
    pub(crate) norm: f64,
    /// `sum |Q x - W x|^2` of each arm.
    pub(crate) errors: Vec<f64>,
}

impl OutputError {
    /// An arm's error as a share of the output; `None` where there was no input or no output.
    pub(crate) fn share(&self, arm: usize) -> Option<f64> {
        (self.norm > 0.0).then(|| self.errors[arm] / self.norm)
    }
}

/// By layer, expert and projection; empty for layers without experts.
pub(crate) type OutputErrors = Vec<Vec<[OutputError; 3]>>;

/// Watches the reference and computes each expert's outputs again, with every arm's matrices.
pub(crate) struct Probe<'a> {
    reference: &'a dyn ExpertSource,
    arms: Vec<&'a dyn ExpertSource>,
    hidden: usize,
    rows_a_window: usize,
    /// What entered the layer that is being computed.
    x: Vec<f32>,
    sums: OutputErrors,
    fault: Option<GateError>,
}

impl<'a> Probe<'a> {
    pub(crate) fn new(
        spec: &ModelSpec,
        reference: &'a dyn ExpertSource,
        arms: Vec<&'a dyn ExpertSource>,
        windows: usize,
    ) -> Self {
        let empty = OutputError { errors: vec![0.0; arms.len()], ..OutputError::default() };
        let mut sums: OutputErrors = spec.layers.iter().map(|_| Vec::new()).collect();
        for (layer, moe) in spec.moe_layers() {
            sums[layer] = vec![[empty.clone(), empty.clone(), empty.clone()]; moe.experts];
        }
        let rows_a_window = ROWS.div_ceil(windows.max(1));
        Self { reference, arms, hidden: spec.hidden, rows_a_window, x: Vec::new(), sums, fault: None }
    }

    /// The fault of a source, which an observer cannot return.
    pub(crate) fn check(&mut self) -> Result<(), GateError> {
        self.fault.take().map_or(Ok(()), Err)
    }

    pub(crate) fn finish(self) -> OutputErrors {
        self.sums
    }

    fn look(&mut self, (layer, expert): (usize, usize), rows: &[u32], g: &[f32]) -> Result<(), GateError> {
        let room = (ROWS as u64).saturating_sub(self.sums[layer][expert][0].rows) as usize;
        let take = self.rows_a_window.min(rows.len()).min(room);
        if take == 0 {
            return Ok(());
        }
        let (width, hidden) = (g.len() / rows.len(), self.hidden);
        let chosen: Vec<usize> = (0..take).map(|i| i * rows.len() / take).collect();
        let row = |i: &usize| &self.x[rows[*i] as usize * hidden..][..hidden];
        let x: Vec<f32> = chosen.iter().flat_map(row).copied().collect();
        let h: Vec<f32> = chosen.iter().flat_map(|i| &g[i * width..(i + 1) * width]).copied().collect();
        let id = u32::try_from(expert).map_err(|_| EngineError::Spec("more than 2^32 experts".into()))?;
        let sources = std::iter::once(self.reference).chain(self.arms.iter().copied());
        let experts = sources.map(|source| source.fetch(layer, &[id])).collect::<Result<Vec<_>, _>>()?;
        let experts: Vec<Expert> = experts.into_iter().flatten().collect();
        let jobs: Vec<(usize, &Expert)> =
            (0..3).flat_map(|proj| experts.iter().map(move |expert| (proj, expert))).collect();
        let one = |(proj, expert): (usize, &Expert)| {
            outputs(expert, PROJ[proj], if proj == 2 { &h } else { &x }, take)
                .map_err(|fault| GateError::input(&format!("layer {layer} expert {id}"), fault.to_string()))
        };
        // Within the engine's own pool: an observer is called from there.
        let outputs = jobs.into_par_iter().map(one).collect::<Result<Vec<_>, _>>()?;
        for (sums, outputs) in self.sums[layer][expert].iter_mut().zip(outputs.chunks(experts.len())) {
            sums.rows += take as u64;
            sums.norm += outputs[0].iter().map(|y| f64::from(*y).powi(2)).sum::<f64>();
            for (sum, own) in sums.errors.iter_mut().zip(&outputs[1..]) {
                *sum += own.iter().zip(&outputs[0]).map(|(q, w)| (f64::from(*q) - f64::from(*w)).powi(2)).sum::<f64>();
            }
        }
        Ok(())
    }
}

impl Tap for Probe<'_> {
    fn input(&mut self, x: &[f32]) {
        self.x.clear();
        self.x.extend_from_slice(x);
    }

    fn hidden(&mut self, layer: usize, expert: usize, rows: &[u32], g: &[f32]) {
        if self.fault.is_none() {
            self.fault = self.look((layer, expert), rows, g).err();
        }
    }

    fn wants_input(&self) -> bool {
        true
    }
}

/// `[rows, n]`: a matrix times `n` inputs, without its bias, which is not quantised.
fn outputs(expert: &Expert, proj: Proj, x: &[f32], n: usize) -> Result<Vec<f32>, MatrixError> {
    let view = view(expert, proj)?;
    let mut out = vec![0.0; view.rows() * n];
    matmul(Isa::detect(), &view, 0..view.rows(), x, n, &mut out);
    Ok(out)
}

/// An expert's matrix as the kernels see it.
pub(crate) fn view(expert: &Expert, proj: Proj) -> Result<Matrix<'_>, MatrixError> {
    let bytes = (*expert.bytes).as_ref();
    let (rows, cols) = expert.shape(proj);
    let data = match expert.part(proj) {
        Part::Dense { dtype: Dtype::Bf16, at } => Data::Bf16(&bytes[at.clone()]),
        Part::Dense { dtype: Dtype::F16, at } => Data::F16(&bytes[at.clone()]),
        Part::Dense { at, .. } => Data::F32(&bytes[at.clone()]),
        Part::Coded { codec, codes, scales } => {
            Data::Coded { codec: *codec, codes: &bytes[codes.clone()], scales: &bytes[scales.clone()] }
        }
    };
    Matrix::new(rows, cols, data)
}
