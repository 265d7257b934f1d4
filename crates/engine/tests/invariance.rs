//! The same bits whatever the chunks, the threads and the other sessions: every mixer, router and norm.

mod synthetic;

use smoe_engine::observer::{At, Observer, Wants};
use smoe_engine::{
    Control, EngineError, GenerateParams, Layerwise, Recording, SamplerParams, Silent, Stop, Want, generate,
};
use smoe_model::spec::*;
use smoe_model::store::TensorStore;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use synthetic::{Synthetic, gqa, model, moe, rope};

fn mla(q_rank: Option<usize>) -> Mixer {
    Mixer::Mla(Mla {
        heads: 3,
        q_rank,
        kv_rank: 24,
        nope_dim: 10,
        rope_dim: 6,
        v_dim: 14,
        rope: rope(6, RopePairing::Neighbours),
        scale: 0.25,
        latent_norm_eps: 1e-6,
        bias: false,
    })
}

fn dense() -> Mlp {
    Mlp::Dense { width: 50, act: Activation::SwiGlu }
}

fn delta() -> Mixer {
    Mixer::DeltaNet(DeltaNet {
        key_heads: 2,
        value_heads: 4,
        key_dim: 8,
        value_dim: 10,
        conv_kernel: 4,
        norm_eps: 1e-6,
    })
}

/// Every mechanism once at least.
fn models() -> Vec<(&'static str, ModelSpec)> {
    let usual = || (Mixer::Gqa(gqa()), Mlp::Moe(moe()));
    let mut gated = model(vec![
        (delta(), Mlp::Moe(MoeSpec { shared: Some(SharedExpert { width: 24, gated: true }), ..moe() })),
        (Mixer::Gqa(Gqa { output_gate: true, ..gqa() }), Mlp::Moe(moe())),
    ]);
    gated.norm.kind = NormKind::RmsUnitOffset;
    let sinks = Gqa { sinks: true, window: Some(5), qkv_bias: true, o_bias: true, qk_norm: QkNorm::Absent, ..gqa() };
    let mut clamped =
        MoeSpec { act: Activation::ClampedSwiGlu { limit: 7.0, alpha: 1.702 }, expert_bias: true, ..moe() };
    clamped.router.score = RouterScore::SoftmaxOfChosen;
    clamped.router.normalise = None;
    clamped.router.logit_bias = true;
    let mut sigmoid = MoeSpec { shared: Some(SharedExpert { width: 24, gated: false }), ..moe() };
    sigmoid.router = RouterSpec {
        score: RouterScore::Sigmoid,
        selection_bias: true,
        groups: Some(ExpertGroups { count: 3, keep: 2, scored_by: 2 }),
        scale: 2.5,
        ..sigmoid.router
    };
    let mut sparse = moe();
    sparse.top_k = 2;
    sparse.router.score = RouterScore::SparseMixer { jitter: 0.2 };
    sparse.router.normalise = None;
    let mut layer_norm = model(vec![(Mixer::Gqa(Gqa { qk_norm: QkNorm::FullWidth, ..gqa() }), Mlp::Moe(sparse))]);
    layer_norm.norm.kind = NormKind::LayerNorm;
    layer_norm.head = Head::Untied { bias: true };
    let mut scaled = model(vec![
        (Mixer::ShortConv { kernel: 3, bias: true }, dense()),
        (Mixer::Gqa(Gqa { qk_norm: QkNorm::HeadAfterRope, clip_qkv: Some(0.7), ..gqa() }), Mlp::Moe(moe())),
    ]);
    scaled.multipliers = Multipliers { embedding: 12.0, residual: 0.22, logits_divisor: 6.0 };
    vec![
        ("usual", model(vec![usual(), usual()])),
        ("latent", model(vec![(mla(Some(16)), dense()), (mla(None), Mlp::Moe(sigmoid))])),
        ("delta and gate", gated),
        ("sinks and windows", model(vec![(Mixer::Gqa(sinks), Mlp::Moe(clamped)), usual()])),
        ("layer norm and sparsemixer", layer_norm),
        ("short convolution and multipliers", scaled),
    ]
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * i * 7 + 3 * i) % 61).collect()
}

