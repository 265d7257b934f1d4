//! The forward pass, written once from the [`ModelSpec`] against [`Recorder`] and [`ExpertSource`].

use crate::backend::{
    Buffer, Choice, ConvCall, DeltaCall, DeltaInputs, ExpertTap, ExpertsCall, GqaCall, MlaCall, MlaInputs, Qkv,
    Recorder, Span, State,
};
use crate::error::EngineError;
use crate::experts::ExpertSource;
use crate::observer::{At, Observer};
use crate::route::random_routes;
use crate::weights::{
    ConvWeights, DeltaWeights, GatedMlp, GqaWeights, LayerWeights, Linear, MixerWeights, MlaQuery, MlaWeights,
    MlpWeights, Norm, RouterWeights, Trunk,
};
use smoe_model::spec::{DeltaNet, Gqa, LayerSpec, Mixer, Mla, Mlp, ModelSpec, MoeSpec};

/// Which logits a pass returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// None: the tokens are only taken in.
    Nothing,
    /// The last token's, `[vocab]`.
    Last,
    /// Every token's, `[n, vocab]`.
    All,
}

/// Tokens of a pass whose logits are computed together: bounds their memory for large vocabularies.
const HEAD_TOKENS: usize = 64;

/// What a pass works with.
pub(crate) struct Model<'a> {
    pub(crate) spec: &'a ModelSpec,
    pub(crate) source: &'a dyn ExpertSource,
    /// Routes at random by this seed instead of asking the routers.
    pub(crate) random_routing: Option<u64>,
}

/// A decoder layer: what it is and its weights.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    pub(crate) index: usize,
    pub(crate) spec: &'a LayerSpec,
    pub(crate) weights: &'a LayerWeights,
    /// The layer after it, where it is at hand.
    pub(crate) next: Option<(&'a LayerSpec, &'a LayerWeights)>,
}

/// What a layer remembers of the tokens of a pass.
pub(crate) enum Memory<'a> {
    /// They are one text's.
    One(&'a mut State),
    /// They are one token each of several texts, all at the same position.
    Each(&'a mut [State]),
}

/// One pass over one chunk of tokens.
pub(crate) struct Pass<'a> {
    pub(crate) model: &'a Model<'a>,
    pub(crate) rec: &'a mut dyn Recorder,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) span: Span,
}

