//! Plans: released sizes from configs alone, exact sizes from headers, the same from a vault.

use smoe_codec::Codec;
use smoe_quantize::Control;
use smoe_quantize::convert::{QuantizeOptions, quantize};
use smoe_quantize::plan::{PlanOptions, plan};
use smoe_quantize::synth::{self, Overrides, SynthOptions};
use std::path::Path;

fn options(codec: Codec) -> PlanOptions {
    PlanOptions { codec, context: 4096, drive_gbps: 7.4, ram: Some(64 << 30), ignore_config: Vec::new() }
}

#[test]
fn a_large_config_gives_the_published_figures() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("shapes/qwen3-235b-a22b.json");
    let report = plan(&config, &options(Codec::Q4)).expect("planned");
    assert_eq!((report.parameters, report.active_parameters), (235_093_634_560, 22_190_763_520));
    assert_eq!(
        (report.expert_bytes.bf16, report.expert_bytes.q4, report.expert_bytes.q2),
        (37_748_736, 10_027_008, 5_308_416)
    );
    let per_second = report.experts_per_second;
    let rounded = [per_second.bf16, per_second.q4, per_second.q2].map(f64::round);
    assert_eq!(rounded, [196.0, 738.0, 1394.0]);
    assert_eq!(report.token_cycle_bytes, 94 * 8 * 10_027_008);
    assert_eq!(report.memory_floor_bytes, report.memory_floor.total());
    assert!(report.tokens_per_second.warm.is_some_and(|warm| warm > report.tokens_per_second.cold));
    assert!(report.notes.iter().any(|n| n.contains("no tensor confirmed")), "{:?}", report.notes);
    assert!(!report.vault_bytes_exact);
}

#[test]
fn headers_give_the_vaults_exact_length() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for (shape, codec) in [("tiny", Codec::Q4), ("tiny-odd", Codec::Q2)] {
        let source = folder.path().join(shape);
        let synth = SynthOptions { shape: shape.into(), overrides: Overrides::default(), seed: 5, force: false };
        let made = synth::checkpoint(&source, &synth, &Control::silent()).expect("a synthetic checkpoint");
        let from_headers = plan(&source, &options(codec)).expect("planned");
        assert_eq!(from_headers.parameters, made.parameters);
        let vault = folder.path().join(format!("{shape}.vault"));
        let report = quantize(&source, &vault, &QuantizeOptions::new(codec), &Control::silent()).expect("converted");
        assert_eq!((from_headers.vault_bytes, from_headers.vault_bytes_exact), (report.bytes, true));
        let from_vault = plan(&vault, &options(codec)).expect("planned");
        assert_eq!((from_vault.vault_bytes, from_vault.trunk_bytes), (report.bytes, report.trunk_bytes));
        assert_eq!(from_vault.memory_floor_bytes, from_headers.memory_floor_bytes);
        assert_eq!(from_vault.tokens_per_second.warm, None, "it fits into 64 GiB");
    }
}
