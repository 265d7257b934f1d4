//! Every refusal of a checkpoint, with its exact message: a golden folder is copied, broken in one place, and opened.

mod forge;

use forge::{Model, framed, golden, open, safetensors, shard};
use serde_json::{Value, json};
use smoe_model::{Checkpoint, OpenOptions};
use std::fs;
use std::path::Path;

/// Writes with `write`, opens, and compares the refusal with `expected`.
fn check(write: impl Fn(&Model, &Path), expected: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    write(&golden(), folder.path());
    let refusal = open(folder.path()).expect_err(expected).to_string();
    assert_eq!(refusal, expected);
}

const GATE: &str = "model.layers.1.mlp.experts.3.gate_proj.weight";

#[test]
fn the_copy_itself_opens_whole_and_in_shards() {
    let folder = tempfile::tempdir().expect("a folder");
    golden().write(folder.path());
    let whole = open(folder.path()).expect("whole").report().used;
    let folder = tempfile::tempdir().expect("a folder");
    golden().write_shards(folder.path(), 3);
    assert_eq!(open(folder.path()).expect("shards").report().used, whole);
    fs::remove_file(folder.path().join("model.safetensors.index.json")).expect("remove");
    assert_eq!(open(folder.path()).expect("a complete series needs no index").report().used, whole);
}

#[test]
fn files_that_do_not_belong_together() {
    check(
        |m, f| {
            m.write_shards(f, 3);
            fs::remove_file(f.join(shard(2, 3))).expect("remove");
        },
        "model-00002-of-00003.safetensors: missing; model.safetensors.index.json puts tensor `model.embed_tokens.weight` into it: the index does not match the files, download model-00002-of-00003.safetensors",
    );
    check(
        |m, f| {
            m.write_shards(f, 3);
            fs::remove_file(f.join("model.safetensors.index.json")).expect("remove");
            fs::remove_file(f.join(shard(2, 3))).expect("remove");
        },
        "model-00002-of-00003.safetensors: missing: 2 of the 3 shards of its series are here; download it",
    );
    check(
        |m, f| {
            m.write_shards(f, 3);
            fs::remove_file(f.join("model.safetensors.index.json")).expect("remove");
            fs::copy(f.join(shard(1, 3)), f.join(shard(4, 3))).expect("copy");
        },
        "model-00004-of-00003.safetensors: shard 4 of a series of 3; remove it, or download again",
    );
    check(
        |m, f| {
            m.write_shards(f, 3);
            fs::copy(f.join(shard(1, 3)), f.join(shard(4, 3))).expect("copy");
        },
        "model-00004-of-00003.safetensors: shard 4 of a series of 3; remove it, or download again",
    );
    check(
        |m, f| {
            m.write_shards(f, 1);
            let mut less = m.tensors.clone();
            less.remove(GATE);
            fs::write(f.join(shard(1, 1)), safetensors(&less)).expect("shard");
        },
        "model.safetensors.index.json: puts tensor `model.layers.1.mlp.experts.3.gate_proj.weight` into \
         model-00001-of-00001.safetensors, which does not hold it; the index does not match the files",
    );
    check(
        |m, f| {
            m.write_shards(f, 2);
            fs::copy(f.join(shard(1, 2)), f.join(shard(2, 2))).expect("copy");
        },
        "model-00002-of-00002.safetensors: `lm_head.weight`: also in model-00001-of-00002.safetensors; one of the files does not belong here",
    );
}

#[test]
fn files_that_are_not_what_they_seem() {
    const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 361768\n";
    check(
        |m, f| {
            m.write(f);
            fs::write(f.join("model.safetensors"), POINTER).expect("pointer");
        },
        "model.safetensors: a Git-LFS pointer in place of the file, which has 361768 B; run `git lfs pull` in the folder",
    );
    check(
        |m, f| {
            m.write(f);
            let bytes = fs::read(f.join("model.safetensors")).expect("weights");
            fs::write(f.join("model.safetensors"), &bytes[..bytes.len() - 1]).expect("cut");
        },
        &{
            let len = safetensors(&golden().tensors).len();
            let last = golden().tensors.keys().last().expect("a tensor").clone();
            format!(
                "model.safetensors: `{last}`: expected at least {len} B in the file, found {} B; download this shard again",
                len - 1
            )
        },
    );
    check(
        |m, f| {
            m.write(f);
            fs::write(f.join("model.safetensors"), [0xFF; 64]).expect("noise");
        },
        "model.safetensors: not a safetensors file: its header would be 18446744073709551615 B, the limit is 100000000 B; download it again",
    );
    check(
        |m, f| {
            m.write(f);
            let twice = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
            fs::write(f.join("model.safetensors"), framed(twice, &[0, 0])).expect("twice");
        },
        "model.safetensors: `a`: occurs twice in the header; the file is damaged",
    );
    check(
        |m, f| {
            m.write(f);
            let hole = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
            fs::write(f.join("model.safetensors"), framed(hole, &[0, 0])).expect("hole");
        },
        "model.safetensors: `a`: leaves a hole before it: expected offset 61, found 62; the header is damaged",
    );
}

