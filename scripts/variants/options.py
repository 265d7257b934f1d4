"""The options that `variants.py` varies: for each family a small config, and changes of it by name.

A change is a dict for the family's config class. Keys with a `+` are for `variants.py`: prediction layers to add, the
vision-language wrapper, another `model_type`, the first version of the library that has the option.
"""

T = 24  # Tokens of a case.


def yarn(**more):
    return {"rope_type": "yarn", "rope_theta": 100.0, "factor": 8.0, "original_max_position_embeddings": 32, **more}


def alpha(value):
    """Hunyuan's fixed base."""
    return {"rope_type": "dynamic", "rope_theta": 100.0, "alpha": value, "factor": 1.0}


def rope(pairs):
    """Rotary embeddings; `pairs` is how many pairs of channels are rotated."""
    short, long = [1.0 + 0.3 * i for i in range(pairs)], [2.0 + 0.5 * i for i in range(pairs)]
    return {
        "theta": {"rope_type": "default", "rope_theta": 31.0},
        "linear": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0},
        "yarn": yarn(),
        "yarn betas": yarn(beta_fast=4.0, beta_slow=0.5),
        "yarn untruncated": yarn(truncate=False),
        "yarn attention factor": yarn(attention_factor=1.3),
        "yarn both mscales": yarn(mscale=0.7, mscale_all_dim=1.2),
        "yarn one mscale": yarn(mscale_all_dim=0.7),
        "dynamic": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0},
        "llama3": {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
        "longrope": {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": short, "long_factor": long,
                     "factor": 4.0, "original_max_position_embeddings": 64},
        "longrope past its limit": {"rope_type": "longrope", "rope_theta": 100.0, "short_factor": short,
                                    "long_factor": long, "factor": 4.0, "original_max_position_embeddings": 8},
        "no such rope": {"rope_type": "spiral", "rope_theta": 100.0},
    }


def ropes(pairs, **more):
    """As changes; `more` goes into each."""
    changes = {f"rope {name}": {"rope_parameters": {**value, **more}} for name, value in rope(pairs).items()}
    changes["rope dynamic"]["max_position_embeddings"] = 16  # Below the tokens: so that it shows.
    return changes


GENERAL = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "untied": {"tie_word_embeddings": False},
    "vocab 131": {"vocab_size": 131},
    "4 layers": {"num_hidden_layers": 4},
    "act gelu": {"hidden_act": "gelu"},
    "act relu2": {"hidden_act": "relu2"},
    "context 8": {"max_position_embeddings": 8},
    "control ids": {"bos_token_id": 3, "eos_token_id": [5, 6], "pad_token_id": 7},
}
EPS = {"eps 1e-3": {"rms_norm_eps": 1e-3}}
GQA = {
    "kv 1": {"num_key_value_heads": 1},
    "kv = heads": {"num_key_value_heads": 4},
    "6 heads": {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 96},
    "hidden 40": {"hidden_size": 40},
}
HEAD_DIM = {"head 24": {"head_dim": 24}, "head 6": {"head_dim": 6}, "head null": {"head_dim": None}}
ATTENTION_BIAS = {"attention bias": {"attention_bias": True}}


def experts(count, k, width="moe_intermediate_size", factors=(1, 3, 4)):
    """Counts and widths under a family's names."""
    changes = {f"k {n}": {k: n} for n in factors}
    changes["7 experts"] = {count: 7}
    changes["expert width 40"] = {width: 40}
    return changes


