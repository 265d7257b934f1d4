//! The tensors of a synthetic checkpoint: names as published, from the sizes of its config.

use crate::shards::Entry;
use serde::Deserialize;

/// The sizes that matter, under their names in config.json.
#[derive(Debug, Deserialize)]
pub(super) struct Shape {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    num_experts: usize,
    moe_intermediate_size: usize,
    tie_word_embeddings: bool,
}

/// A tensor, and whether it is a norm (all ones) rather than random.
pub(super) struct Tensor {
    pub(super) entry: Entry,
    pub(super) ones: bool,
}

impl Shape {
    /// All tensors in the order of the file.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let mut list = Vec::new();
        matrix(&mut list, "model.embed_tokens", self.vocab_size, self.hidden_size);
        for l in 0..self.num_hidden_layers {
            self.layer(&mut list, &format!("model.layers.{l}"));
        }
        norm(&mut list, "model.norm", self.hidden_size);
        if !self.tie_word_embeddings {
            matrix(&mut list, "lm_head", self.vocab_size, self.hidden_size);
        }
        list
    }

    fn layer(&self, list: &mut Vec<Tensor>, at: &str) {
        let hidden = self.hidden_size;
        let (q, kv) = (self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim);
        norm(list, &format!("{at}.input_layernorm"), hidden);
        for (name, rows, cols) in [("q", q, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, q)] {
            matrix(list, &format!("{at}.self_attn.{name}_proj"), rows, cols);
        }
        norm(list, &format!("{at}.self_attn.q_norm"), self.head_dim);
        norm(list, &format!("{at}.self_attn.k_norm"), self.head_dim);
        norm(list, &format!("{at}.post_attention_layernorm"), hidden);
        matrix(list, &format!("{at}.mlp.gate"), self.num_experts, hidden);
        let width = self.moe_intermediate_size;
        for e in 0..self.num_experts {
            for (name, rows, cols) in [("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)] {
                matrix(list, &format!("{at}.mlp.experts.{e}.{name}_proj"), rows, cols);
            }
        }
    }
}

fn matrix(list: &mut Vec<Tensor>, name: &str, rows: usize, cols: usize) {
    list.push(Tensor { entry: entry(name, vec![rows, cols]), ones: false });
}

fn norm(list: &mut Vec<Tensor>, name: &str, len: usize) {
    list.push(Tensor { entry: entry(name, vec![len]), ones: true });
}

fn entry(name: &str, shape: Vec<usize>) -> Entry {
    Entry { name: format!("{name}.weight"), dtype: "BF16", shape, element: 2 }
}
