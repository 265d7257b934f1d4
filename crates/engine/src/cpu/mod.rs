//! [`Cpu`]: the backend on threads of its own, each operation done when it is recorded.

mod attend;
mod attention;
mod moe;
mod product;
mod recurrent;
mod rope;
mod rows;

use crate::backend::{
    Backend, Buffer, Choice, ConvCall, DeltaCall, DeltaInputs, ExpertsCall, GqaCall, Matrix, MlaCall, MlaInputs,
    Packed, Qkv, Recorder, Span, State,
};
use crate::error::EngineError;
use crate::experts::ExpertSource;
use crate::math::{sigmoid, silu};
use crate::observer::Routes;
use crate::route::route;
use crate::weights::{Norm, RouterWeights};
use attention::{KvState, LatentState};
use product::{decode_row, view};
use rayon::prelude::*;
use recurrent::{ConvState, DeltaState};
use smoe_kernels::Isa;
use smoe_model::spec::{Activation, Mixer, MoeSpec};
use smoe_model::store::Tensor;

/// Values below which an element-wise operation stays on one thread.
const SERIAL: usize = 1 << 14;

/// The CPU: a pool of threads and an instruction set.
pub struct Cpu {
    pool: rayon::ThreadPool,
    threads: usize,
    isa: Isa,
    hidden: usize,
    activations: Activations,
}

/// How activations enter products with coded matrices. Matrices of plain numbers always take them as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Activations {
    /// As they are: what measures a vault, and what calibrates one.
    #[default]
    F32,
    /// Rounded to eight bits in groups of 64 ([`smoe_kernels::Int8`]), which is faster, and off by
    /// [`smoe_kernels::DRIFT`] at most.
    Int8,
}

impl Activations {
    /// Eight bits where this machine has a kernel for them.
    #[must_use]
    pub fn fastest() -> Self {
        if Isa::detect() == Isa::Scalar { Self::F32 } else { Self::Int8 }
    }

    /// `f32` or `int8`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }
}

impl Cpu {
    /// A backend with `threads` threads (0: as many as the machine has) for a residual stream of `hidden` values.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn new(threads: usize, hidden: usize) -> Result<Self, EngineError> {
        Self::with_isa(threads, hidden, Isa::detect())
    }

    /// [`Cpu::new`] on a given instruction set rather than the best one: to compare them.
    ///
    /// # Errors
    /// As [`Cpu::new`].
    pub fn with_isa(threads: usize, hidden: usize, isa: Isa) -> Result<Self, EngineError> {
        let threads = if threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("smoe-{i}"))
            .build()
            .map_err(|e| EngineError::Threads { threads, cause: e.to_string() })?;
        Ok(Self { pool, threads, isa, hidden, activations: Activations::F32 })
    }

    /// With another kind of activations.
    #[must_use]
    pub fn with_activations(mut self, activations: Activations) -> Self {
        self.activations = activations;
        self
    }

    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        let activations = match self.activations {
            Activations::F32 => "",
            Activations::Int8 => ", int8 activations",
        };
        format!("cpu, {}, {} threads{activations}", self.isa.name(), self.threads)
    }

    fn set_activations(&mut self, activations: Activations) -> bool {
        self.activations = activations;
        true
    }

    fn upload(&self, tensor: Tensor) -> Result<Matrix, EngineError> {
        let (rows, cols) = (tensor.rows, tensor.cols);
        if tensor.bytes.len() != tensor.dtype.bytes(rows, cols) {
            return Err(EngineError::Spec(format!("{} bytes for a [{rows}, {cols}] tensor", tensor.bytes.len())));
        }
        Ok(Matrix { rows, cols, packed: Packed::new(tensor) })
    }

    fn upload_values(&self, values: Vec<f32>) -> Result<Buffer, EngineError> {
        Ok(Buffer::new(values))
    }

    fn state(&self, mixer: &Mixer) -> State {
        match mixer {
            Mixer::Gqa(gqa) => State::new(KvState::new(gqa.kv_heads, gqa.head_dim)),
            Mixer::Mla(mla) => State::new(LatentState::new(mla.kv_rank + mla.rope_dim)),
            Mixer::DeltaNet(delta) => State::new(DeltaState::new(delta)),
            Mixer::ShortConv { kernel, .. } => State::new(ConvState::new(*kernel, self.hidden)),
        }
    }

    fn run(&self, pass: &mut (dyn FnMut(&mut dyn Recorder) + Send)) {
        self.pool.install(|| pass(&mut Direct(self)));
    }
}