NORM_TOPK = {"norm_topk_prob true": {"norm_topk_prob": True}, "norm_topk_prob false": {"norm_topk_prob": False}}
SCALING = {"scaling 3": {"routed_scaling_factor": 3.0}, "scaling 1": {"routed_scaling_factor": 1.0}}
QWEN_LAYERS = {
    "mlp only 0": {"mlp_only_layers": [0]},
    "mlp only past the end": {"mlp_only_layers": [0, 9]},
    "sparse step 2": {"decoder_sparse_step": 2},
    "sparse step 2, mlp only 1": {"decoder_sparse_step": 2, "mlp_only_layers": [1], "num_hidden_layers": 4},
}
FIRST_DENSE = {f"first dense {n}": {"first_k_dense_replace": n, "num_hidden_layers": 4} for n in (0, 1, 3)}
SHARED = {f"shared {n}": {"n_shared_experts": n} for n in (0, 1, 2)}
GROUPS = {
    "2 groups keep 1": {"n_group": 2, "topk_group": 1},
    "4 groups keep 3": {"n_group": 4, "topk_group": 3},
    "4 groups keep all": {"n_group": 4, "topk_group": 4},
    "8 groups": {"n_group": 8, "topk_group": 4},
    "groups null": {"n_group": None, "topk_group": None},
    "1 group keep 2": {"n_group": 1, "topk_group": 2},
}
MTP = {
    "mtp announced": {"num_nextn_predict_layers": 1},
    "mtp carried": {"num_nextn_predict_layers": 1, "+mtp": 1},
    "two mtp carried": {"num_nextn_predict_layers": 2, "+mtp": 2},
    "mtp off": {"num_nextn_predict_layers": 0},
    "mtp carried, not announced": {"num_nextn_predict_layers": 0, "+mtp": 1},
}
LATENT = {
    "no q rank": {"q_lora_rank": None},
    "wide values": {"v_head_dim": 24},
    "nope 20": {"qk_nope_head_dim": 20},
    "rope 12": {"qk_rope_head_dim": 12},
    "6 heads": {"num_attention_heads": 6, "num_key_value_heads": 6, "hidden_size": 96},
    "hidden 40": {"hidden_size": 40},
}
DELTA = {
    "4 layers": {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2},
    "2 for 2 heads": {"linear_num_value_heads": 2},
    "1 for 4 heads": {"linear_num_key_heads": 1},
    "delta dims": {"linear_key_head_dim": 8, "linear_value_head_dim": 24},
    "kernel 2": {"linear_conv_kernel_dim": 2},
    "all full": {"layer_types": ["full_attention"] * 3},
    "all linear": {"layer_types": ["linear_attention"] * 3},
    "layer types": {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
    "partial 0.5": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}},
    "partial 1": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}},
}
SLIDING = {"window 5": {"sliding_window": 5}, "window 64": {"sliding_window": 64}, "window 1": {"sliding_window": 1}}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 100.0}
SIZES = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
         "rope_parameters": PLAIN_ROPE, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
MLA = {**SIZES, "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
       "qk_rope_head_dim": 8, "v_head_dim": 12}