/// 270 tokens: beyond two chunks of the caches.
#[test]
fn chunks_and_threads_do_not_change_a_bit() {
    for (name, spec) in models() {
        let model = Synthetic::new(spec);
        let ids = prompt(270);
        let mut want: Option<(Vec<u32>, Recording)> = None;
        for threads in [1, 3] {
            let engine = model.engine(threads);
            for chunk in [1, 7, 64, 1000] {
                let (mut session, mut recording) = (engine.session(), Recording::default());
                session.chunk = chunk;
                let logits = engine.forward(&mut session, &ids, &mut recording, Want::All).expect("a forward pass");
                assert!(logits.iter().all(|l| l.is_finite()), "{name}: a logit is not finite");
                let bits: Vec<u32> = logits.iter().map(|l| l.to_bits()).collect();
                let (want_bits, want_recording) = want.get_or_insert_with(|| (bits.clone(), recording.clone()));
                assert!(*want_bits == bits, "{name}: logits differ at {threads} threads, chunks of {chunk}");
                assert!(*want_recording == recording, "{name}: layers differ at {threads} threads, chunks of {chunk}");
            }
        }
    }
}

/// Two texts, one layer at a time: what a calibration runs is the forward pass itself.
#[test]
fn one_layer_at_a_time_changes_no_bit() {
    for (name, spec) in models() {
        let model = Synthetic::new(ModelSpec { context: 1000, ..spec });
        let (engine, source) = (model.engine(2), model.source());
        let layerwise = Layerwise::new(&model, 3).expect("a sound spec");
        for ids in [prompt(600), prompt(31)] {
            let (mut want, mut inputs) = (Recording::default(), Capture::default());
            for observer in [&mut want as &mut dyn Observer, &mut inputs] {
                let mut session = engine.session();
                session.chunk = 1000;
                engine.forward(&mut session, &ids, observer, Want::Nothing).expect("a forward pass");
            }
            let (mut looked, mut fed, mut seen) = (Recording::default(), Recording::default(), Capture::default());
            let mut x = Vec::new();
            let keep = |part: &[f32]| {
                x.extend_from_slice(part);
                Ok::<_, EngineError>(())
            };
            layerwise.embed(&ids, keep).expect("embedded");
            for i in 0..model.spec().layers.len() {
                assert!(x == want.hidden[i], "{name}: what enters layer {i}");
                let layer = layerwise.layer(i).expect("its tensors");
                layer.mix(&mut x).expect("mixed");
                let before = x.clone();
                layer.look(&mut x, &mut looked).expect("looked at");
                layer.look(&mut x, &mut seen).expect("looked at");
                assert!(x == before, "{name}: looking changes nothing");
                layer.feed(&mut x, &*source, &mut fed).expect("fed");
            }
            assert!(x == want.hidden[model.spec().layers.len()], "{name}: what leaves the last layer");
            assert!(looked.routes == want.routes && fed.routes == want.routes, "{name}: router choices");
            assert!(seen.inputs == inputs.inputs && seen.rows.is_empty(), "{name}: inputs of the experts");
        }
        assert!(layerwise.embed(&[61], |_| -> Result<(), EngineError> { Ok(()) }).is_err());
    }
}

#[test]
fn sessions_do_not_see_each_other() {
    for (name, spec) in models() {
        let engine = Synthetic::new(spec).engine(2);
        let ids = prompt(20);
        let all = engine.forward(&mut engine.session(), &ids, &mut Silent, Want::All).expect("a forward pass");
        let (mut a, mut b) = (engine.session(), engine.session());
        for (i, row) in all.chunks_exact(61).enumerate() {
            let step = engine.forward(&mut a, &ids[i..=i], &mut Silent, Want::Last).expect("a step");
            assert_eq!(step, row, "{name}: token {i}");
            engine.forward(&mut b, &[(i as u32 * 5) % 61], &mut Silent, Want::Nothing).expect("another's step");
        }
    }
}