/// Does every operation at once.
struct Direct<'a>(&'a Cpu);

fn values(x: &Buffer) -> &[f32] {
    x.get::<Vec<f32>>()
}

fn values_mut(x: &mut Buffer) -> &mut [f32] {
    x.get_mut::<Vec<f32>>()
}

/// Applies `f` to every value, on several threads where that pays.
fn each(x: &mut [f32], f: impl Fn(&mut f32) + Sync + Send) {
    if x.len() < SERIAL { x.iter_mut().for_each(f) } else { x.par_iter_mut().with_min_len(SERIAL / 4).for_each(f) }
}

/// Applies `f` to every value and its partner.
fn each_with(x: &mut [f32], y: &[f32], f: impl Fn(&mut f32, f32) + Sync + Send) {
    let whole = |(x, y): (&mut [f32], &[f32])| x.iter_mut().zip(y).for_each(|(x, y)| f(x, *y));
    if x.len() < SERIAL {
        whole((x, y));
    } else {
        x.par_chunks_mut(SERIAL / 4).zip(y.par_chunks(SERIAL / 4)).for_each(whole);
    }
}

/// `gate = act(gate, up)`.
fn activate(act: Activation, gate: &mut [f32], up: &[f32]) {
    match act {
        Activation::SwiGlu => gate.iter_mut().zip(up).for_each(|(g, u)| *g = silu(*g) * u),
        Activation::ClampedSwiGlu { limit, alpha } => gate.iter_mut().zip(up).for_each(|(g, u)| {
            let clamped = g.min(limit);
            *g = (u.clamp(-limit, limit) + 1.0) * clamped * sigmoid(alpha * clamped);
        }),
    }
}

