//! [`Backend`]: the operations of the forward pass on opaque device buffers.
//!
//! A backend owns memory and arithmetic; it knows shapes, not models. The forward pass (`forward.rs`) is written once
//! against these traits. A [`Recorder`] may run each operation at once (CPU) or record them all and submit when
//! something is read: per token that is one small read-back (logits), plus the router's choice where the experts are
//! not all resident on the device.
//!
//! Activations are f32, `[tokens, width]` row-major. Every operation computes each token's row in an order that does
//! not depend on the number of tokens in the call.

use crate::cpu::Activations;
use crate::error::EngineError;
use crate::experts::ExpertSource;
use crate::observer::Routes;
use crate::weights::{ConvWeights, DeltaWeights, GqaWeights, MlaWeights, Norm, RouterWeights};
use smoe_model::spec::{Activation, DeltaNet, Gqa, Mixer, Mla, MoeSpec};
use smoe_model::store::Tensor;
use std::any::Any;

/// Something that only the backend that made it can look into.
struct Opaque(Box<dyn Any + Send + Sync>);

/// Declares an opaque handle with its constructor and accessors.
macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name(Opaque);

        impl $name {
            /// Wraps what a backend keeps behind the handle.
            pub fn new<T: Any + Send + Sync>(inner: T) -> Self {
                Self(Opaque(Box::new(inner)))
            }

            /// What the backend keeps.
            ///
            /// # Panics
            /// If the handle is another backend's: mixing two backends is a bug of the caller.
            pub fn get<T: Any>(&self) -> &T {
                self.0.0.downcast_ref().expect(concat!(stringify!($name), " of another backend"))
            }

            /// What the backend keeps, to be changed.
            ///
            /// # Panics
            /// If the handle is another backend's.
            pub fn get_mut<T: Any>(&mut self) -> &mut T {
                self.0.0.downcast_mut().expect(concat!(stringify!($name), " of another backend"))
            }
        }
    };
}

opaque!(
    /// f32 values on the device.
    Buffer
);
opaque!(
    /// A weight matrix on the device, packed as stored.
    Packed
);
opaque!(
    /// What one layer of one session remembers: keys and values, a latent, a recurrent state.
    State
);
opaque!(
    /// The router's choice for the tokens of a call.
    Choice
);

/// A weight matrix `[rows, cols]` on the device.
pub struct Matrix {
    /// Output width.
    pub rows: usize,
    /// Input width.
    pub cols: usize,
    /// The backend's side.
    pub packed: Packed,
}

/// The tokens of a call: `n` of them, the first at position `start` of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Position of the first token.
    pub start: usize,
    /// Tokens.
    pub n: usize,
}

/// A device.
pub trait Backend: Send + Sync {
    /// Name and width for people: "cpu, avx2, 2 threads".
    fn describe(&self) -> String;
    /// Takes activations so from now on; `false` where the backend knows no such choice.
    fn set_activations(&mut self, activations: Activations) -> bool {
        let _ = activations;
        false
    }
    /// Takes over a weight matrix, packed as stored.
    fn upload(&self, tensor: Tensor) -> Result<Matrix, EngineError>;
    /// Takes over values.
    fn upload_values(&self, values: Vec<f32>) -> Result<Buffer, EngineError>;
    /// An empty memory for a layer with this mixer.
    fn state(&self, mixer: &Mixer) -> State;
    /// Runs one pass on the device's own threads.
    fn run(&self, pass: &mut (dyn FnMut(&mut dyn Recorder) + Send));
}

/// Queries, keys and values of a call, after their projections.
pub struct Qkv<'a> {
    /// `[n, heads * head_dim]`, or twice as wide with an output gate.
    pub q: &'a Buffer,
    /// `[n, kv_heads * head_dim]`.
    pub k: &'a Buffer,
    /// `[n, kv_heads * head_dim]`.
    pub v: &'a Buffer,
}

/// Inputs of [`Recorder::mla`], after their projections.
pub struct MlaInputs<'a> {
    /// Queries `[n, heads * (nope_dim + rope_dim)]`.
    pub q: &'a Buffer,
    /// `[n, kv_rank + rope_dim]`: the latent before its norm, then the key part before its rotation.
    pub kv: &'a Buffer,
}

/// Inputs of [`Recorder::delta_net`], after their projections.
pub struct DeltaInputs<'a> {
    /// q | k | v, `[n, 2 * key_heads * key_dim + value_heads * value_dim]`.
    pub qkv: &'a Buffer,
    /// `[n, value_heads * value_dim]`.
    pub z: &'a Buffer,
    /// `[n, value_heads]`.
    pub b: &'a Buffer,
    /// `[n, value_heads]`.
    pub a: &'a Buffer,
}

/// The experts of one layer for one call.
pub struct ExpertsCall<'a> {
    /// Decoder layer.
    pub layer: usize,
    /// Its experts.
    pub moe: &'a MoeSpec,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens of the call.
    pub n: usize,
    /// Who has the weights.
    pub source: &'a dyn ExpertSource,
    /// Sees every expert's hidden activation, where someone asked for it.
    pub tap: Option<&'a mut dyn ExpertTap>,
}

