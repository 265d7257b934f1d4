//! Specs that cannot be computed are refused by name when a model is opened; nothing panics.

mod synthetic;

use smoe_engine::{Engine, EngineError, EngineOptions};
use smoe_model::spec::*;
use synthetic::{Synthetic, gqa, model, moe};

/// The refusal of a spec over the tensors of the usual model.
fn refusal(spec: ModelSpec, options: &EngineOptions) -> String {
    let tensors = Synthetic::new(usual());
    let source = tensors.source();
    match Engine::new(&tensors.with_spec(spec), source, options) {
        Ok(_) => "accepted".into(),
        Err(error) => error.to_string(),
    }
}

fn usual() -> ModelSpec {
    model(vec![(Mixer::Gqa(gqa()), Mlp::Moe(moe()))])
}

/// The usual model with a change of its attention.
fn attention(change: impl FnOnce(&mut Gqa)) -> ModelSpec {
    let mut spec = usual();
    let Mixer::Gqa(gqa) = &mut spec.layers[0].mixer else { unreachable!("the usual mixer") };
    change(gqa);
    spec
}

/// The usual model with a change of its experts.
fn experts(change: impl FnOnce(&mut MoeSpec)) -> ModelSpec {
    let mut spec = usual();
    let Mlp::Moe(moe) = &mut spec.layers[0].mlp else { unreachable!("the usual mlp") };
    change(moe);
    spec
}

#[test]
fn absurd_specs_are_refused() {
    let groups = |count, keep| Some(ExpertGroups { count, keep, scored_by: 1 });
    for (spec, want) in [
        (ModelSpec { hidden: 0, ..usual() }, "model: hidden 0 is not within"),
        (ModelSpec { vocab: usize::MAX, ..usual() }, "model: vocab 18446744073709551615 is not within"),
        (ModelSpec { layers: vec![], ..usual() }, "0 layers"),
        (attention(|g| g.heads = 3), "layer 0: 3 query heads over 2 key heads"),
        (attention(|g| g.kv_heads = 0), "layer 0: kv_heads 0 is not within"),
        (attention(|g| g.head_dim = 1 << 23), "layer 0: query width"),
        (attention(|g| g.head_dim = 6), "layer 0: rotary width 8 with 4 angles in heads of 6"),
        (attention(|g| g.rope.as_mut().expect("a rope").inv_freq.clear()), "rotary width 8 with 0 angles"),
        (attention(|g| g.window = Some(0)), "layer 0: window 0 is not within"),
        (experts(|m| m.top_k = 7), "layer 0: 7 experts chosen of 6"),
        (experts(|m| m.top_k = 0), "layer 0: top_k 0 is not within"),
        (experts(|m| m.router.groups = groups(4, 1)), "layer 0: 1 of 4 groups over 6 experts"),
        (experts(|m| m.router.groups = groups(3, 1)), "layer 0: 3 experts chosen of 2 in the kept groups"),
        (attention(|g| g.heads = 8), "Layer(0, Q): expected [96, 40], found [48, 40]"),
        (experts(|m| m.experts = 7), "Layer(0, Router): expected [7, 40], found [6, 40]"),
    ] {
        let found = refusal(spec, &EngineOptions::default());
        assert!(found.contains(want), "expected {want}, found {found}");
    }
    let mut untied = usual();
    untied.head = Head::Untied { bias: false };
    assert!(refusal(untied, &EngineOptions::default()).contains("no tensor plays Head"));
}

#[test]
fn a_context_beyond_the_rotary_table_is_refused() {
    let spec = attention(|g| g.rope.as_mut().expect("a rope").limit = Some(64));
    let engine = |context| {
        let tensors = Synthetic::new(spec.clone());
        Engine::new(&tensors, tensors.source(), &EngineOptions { context, ..EngineOptions::default() })
    };
    assert_eq!(engine(None).expect("the limit is taken").context(), 64);
    assert_eq!(engine(Some(64)).expect("within the limit").context(), 64);
    assert!(matches!(engine(Some(65)), Err(EngineError::ContextLimit { wanted: 65, limit: 64 })));
    assert!(refusal(usual(), &EngineOptions { context: Some(0), ..EngineOptions::default() }).contains("context of 0"));
}

#[test]
fn memory_is_estimated_by_purpose() {
    let engine = Synthetic::new(usual()).engine(1);
    let (short, long) = (engine.memory_estimate(10), engine.memory_estimate(20));
    assert_eq!((short.cache, long.cache), (10 * 2 * 24 * 4, 20 * 2 * 24 * 4));
    // bf16 would do for no random weight: the source may hold f32, the estimate counts what checkpoints mostly hold.
    assert_eq!(short.experts, 2 * 3 * 6 * 20 * 40);
    assert_eq!(engine.memory_estimate(usize::MAX).total(), u64::MAX);
    assert!(short.trunk > 61 * 40 * 4 && short.total() > short.trunk + short.experts);
}