#[test]
fn tensors_that_contradict_the_config() {
    let wrong_dtype = |m: &Model, f: &Path| {
        let mut m = m.clone();
        let t = m.tensors.get_mut(GATE).expect("there");
        t.0 = "I16".into();
        m.write(f);
    };
    check(
        wrong_dtype,
        &format!("model.safetensors: `{GATE}`: dtype I16 is not supported; expected BF16, F16, F32 or F8_E4M3"),
    );
    check(
        |m, f| {
            let mut m = m.clone();
            m.tensors
                .insert("model.layers.0.mlp.shared_expert.up_proj.weight".into(), ("BF16".into(), vec![1], vec![0; 2]));
            m.write(f);
        },
        "model.safetensors: `model.layers.0.mlp.shared_expert.up_proj.weight`: no rule of family qwen3_moe claims it; layer 0 of it has `input_layernorm.weight`, `post_attention_layernorm.weight`, `self_attn.q_proj.weight`, `self_attn.k_proj.weight`, `self_attn.v_proj.weight`, `self_attn.o_proj.weight`, `self_attn.q_norm.weight`, `self_attn.k_norm.weight`, `mlp.gate.weight`, `mlp.experts.{e}.gate_proj.weight`, `mlp.experts.gate_up_proj`",
    );
    check(
        |m, f| {
            let mut m = m.clone();
            let t = m.tensors.get_mut(GATE).expect("there");
            t.1 = vec![96, 40];
            m.write(f);
        },
        &format!(
            "model.safetensors: `{GATE}`: shape [96, 40], config.json makes it [40, 96]; config and weights do not belong together"
        ),
    );
    check(
        |m, f| {
            let mut m = m.clone();
            let t = m.tensors.remove("model.layers.1.self_attn.q_norm.weight").expect("there");
            m.tensors.insert("model.layers.1.self_attn.query_norm.weight".into(), t);
            m.write(f);
        },
        "model.safetensors: `model.layers.1.self_attn.q_norm.weight`: in no file, expected [16]; there is \
         `model.layers.1.self_attn.k_norm.weight`, `model.layers.1.self_attn.query_norm.weight`; download what is \
         missing, or correct config.json",
    );
}

#[test]
fn configs_that_are_not_understood() {
    let with = |key: &'static str, value: Value| {
        move |m: &Model, f: &Path| {
            let mut m = m.clone();
            m.config[key] = value.clone();
            m.write(f);
        }
    };
    check(
        with("model_type", json!("llama4")),
        "config.json: `model_type`: family llama4 is not read: its chunked attention and its scaling of expert inputs are not implemented",
    );
    check(
        with("model_type", json!("nonsense")),
        "config.json: `model_type`: family nonsense is not read: not a family that is known",
    );
    check(
        with("hyper_gate", json!(0.5)),
        "config.json: `hyper_gate`: not known in qwen3_moe, and it could change results",
    );
    check(
        with("hidden_act", json!("gelu")),
        "config.json: `hidden_act`: \"gelu\" is not supported in qwen3_moe; expected \"silu\"",
    );
    check(
        with("rope_theta", Value::Null),
        "config.json: `rope_theta`: missing, and no `rope_parameters.rope_theta` either",
    );
    check(
        with("rope_parameters", json!({"rope_theta": 5.0})),
        "config.json: `rope_parameters.rope_theta`: is 5, and `rope_theta` is 1000000; keep the right one",
    );
    check(
        with("num_experts_per_tok", json!(6)),
        "config.json: `num_experts_per_tok`: chooses 6 of the 5 experts of `num_experts`",
    );
    check(
        with("hidden_size", json!(-1)),
        "config.json: `hidden_size`: expected a whole number from 0 to 2^28, found -1",
    );
    let folder = tempfile::tempdir().expect("a folder");
    with("hyper_gate", json!(0.5))(&golden(), folder.path());
    let ignore = OpenOptions { ignore_config: vec!["hyper_gate".into()] };
    Checkpoint::open(folder.path(), &ignore).expect("the way past an unknown key");
}

/// Cut at every length of the header, and with every byte of it changed: an error or the same model, never a panic.
#[test]
fn a_damaged_header_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = golden();
    model.write(folder.path());
    let bytes = safetensors(&model.tensors);
    let header_end = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let path = folder.path().join("model.safetensors");
    for cut in (0..header_end).step_by(7) {
        fs::write(&path, &bytes[..cut]).expect("cut");
        open(folder.path()).expect_err("a cut file");
    }
    for at in (0..header_end).step_by(5) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&path, &changed).expect("changed");
        let _ = open(folder.path());
    }
}