DEEPSEEK = {"intermediate_size": 72, "moe_intermediate_size": 32, "n_routed_experts": 8, "num_experts_per_tok": 3,
            "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5}
QWEN = {"intermediate_size": 72, "moe_intermediate_size": 32, "num_experts": 5, "num_experts_per_tok": 2}
NEXT = {**SIZES, "num_hidden_layers": 3, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
        "shared_expert_intermediate_size": 24, "layer_types": ["linear_attention"] * 2 + ["full_attention"],
        "rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.25}}
VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "num_position_embeddings": 16,
          "out_hidden_size": 64, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}

FAMILIES = {
    "mixtral": ({**SIZES, "head_dim": 16, "intermediate_size": 40, "num_local_experts": 4, "num_experts_per_tok": 2}, [
        GENERAL, EPS, GQA, HEAD_DIM, SLIDING, ropes(8),
        experts("num_local_experts", "num_experts_per_tok", "intermediate_size"),
        {"jitter": {"router_jitter_noise": 0.1}}]),
    "qwen2_moe": ({**SIZES, **QWEN, "head_dim": 16, "shared_expert_intermediate_size": 56}, [
        GENERAL, EPS, GQA, HEAD_DIM, QWEN_LAYERS, NORM_TOPK, ropes(8), experts("num_experts", "num_experts_per_tok"),
        {"no qkv bias": {"qkv_bias": False}, "shared width 8": {"shared_expert_intermediate_size": 8},
         "window on": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
         "window on, past all layers": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 9},
         "window off": {"use_sliding_window": False, "sliding_window": 5, "max_window_layers": 0},
         "layer types": {"use_sliding_window": True, "sliding_window": 5,
                         "layer_types": ["full_attention", "sliding_attention"]},
         "layer types, window off": {"layer_types": ["full_attention", "sliding_attention"]}}]),
    "qwen3_moe": ({**SIZES, **QWEN, "head_dim": 16, "norm_topk_prob": True}, [
        GENERAL, EPS, GQA, HEAD_DIM, ATTENTION_BIAS, QWEN_LAYERS, NORM_TOPK, ropes(8),
        experts("num_experts", "num_experts_per_tok"),
        {"window on": {"use_sliding_window": True, "sliding_window": 5},
         "window off": {"use_sliding_window": False, "sliding_window": 5}}]),
    "qwen3_next": ({**NEXT, **QWEN, "num_experts": 4}, [
        GENERAL, EPS, GQA, ATTENTION_BIAS, QWEN_LAYERS, NORM_TOPK, DELTA, ropes(4, partial_rotary_factor=0.5),
        experts("num_experts", "num_experts_per_tok"),
        {"mtp carried": {"+mtp": 1}, "head 24": {"head_dim": 24},
         "shared width 8": {"shared_expert_intermediate_size": 8}}]),
    "qwen3_5_moe": ({**NEXT, "moe_intermediate_size": 40, "num_experts": 4, "num_experts_per_tok": 2}, [
        GENERAL, EPS, GQA, ATTENTION_BIAS, DELTA, ropes(4, partial_rotary_factor=0.5),
        experts("num_experts", "num_experts_per_tok"),
        {"mtp carried": {"+mtp": 1}, "head 24": {"head_dim": 24}, "wrapped": {"+wrap": 1},
         "wrapped, tied": {"+wrap": 1, "tie_word_embeddings": True}, "wrapped, mtp": {"+wrap": 1, "+mtp": 1},
         "wrapped, layer types": {"+wrap": 1, "layer_types": ["full_attention"] * 2 + ["linear_attention"]},
         "shared width 8": {"shared_expert_intermediate_size": 8}}]),
    "olmoe": ({**SIZES, "head_dim": 16, "num_key_value_heads": 4, "intermediate_size": 32, "num_experts": 6,
               "num_experts_per_tok": 3}, [
        GENERAL, EPS, GQA, ATTENTION_BIAS, NORM_TOPK, ropes(8),
        experts("num_experts", "num_experts_per_tok", "intermediate_size"),
        {"clip": {"clip_qkv": 0.5}, "kv 2": {"num_key_value_heads": 2}, "clip 0": {"clip_qkv": 0.0}}]),
    "deepseek_v2": ({**MLA, **DEEPSEEK, "n_shared_experts": 2}, [
        GENERAL, EPS, ATTENTION_BIAS, LATENT, FIRST_DENSE, SHARED, NORM_TOPK, SCALING, ropes(4),
        experts("n_routed_experts", "num_experts_per_tok"),
        {"groups": {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2},
         "2 groups keep 1": {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1},
         "8 groups keep 3": {"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3},
         "greedy with groups": {"topk_method": "greedy", "n_group": 4, "topk_group": 1},
         "noaux_tc": {"topk_method": "noaux_tc", "n_group": 1, "topk_group": 1},
         "mlp bias": {"mlp_bias": True}}]),
    "deepseek_v3": ({**MLA, **DEEPSEEK, "n_group": 4, "topk_group": 2}, [
        GENERAL, EPS, ATTENTION_BIAS, LATENT, FIRST_DENSE, SHARED, NORM_TOPK, SCALING, GROUPS, MTP, ropes(4),
        experts("n_routed_experts", "num_experts_per_tok"),
        {"halves": {"rope_interleave": False},
         "as kimi_k2": {"n_group": 1, "topk_group": 1, "+model_type": "kimi_k2"}}]),
    "glm4_moe": ({**SIZES, **DEEPSEEK, "head_dim": 20}, [
        GENERAL, EPS, GQA, HEAD_DIM, ATTENTION_BIAS, FIRST_DENSE, SHARED, NORM_TOPK, SCALING, GROUPS, MTP,
        ropes(8, partial_rotary_factor=0.8), experts("n_routed_experts", "num_experts_per_tok"),
        {"qk norm": {"use_qk_norm": True},
         "partial 0.5": {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}},
         "partial 0.25": {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.25}, "head_dim": 24},
         "partial odd": {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.25}}}]),
    "glm4_moe_lite": ({**MLA, **{k: v for k, v in DEEPSEEK.items() if k != "first_k_dense_replace"}}, [
        GENERAL, EPS, ATTENTION_BIAS, LATENT, SHARED, NORM_TOPK, SCALING, GROUPS, MTP, ropes(4),
        experts("n_routed_experts", "num_experts_per_tok"),
        {"halves": {"rope_interleave": False}, "dense last": {"mlp_layer_types": ["sparse", "dense"]},
         "all sparse": {"mlp_layer_types": ["sparse", "sparse"]},
         "partial 0.5": {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}}}]),
    "gpt_oss": ({**SIZES, "head_dim": 16, "intermediate_size": 40, "num_local_experts": 4, "num_experts_per_tok": 2,
                 "sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"],
                 "rope_parameters": yarn(truncate=False, beta_fast=32.0, beta_slow=1.0)}, [
        GENERAL, EPS, GQA, HEAD_DIM, {"no attention bias": {"attention_bias": False}}, SLIDING, ropes(8),
        experts("num_local_experts", "num_experts_per_tok", "intermediate_size"),
        {"4 layers": {"num_hidden_layers": 4, "layer_types": ["full_attention", "sliding_attention"] * 2},
         "all sliding": {"layer_types": ["sliding_attention"] * 2},
         "all full": {"layer_types": ["full_attention"] * 2},
         "limit 1": {"swiglu_limit": 1.0}, "alpha 1": {"swiglu_alpha": 1.0, "+since": "5.24"},
         "no layer types": {"layer_types": None}}]),
    "minimax_m2": ({**SIZES, "head_dim": 24, "intermediate_size": 32, "num_local_experts": 6, "num_experts_per_tok": 3,
                    "rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}}, [
        GENERAL, EPS, GQA, {"head 16": {"head_dim": 16}}, ropes(6, partial_rotary_factor=0.5),
        experts("num_local_experts", "num_experts_per_tok", "intermediate_size", (1, 2, 5)),
        {"partial 1": {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 1.0}},
         "whole": {"rope_parameters": PLAIN_ROPE},
         "rotary dim": {"rope_parameters": {**PLAIN_ROPE, "partial_rotary_factor": 0.5}, "rotary_dim": 12},
         "jitter": {"router_jitter_noise": 0.1}}]),
    "granitemoe": ({**SIZES, "head_dim": 16, "intermediate_size": 40, "num_local_experts": 6, "num_experts_per_tok": 3,
                    "embedding_multiplier": 12.0, "attention_multiplier": 0.1, "residual_multiplier": 0.22,
                    "logits_scaling": 6.0, "tie_word_embeddings": True}, [
        GENERAL, EPS, GQA, ATTENTION_BIAS, ropes(8),
        experts("num_local_experts", "num_experts_per_tok", "intermediate_size", (1, 2, 5)),
        {"multipliers 1": {"embedding_multiplier": 1.0, "attention_multiplier": 1.0, "residual_multiplier": 1.0,
                           "logits_scaling": 1.0}, "logits 0.5": {"logits_scaling": 0.5},
         "whole numbers": {"embedding_multiplier": 3, "attention_multiplier": 1, "residual_multiplier": 2}}]),
    "lfm2_moe": ({**{k: v for k, v in SIZES.items() if k != "rms_norm_eps"}, "norm_eps": 1e-5, "num_hidden_layers": 3,
                  "intermediate_size": 72, "moe_intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 3,
                  "num_dense_layers": 1, "layer_types": ["conv", "full_attention", "conv"]}, [
        GENERAL, {"eps 1e-3": {"norm_eps": 1e-3}}, GQA, NORM_TOPK, SCALING, ropes(8),
        experts("num_experts", "num_experts_per_tok"),
        {"conv bias": {"conv_bias": True}, "taps 2": {"conv_L_cache": 2}, "taps 4": {"conv_L_cache": 4},
         "taps 1": {"conv_L_cache": 1}, "no dense": {"num_dense_layers": 0}, "2 dense": {"num_dense_layers": 2},
         "all dense": {"num_dense_layers": 9}, "no expert bias": {"use_expert_bias": False},
         "all conv": {"layer_types": ["conv"] * 3}, "all attention": {"layer_types": ["full_attention"] * 3},
         "4 layers": {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"]}}]),
    "ernie4_5_moe": ({**SIZES, "head_dim": 16, "num_hidden_layers": 3, "intermediate_size": 80,
                      "moe_intermediate_size": 32, "moe_num_experts": 6, "moe_k": 3,
                      "moe_num_shared_experts": 2, "moe_layer_start_index": 1}, [
        GENERAL, EPS, GQA, HEAD_DIM, ropes(8), experts("moe_num_experts", "moe_k", factors=(1, 2, 5)),
        {"shared 0": {"moe_num_shared_experts": 0}, "shared 1": {"moe_num_shared_experts": 1},
         "all bias": {"use_bias": True}, "from 0": {"moe_layer_start_index": 0}, "to 1": {"moe_layer_end_index": 1},
         "interval 2": {"moe_layer_interval": 2},
         "interval 2 from 2": {"moe_layer_interval": 2, "moe_layer_start_index": 2, "num_hidden_layers": 4},
         "floor": {"moe_norm_min": 0.9}, "mtp carried": {"+mtp": 1}}]),
    "hunyuan_v1_moe": ({**SIZES, "head_dim": 16, "intermediate_size": 32, "num_experts": 6, "moe_topk": 3,
                        "rope_parameters": alpha(100.0)}, [
        GENERAL, EPS, GQA, HEAD_DIM, ATTENTION_BIAS, ropes(8),
        experts("num_experts", "moe_topk", "intermediate_size", (1, 2, 5)),
        {"k by layer": {"moe_topk": [1, 3]}, "alpha 5": {"rope_parameters": alpha(5.0)},
         "alpha, past the context": {"max_position_embeddings": 8}, "two shared": {"num_shared_expert": 2},
         "shared by layer": {"num_shared_expert": [1, 1]}, "mlp bias": {"mlp_bias": True},
         "as hunyuan": {"+model_type": "hunyuan"}}]),
    "dots1": ({**SIZES, "head_dim": 16, **DEEPSEEK, "n_shared_experts": 2, "sliding_window": None, "n_group": 1,
               "topk_group": 1}, [
        GENERAL, EPS, GQA, HEAD_DIM, ATTENTION_BIAS, FIRST_DENSE, SHARED, NORM_TOPK, SCALING, GROUPS, ropes(8),
        experts("n_routed_experts", "num_experts_per_tok"),
        {"shared null": {"n_shared_experts": None}, "window from 1": {"sliding_window": 5, "max_window_layers": 1},
         "window past all": {"sliding_window": 5, "max_window_layers": 9},
         "layer types": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
         "layer types, no window": {"sliding_window": None, "layer_types": ["sliding_attention", "full_attention"]}}]),
    "phimoe": ({**SIZES, "head_dim": 16, "intermediate_size": 32, "num_local_experts": 6, "num_experts_per_tok": 2,
                "router_jitter_noise": 0.01}, [
        GENERAL, EPS, GQA, ATTENTION_BIAS, SLIDING,
        {name: {"rope_parameters": {**c["rope_parameters"], "short_mscale": 1.2, "long_mscale": 1.3}}
         for name, c in ropes(8).items() if "theta" not in name and "dynamic" not in name},
        experts("num_local_experts", "num_experts_per_tok", "intermediate_size", (1, 3)),
        {"rope as released": {"rope_parameters": {
            "rope_type": "longrope", "rope_theta": 100.0, "original_max_position_embeddings": 64,
            "short_factor": [1.0 + 0.2 * i for i in range(8)], "short_mscale": 1.2,
            "long_factor": [2.0] * 8, "long_mscale": 1.3}},
         "head bias": {"lm_head_bias": True}, "tied head bias": {"lm_head_bias": True, "tie_word_embeddings": True},
         "jitter 0.2": {"router_jitter_noise": 0.2}, "jitter 0": {"router_jitter_noise": 0.0},
         "input jitter": {"input_jitter_noise": 0.1}, "head 24": {"head_dim": 24},
         "2 experts": {"num_local_experts": 2}}]),
}

# What older releases call a key that newer versions of the library write under another name.
OLD_NAMES = {
    "qwen3_moe": {"num_local_experts": "num_experts"},
    "ernie4_5_moe": {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    "hunyuan_v1_moe": {"num_experts_per_tok": "moe_topk"},
}
# Norms that add 1 to their weight.
UNIT_OFFSET = ("qwen3_next", "qwen3_5_moe")
