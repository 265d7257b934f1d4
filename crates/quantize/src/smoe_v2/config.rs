//! A config.json for the model that an architecture block describes, under the keys that its family reads.

use crate::error::{QuantizeError, Result};
use serde_json::{Value, json};
use smoe_vault::smoe_v2::{ArchBlock, Index};
use std::path::Path;

/// Positions where nobody says how many the model was made for.
const CONTEXT: u64 = 4096;

/// The config, and notes on what was not in the file.
pub(super) fn of(index: &Index, tied: bool, folder: Option<&Path>) -> Result<(Value, Vec<String>)> {
    let refused = |text: &str| Err(QuantizeError::Refused(text.to_owned()));
    let Some(arch) = &index.arch else {
        return refused("the file has no architecture block: expected one that names the model's family and heads");
    };
    if arch.activation != 0 || arch.shared_ffn != 0 {
        return refused(
            "the architecture block has a shared expert or an activation other than SiLU, which is not read",
        );
    }
    let Some(model_type) = arch.model_type() else {
        return refused("the architecture block names a family that is no text");
    };
    let dense: Vec<u32> = if arch.flags & ArchBlock::FLAG_DENSE_LAYER_0 == 0 { vec![] } else { vec![0] };
    let mut config = json!({
        "model_type": model_type,
        "hidden_size": index.header.d_model,
        "vocab_size": index.header.vocab,
        "num_hidden_layers": arch.layers,
        "num_attention_heads": arch.heads,
        "num_key_value_heads": arch.kv_heads,
        "head_dim": arch.head_dim,
        "num_experts": index.header.max_experts,
        "num_experts_per_tok": arch.top_k,
        "moe_intermediate_size": arch.moe_ffn,
        "norm_topk_prob": arch.flags & ArchBlock::FLAG_NORM_TOPK != 0,
        "mlp_only_layers": dense,
        "decoder_sparse_step": 1,
        "hidden_act": "silu",
        "attention_bias": false,
        "rms_norm_eps": shortest(arch.rms_eps),
        "rope_theta": shortest(arch.rope_theta),
        "tie_word_embeddings": tied,
        "max_position_embeddings": CONTEXT,
        "torch_dtype": "bfloat16",
    });
    if arch.dense_ffn > 0 {
        config["intermediate_size"] = arch.dense_ffn.into();
    }
    let mut notes = Vec::new();
    let given = folder.map(|folder| folder.join("config.json")).filter(|path| path.is_file());
    match given {
        Some(path) => {
            let text = std::fs::read_to_string(&path).map_err(QuantizeError::io(&path, "read"))?;
            let given: Value = serde_json::from_str(&text)
                .map_err(|e| QuantizeError::Refused(format!("{}: is not valid JSON: {e}", path.display())))?;
            for key in ["max_position_embeddings", "bos_token_id", "eos_token_id"] {
                if let Some(value) = given.get(key) {
                    config[key] = value.clone();
                }
            }
        }
        None => notes.push(format!("the file names no context: {CONTEXT} positions are taken; --tokenizer FOLDER with a config.json says better")),
    }
    Ok((config, notes))
}

/// The shortest decimal that is this f32: 1e-6 rather than 9.99999997e-7.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