impl Pass<'_> {
    /// Takes `ids` in, one memory a layer; appends the wanted logits to `logits`.
    pub(crate) fn run<'m>(
        &mut self,
        trunk: &Trunk,
        ids: &[u32],
        memories: impl Iterator<Item = Memory<'m>>,
        (want, logits): (Want, &mut Vec<f32>),
    ) -> Result<(), EngineError> {
        let spec = self.model.spec;
        let mut x = self.rec.buffer(self.span.n * spec.hidden);
        self.rec.embed(&trunk.embedding, ids, spec.multipliers.embedding, &mut x);
        self.report_hidden(0, &x)?;
        for (index, ((spec, weights), memory)) in spec.layers.iter().zip(&trunk.layers).zip(memories).enumerate() {
            let next = self.model.spec.layers.get(index + 1).zip(trunk.layers.get(index + 1));
            let layer = Layer { index, spec, weights, next };
            self.mix(layer, memory, &mut x)?;
            self.feed(layer, &mut x)?;
            self.report_hidden(index + 1, &x)?;
        }
        let first = match want {
            Want::Nothing => return Ok(()),
            Want::Last => self.span.n - 1,
            Want::All => 0,
        };
        for start in (first..self.span.n).step_by(HEAD_TOKENS) {
            self.head(trunk, &x, Span { start, n: HEAD_TOKENS.min(self.span.n - start) }, logits)?;
        }
        Ok(())
    }

    /// Logits of some rows of the residual stream.
    fn head(&mut self, trunk: &Trunk, x: &Buffer, rows: Span, logits: &mut Vec<f32>) -> Result<(), EngineError> {
        let spec = self.model.spec;
        let mut normed = self.rec.buffer(rows.n * spec.hidden);
        self.rec.norm(&trunk.final_norm, x, rows, &mut normed);
        let mut out = self.rec.buffer(rows.n * spec.vocab);
        let (weight, bias) = trunk.head.as_ref().map_or((&trunk.embedding, None), |h| (&h.weight, h.bias.as_ref()));
        self.rec.linear(weight, bias, &normed, rows.n, &mut out);
        if spec.multipliers.logits_divisor != 1.0 {
            self.rec.scale(1.0 / spec.multipliers.logits_divisor, &mut out);
        }
        let at = logits.len();
        logits.resize(at + rows.n * spec.vocab, 0.0);
        self.rec.read(&out, &mut logits[at..])
    }

    /// The first half of a layer: `x += mixer(norm(x))`.
    pub(crate) fn mix(&mut self, layer: Layer<'_>, memory: Memory<'_>, x: &mut Buffer) -> Result<(), EngineError> {
        let normed = self.normed(&layer.weights.mixer_norm, x);
        let branch = match (&layer.spec.mixer, &layer.weights.mixer) {
            (Mixer::Gqa(gqa), MixerWeights::Gqa(w)) => self.gqa(gqa, w, &normed, memory),
            (Mixer::Mla(mla), MixerWeights::Mla(w)) => self.mla(mla, w, &normed, memory),
            (Mixer::DeltaNet(delta), MixerWeights::Delta(w)) => self.delta(delta, w, &normed, memory),
            (Mixer::ShortConv { kernel, .. }, MixerWeights::Conv(w)) => self.conv(*kernel, w, &normed, memory),
            _ => unreachable!("weights are loaded by the spec"),
        }?;
        self.rec.add(&branch, self.model.spec.multipliers.residual, x);
        Ok(())
    }

    /// The part of a mixer that looks back: on all tokens where they are one text's, else on each text's by itself.
    /// `inputs` and the output have so many values a token.
    fn look_back<const N: usize>(
        &mut self,
        memory: Memory<'_>,
        inputs: [(&Buffer, usize); N],
        width: usize,
        core: impl Fn(&mut dyn Recorder, Span, [&Buffer; N], (&mut State, &mut Buffer)),
    ) -> Result<Buffer, EngineError> {
        let mut out = self.rec.buffer(self.span.n * width);
        let states = match memory {
            Memory::One(state) => {
                core(self.rec, self.span, inputs.map(|(x, _)| x), (state, &mut out));
                return Ok(out);
            }
            Memory::Each(states) => states,
        };
        let mut values = inputs.map(|(_, width)| vec![0.0; self.span.n * width]);
        for ((x, _), values) in inputs.iter().zip(&mut values) {
            self.rec.read(x, values)?;
        }
        let mut rows = inputs.map(|(_, width)| self.rec.buffer(width));
        let (mut row, mut all) = (self.rec.buffer(width), vec![0.0; self.span.n * width]);
        let span = Span { start: self.span.start, n: 1 };
        for (i, (state, out)) in states.iter_mut().zip(all.chunks_exact_mut(width)).enumerate() {
            for (((_, width), values), row) in inputs.iter().zip(&values).zip(&mut rows) {
                self.rec.write(&values[i * width..(i + 1) * width], row);
            }
            core(self.rec, span, rows.each_ref(), (state, &mut row));
            self.rec.read(&row, out)?;
        }
        self.rec.write(&all, &mut out);
        Ok(out)
    }

    /// The second half of a layer: `x += mlp(norm(x))`.
    pub(crate) fn feed(&mut self, layer: Layer<'_>, x: &mut Buffer) -> Result<(), EngineError> {
        let normed = self.normed(&layer.weights.mlp_norm, x);
        let branch = match (&layer.spec.mlp, &layer.weights.mlp) {
            (Mlp::Dense { act, .. }, MlpWeights::Dense(mlp)) => self.mlp(mlp, *act, &normed),
            (Mlp::Moe(moe), MlpWeights::Moe { .. }) => self.moe(layer, moe, &normed)?,
            _ => unreachable!("weights are loaded by the spec"),
        };
        self.rec.add(&branch, self.model.spec.multipliers.residual, x);
        Ok(())
    }

    /// What [`Pass::feed`] reports of the experts' input and the router's choice, without running the experts.
    pub(crate) fn look(&mut self, layer: Layer<'_>, x: &Buffer) -> Result<(), EngineError> {
        if let (Mlp::Moe(moe), MlpWeights::Moe { router, .. }) = (&layer.spec.mlp, &layer.weights.mlp) {
            let normed = self.normed(&layer.weights.mlp_norm, x);
            self.choose(layer.index, moe, router, &normed)?;
        }
        Ok(())
    }

    fn normed(&mut self, norm: &Norm, x: &Buffer) -> Buffer {
        let mut normed = self.rec.buffer(self.span.n * self.model.spec.hidden);
        self.rec.norm(norm, x, Span { start: 0, n: self.span.n }, &mut normed);
        normed
    }

    fn linear(&mut self, linear: &Linear, x: &Buffer) -> Buffer {
        let mut out = self.rec.buffer(self.span.n * linear.weight.rows);
        self.rec.linear(&linear.weight, linear.bias.as_ref(), x, self.span.n, &mut out);
        out
    }

    fn gqa(&mut self, spec: &Gqa, weights: &GqaWeights, x: &Buffer, memory: Memory<'_>) -> Result<Buffer, EngineError> {
        let (q, k, v) = (self.linear(&weights.q, x), self.linear(&weights.k, x), self.linear(&weights.v, x));
        let inputs = [(&q, weights.q.weight.rows), (&k, weights.k.weight.rows), (&v, weights.v.weight.rows)];
        let heads =
            self.look_back(memory, inputs, spec.heads * spec.head_dim, |rec, span, [q, k, v], (state, out)| {
                rec.gqa(GqaCall { spec, weights, span }, Qkv { q, k, v }, state, out);
            })?;
        Ok(self.linear(&weights.o, &heads))
    }

    fn mla(&mut self, spec: &Mla, weights: &MlaWeights, x: &Buffer, memory: Memory<'_>) -> Result<Buffer, EngineError> {
        let (q, q_width) = match &weights.query {
            MlaQuery::Direct(q) => (self.linear(q, x), q.weight.rows),
            MlaQuery::Latent { a, norm, b } => {
                let latent = self.linear(a, x);
                let mut normed = self.rec.buffer(self.span.n * norm.cols);
                self.rec.norm(norm, &latent, Span { start: 0, n: self.span.n }, &mut normed);
                (self.linear(b, &normed), b.weight.rows)
            }
        };
        let kv = self.linear(&weights.kv_a, x);
        let inputs = [(&q, q_width), (&kv, weights.kv_a.weight.rows)];
        let heads = self.look_back(memory, inputs, spec.heads * spec.v_dim, |rec, span, [q, kv], (state, out)| {
            rec.mla(MlaCall { spec, weights, span }, MlaInputs { q, kv }, state, out);
        })?;
        Ok(self.linear(&weights.o, &heads))
    }

    fn delta(
        &mut self,
        spec: &DeltaNet,
        weights: &DeltaWeights,
        x: &Buffer,
        memory: Memory<'_>,
    ) -> Result<Buffer, EngineError> {
        let (qkv, z) = (self.linear(&weights.qkv, x), self.linear(&weights.z, x));
        let (b, a) = (self.linear(&weights.b, x), self.linear(&weights.a, x));
        let rows = |linear: &Linear| linear.weight.rows;
        let inputs =
            [(&qkv, rows(&weights.qkv)), (&z, rows(&weights.z)), (&b, rows(&weights.b)), (&a, rows(&weights.a))];
        let width = spec.value_heads * spec.value_dim;
        let heads = self.look_back(memory, inputs, width, |rec, span, [qkv, z, b, a], (state, out)| {
            rec.delta_net(DeltaCall { spec, weights, n: span.n }, DeltaInputs { qkv, z, b, a }, state, out);
        })?;
        Ok(self.linear(&weights.out, &heads))
    }

    fn conv(
        &mut self,
        kernel: usize,
        weights: &ConvWeights,
        x: &Buffer,
        memory: Memory<'_>,
    ) -> Result<Buffer, EngineError> {
        let hidden = self.model.spec.hidden;
        let bcx = self.linear(&weights.input, x);
        let inputs = [(&bcx, weights.input.weight.rows)];
        let mixed = self.look_back(memory, inputs, hidden, |rec, span, [bcx], (state, out)| {
            rec.short_conv(ConvCall { weights, hidden, kernel, n: span.n }, bcx, state, out);
        })?;
        Ok(self.linear(&weights.output, &mixed))
    }

    fn mlp(&mut self, mlp: &GatedMlp, act: smoe_model::spec::Activation, x: &Buffer) -> Buffer {
        let (mut gate, up) = (self.linear(&mlp.gate, x), self.linear(&mlp.up, x));
        self.rec.activate(act, &up, &mut gate);
        self.linear(&mlp.down, &gate)
    }

    /// Routes the tokens `x` (after the norm) and reports what was asked for.
    fn choose(&mut self, i: usize, moe: &MoeSpec, router: &RouterWeights, x: &Buffer) -> Result<Choice, EngineError> {
        let n = self.span.n;
        let (at, wants) = (self.at(i), self.observer.wants());
        if wants.moe_input {
            let values = self.values(x, n * self.model.spec.hidden)?;
            self.observer.moe_input(at, &values);
        }
        let logits = self.linear(&router.logits, x);
        let choice = match self.model.random_routing {
            None => self.rec.route(moe, router, &logits, n),
            Some(seed) => self.rec.choose(random_routes(moe, seed, i, self.span)),
        };
        if wants.router {
            let routes = self.rec.read_choice(&choice)?;
            self.observer.router(at, &routes);
        }
        Ok(choice)
    }

    fn moe(&mut self, layer: Layer<'_>, moe: &MoeSpec, x: &Buffer) -> Result<Buffer, EngineError> {
        let MlpWeights::Moe { router, shared, shared_gate } = &layer.weights.mlp else {
            unreachable!("weights are loaded by the spec")
        };
        let (i, hidden, n) = (layer.index, self.model.spec.hidden, self.span.n);
        let choice = self.choose(i, moe, router, x)?;
        // Before the shared expert: what must be read is read meanwhile.
        self.rec.expect(self.model.source, i, &choice);
        self.guess_next(layer, x);
        let shared = match shared {
            None => None,
            Some(shared) => {
                let mut y = self.mlp(shared, moe.act, x);
                if let Some(gate) = shared_gate {
                    let logits = self.linear(gate, x);
                    self.rec.gate_rows(&logits, n, &mut y);
                }
                Some(y)
            }
        };
        let (at, wants) = (self.at(i), self.observer.wants());
        let mut out = self.rec.buffer(n * hidden);
        let mut tap = Tap { at, observer: self.observer };
        let call = ExpertsCall {
            layer: i,
            moe,
            hidden,
            n,
            source: self.model.source,
            tap: wants.expert_hidden.then_some(&mut tap as &mut dyn ExpertTap),
        };
        self.rec.experts(call, &choice, x, &mut out)?;
        if let Some(y) = shared {
            self.rec.add(&y, 1.0, &mut out);
        }
        Ok(out)
    }

    /// What the next layer's router would choose for this layer's input: a guess at what to read ahead.
    fn guess_next(&mut self, layer: Layer<'_>, x: &Buffer) {
        let source = self.model.source;
        let Some((LayerSpec { mlp: Mlp::Moe(moe), .. }, LayerWeights { mlp: MlpWeights::Moe { router, .. }, .. })) =
            layer.next.filter(|_| source.wants_guesses())
        else {
            return;
        };
        let logits = self.linear(&router.logits, x);
        let choice = self.rec.route(moe, router, &logits, self.span.n);
        self.rec.guess(source, layer.index + 1, &choice);
    }

    fn at(&self, layer: usize) -> At {
        At { layer, start: self.span.start }
    }

    fn report_hidden(&mut self, entry: usize, x: &Buffer) -> Result<(), EngineError> {
        if self.observer.wants().hidden {
            let values = self.values(x, self.span.n * self.model.spec.hidden)?;
            self.observer.hidden(self.at(entry), &values);
        }
        Ok(())
    }

    fn values(&mut self, x: &Buffer, len: usize) -> Result<Vec<f32>, EngineError> {
        let mut values = vec![0.0; len];
        self.rec.read(x, &mut values)?;
        Ok(values)
    }
}

/// Hands an expert's hidden activation to the observer.
struct Tap<'a> {
    at: At,
    observer: &'a mut dyn Observer,
}

impl ExpertTap for Tap<'_> {
    fn expert_hidden(&mut self, expert: u32, rows: &[u32], g: &[f32]) {
        self.observer.expert_hidden(self.at, expert, rows, g);
    }
}