/// Sees inside the experts: the seam for calibration.
pub trait ExpertTap {
    /// `g = act(gate x, up x)` `[rows.len(), width]` of the tokens `rows` (indices within the call) that chose `expert`.
    fn expert_hidden(&mut self, expert: u32, rows: &[u32], g: &[f32]);
}

/// One pass over some tokens.
pub trait Recorder {
    /// `len` values of unspecified content.
    fn buffer(&mut self, len: usize) -> Buffer;
    /// `out[t] = table[ids[t]] * factor`.
    fn embed(&mut self, table: &Matrix, ids: &[u32], factor: f32, out: &mut Buffer);
    /// Normalises rows `first .. first + n` of `x` into rows `0 .. n` of `out`.
    fn norm(&mut self, norm: &Norm, x: &Buffer, rows: Span, out: &mut Buffer);
    /// `out[t] = weight x[t] + bias`.
    fn linear(&mut self, weight: &Matrix, bias: Option<&Buffer>, x: &Buffer, n: usize, out: &mut Buffer);
    /// `out += x * factor`.
    fn add(&mut self, x: &Buffer, factor: f32, out: &mut Buffer);
    /// `x *= factor`.
    fn scale(&mut self, factor: f32, x: &mut Buffer);
    /// `gate = act(gate, up)`, element by element.
    fn activate(&mut self, act: Activation, up: &Buffer, gate: &mut Buffer);
    /// `x[t] *= sigmoid(logits[t])`, one logit a token.
    fn gate_rows(&mut self, logits: &Buffer, n: usize, x: &mut Buffer);
    /// Norms, rotates and remembers keys and values, attends; `out` `[n, heads * head_dim]`.
    fn gqa(&mut self, at: GqaCall<'_>, qkv: Qkv<'_>, state: &mut State, out: &mut Buffer);
    /// Norms, rotates and remembers the latent, attends with `kv_b` absorbed; `out` `[n, heads * v_dim]`.
    fn mla(&mut self, at: MlaCall<'_>, inputs: MlaInputs<'_>, state: &mut State, out: &mut Buffer);
    /// Convolution, delta rule, gated norm; `out` `[n, value_heads * value_dim]`.
    fn delta_net(&mut self, at: DeltaCall<'_>, inputs: DeltaInputs<'_>, state: &mut State, out: &mut Buffer);
    /// `out = C * conv(B * x)` from `bcx` `[n, 3 * hidden]`; `out` `[n, hidden]`.
    fn short_conv(&mut self, at: ConvCall<'_>, bcx: &Buffer, state: &mut State, out: &mut Buffer);
    /// Chooses experts from router logits `[n, experts]`.
    fn route(&mut self, moe: &MoeSpec, router: &RouterWeights, logits: &Buffer, n: usize) -> Choice;
    /// The choice, on the host.
    fn read_choice(&mut self, choice: &Choice) -> Result<Routes, EngineError>;
    /// A choice made on the host.
    fn choose(&mut self, routes: Routes) -> Choice;
    /// Tells the source which experts [`Recorder::experts`] will ask for, where the choice is known without waiting.
    fn expect(&mut self, source: &dyn ExpertSource, layer: usize, choice: &Choice) {
        let _ = (source, layer, choice);
    }
    /// Tells the source which experts a later layer may ask for.
    fn guess(&mut self, source: &dyn ExpertSource, layer: usize, choice: &Choice) {
        let _ = (source, layer, choice);
    }
    /// `out[t] = sum over slots of weight * expert(x[t])`, in slot order, each needed expert visited once.
    fn experts(
        &mut self,
        call: ExpertsCall<'_>,
        choice: &Choice,
        x: &Buffer,
        out: &mut Buffer,
    ) -> Result<(), EngineError>;
    /// Submits what was recorded, waits, and copies the first `out.len()` values.
    fn read(&mut self, x: &Buffer, out: &mut [f32]) -> Result<(), EngineError>;
    /// Overwrites the first `values.len()` values.
    fn write(&mut self, values: &[f32], x: &mut Buffer);
}

/// Parameters of [`Recorder::gqa`].
#[derive(Clone, Copy)]
pub struct GqaCall<'a> {
    /// The mixer.
    pub spec: &'a Gqa,
    /// Its norms and sinks.
    pub weights: &'a GqaWeights,
    /// The tokens.
    pub span: Span,
}

/// Parameters of [`Recorder::mla`].
#[derive(Clone, Copy)]
pub struct MlaCall<'a> {
    /// The mixer.
    pub spec: &'a Mla,
    /// Its latent norm and `kv_b`.
    pub weights: &'a MlaWeights,
    /// The tokens.
    pub span: Span,
}

/// Parameters of [`Recorder::delta_net`].
#[derive(Clone, Copy)]
pub struct DeltaCall<'a> {
    /// The mixer.
    pub spec: &'a DeltaNet,
    /// Its convolution, decay and norm.
    pub weights: &'a DeltaWeights,
    /// Tokens.
    pub n: usize,
}

/// Parameters of [`Recorder::short_conv`].
#[derive(Clone, Copy)]
pub struct ConvCall<'a> {
    /// Taps, bias.
    pub weights: &'a ConvWeights,
    /// Channels.
    pub hidden: usize,
    /// Taps of the convolution.
    pub kernel: usize,
    /// Tokens.
    pub n: usize,
}