impl Recorder for Direct<'_> {
    fn buffer(&mut self, len: usize) -> Buffer {
        Buffer::new(vec![0.0f32; len])
    }

    fn embed(&mut self, table: &Matrix, ids: &[u32], factor: f32, out: &mut Buffer) {
        let table = view(table.packed.get::<Tensor>());
        for (row, id) in values_mut(out).chunks_exact_mut(table.cols()).zip(ids) {
            decode_row(&table, *id as usize, row);
            row.iter_mut().for_each(|x| *x *= factor);
        }
    }

    fn norm(&mut self, norm: &Norm, x: &Buffer, rows: Span, out: &mut Buffer) {
        let x = &values(x)[rows.start * norm.cols..(rows.start + rows.n) * norm.cols];
        let out = &mut values_mut(out)[..rows.n * norm.cols];
        out.copy_from_slice(x);
        if out.len() < SERIAL {
            rope::norm_rows(norm, out);
        } else {
            out.par_chunks_mut(norm.cols).for_each(|row| rope::norm_row(norm, row));
        }
    }

    fn linear(&mut self, weight: &Matrix, bias: Option<&Buffer>, x: &Buffer, n: usize, out: &mut Buffer) {
        let (rows, cols) = (weight.rows, weight.cols);
        let weight = view(weight.packed.get::<Tensor>());
        let out = &mut values_mut(out)[..n * rows];
        self.0.product(&weight, &values(x)[..n * cols], n, out);
        if let Some(bias) = bias {
            let bias = values(bias);
            out.chunks_exact_mut(rows).for_each(|row| row.iter_mut().zip(bias).for_each(|(o, b)| *o += b));
        }
    }

    fn add(&mut self, x: &Buffer, factor: f32, out: &mut Buffer) {
        each_with(values_mut(out), values(x), |out, x| *out += x * factor);
    }

    fn scale(&mut self, factor: f32, x: &mut Buffer) {
        each(values_mut(x), |x| *x *= factor);
    }

    fn activate(&mut self, act: Activation, up: &Buffer, gate: &mut Buffer) {
        let (gate, up) = (values_mut(gate), values(up));
        if gate.len() < SERIAL {
            return activate(act, gate, up);
        }
        gate.par_chunks_mut(SERIAL / 4).zip(up.par_chunks(SERIAL / 4)).for_each(|(g, u)| activate(act, g, u));
    }

    fn gate_rows(&mut self, logits: &Buffer, n: usize, x: &mut Buffer) {
        let x = values_mut(x);
        let width = x.len() / n;
        for (row, logit) in x.chunks_exact_mut(width).zip(values(logits)) {
            let gate = sigmoid(*logit);
            row.iter_mut().for_each(|x| *x *= gate);
        }
    }

    fn gqa(&mut self, at: GqaCall<'_>, qkv: Qkv<'_>, state: &mut State, out: &mut Buffer) {
        self.0.gqa(at, &qkv, state.get_mut::<KvState>(), values_mut(out));
    }

    fn mla(&mut self, at: MlaCall<'_>, inputs: MlaInputs<'_>, state: &mut State, out: &mut Buffer) {
        self.0.mla(at, &inputs, state.get_mut::<LatentState>(), values_mut(out));
    }

    fn delta_net(&mut self, at: DeltaCall<'_>, inputs: DeltaInputs<'_>, state: &mut State, out: &mut Buffer) {
        recurrent::delta_net(at, &inputs, state.get_mut::<DeltaState>(), values_mut(out));
    }

    fn short_conv(&mut self, at: ConvCall<'_>, bcx: &Buffer, state: &mut State, out: &mut Buffer) {
        let (n, hidden) = (at.n, at.hidden);
        let out = &mut values_mut(out)[..n * hidden];
        recurrent::short_conv(at, &values(bcx)[..n * 3 * hidden], state.get_mut::<ConvState>(), out);
    }

    fn route(&mut self, moe: &MoeSpec, router: &RouterWeights, logits: &Buffer, n: usize) -> Choice {
        let bias = router.selection_bias.as_ref().map(values);
        let rows = values(logits)[..n * moe.experts].par_chunks(moe.experts);
        let chosen: Vec<Vec<(u32, f32)>> = rows.with_min_len(16).map(|logits| route(moe, bias, logits)).collect();
        let (ids, weights) = chosen.into_iter().flatten().unzip();
        Choice::new(Routes { k: moe.top_k, ids, weights })
    }

    fn read_choice(&mut self, choice: &Choice) -> Result<Routes, EngineError> {
        Ok(choice.get::<Routes>().clone())
    }

    fn choose(&mut self, routes: Routes) -> Choice {
        Choice::new(routes)
    }

    fn expect(&mut self, source: &dyn ExpertSource, layer: usize, choice: &Choice) {
        source.expect(layer, &choice.get::<Routes>().needed());
    }

    fn guess(&mut self, source: &dyn ExpertSource, layer: usize, choice: &Choice) {
        source.guess(layer, &choice.get::<Routes>().needed());
    }

    fn experts(
        &mut self,
        call: ExpertsCall<'_>,
        choice: &Choice,
        x: &Buffer,
        out: &mut Buffer,
    ) -> Result<(), EngineError> {
        let len = call.n * call.hidden;
        self.0.experts(call, choice.get::<Routes>(), &values(x)[..len], &mut values_mut(out)[..len])
    }

    fn read(&mut self, x: &Buffer, out: &mut [f32]) -> Result<(), EngineError> {
        out.copy_from_slice(&values(x)[..out.len()]);
        Ok(())
    }

    fn write(&mut self, source: &[f32], x: &mut Buffer) {
        values_mut(x)[..source.len()].copy_from_slice(source);
    }
}