#[test]
fn a_context_is_a_hard_end_with_a_reason() {
    let (_, spec) = models().remove(0);
    let engine = Synthetic::new(ModelSpec { context: 12, ..spec }).engine(1);
    let run = |prompt: &[u32], max_tokens, cancelled| {
        let params = GenerateParams { max_tokens, sampler: SamplerParams::default(), ignore_eos: true };
        let cancel = AtomicBool::new(cancelled);
        let control = Control { on_token: &mut |_| ControlFlow::Continue(()), cancel: &cancel };
        generate(&engine, &mut engine.session(), prompt, &params, control)
    };
    let full = run(&prompt(10), 100, false).expect("a generation");
    // Two go into the context; the third follows from a full one.
    assert_eq!((full.ids.len(), full.stop), (3, Stop::Context));
    assert_eq!(run(&prompt(4), 3, false).expect("a generation").stop, Stop::MaxTokens);
    assert_eq!(run(&prompt(4), 3, true).expect("a generation").stop, Stop::Cancelled);
    let error = run(&prompt(13), 1, false).expect_err("no room");
    assert!(matches!(error, EngineError::ContextFull { wanted: 13, context: 12 }), "{error}");
    assert!(matches!(run(&[], 1, false), Err(EngineError::NoTokens)));
    assert!(matches!(run(&[61], 1, false), Err(EngineError::TokenId { id: 61, position: 0, vocab: 61 })));
}

/// Collects what a calibration needs.
#[derive(Default)]
struct Capture {
    inputs: Vec<f32>,
    rows: Vec<(u32, Vec<u32>)>,
    hidden: usize,
}

impl Observer for Capture {
    fn wants(&self) -> Wants {
        Wants { moe_input: true, expert_hidden: true, ..Wants::default() }
    }

    fn moe_input(&mut self, _: At, x: &[f32]) {
        self.inputs.extend_from_slice(x);
    }

    fn expert_hidden(&mut self, _: At, expert: u32, rows: &[u32], g: &[f32]) {
        self.rows.push((expert, rows.to_vec()));
        self.hidden += g.len();
    }
}

#[test]
fn an_observer_sees_inside_the_experts() {
    let (_, mut spec) = models().remove(0);
    spec.layers.truncate(1);
    let engine = Synthetic::new(spec).engine(2);
    let mut capture = Capture::default();
    engine.forward(&mut engine.session(), &prompt(9), &mut capture, Want::Nothing).expect("a forward pass");
    assert_eq!(capture.inputs.len(), 9 * 40);
    assert_eq!(capture.rows.iter().map(|(_, rows)| rows.len()).sum::<usize>(), 9 * 3);
    assert_eq!(capture.hidden, 9 * 3 * 20);
    assert!(capture.rows.is_sorted_by_key(|(expert, _)| *expert));
}

#[test]
fn texts_in_step_are_texts_by_themselves() {
    for (name, spec) in models() {
        let engine = Synthetic::new(spec).engine(2);
        let texts = [[3u32, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1], [1, 6, 1, 8, 0, 3, 3]];
        let mut batch = engine.batch(texts.len());
        let mut sessions = [engine.session(), engine.session(), engine.session()];
        for position in 0..texts[0].len() {
            let ids = texts.map(|text| text[position]);
            let together = engine.step(&mut batch, &ids).expect("a step");
            let alone = sessions
                .iter_mut()
                .zip(ids)
                .flat_map(|(session, id)| engine.forward(session, &[id], &mut Silent, Want::Last).expect("a pass"));
            let alone: Vec<f32> = alone.collect();
            assert!(together == alone, "{name}: position {position}");
        }
        assert_eq!((batch.len(), batch.texts()), (7, 3));
        assert!(engine.step(&mut batch, &[0]).is_err(), "an id for each text");
    }
}
