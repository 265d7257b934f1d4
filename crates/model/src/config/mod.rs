//! How a family's table says what the keys of `config.json` mean, and the reading of a config by such a table.

mod rope;
mod source;
mod values;

pub(crate) use rope::{RopeRequest, resolve as resolve_rope};
pub(crate) use source::{Source, parse_config, read_flat};
pub(crate) use values::Values;

/// A constant in a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Lit {
    Int(i64),
    Num(f64),
    Bool(bool),
    Str(&'static str),
    /// A list without elements.
    Empty,
}

/// What a key means. Several names of one thing in different families are one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Field {
    Vocab,
    Hidden,
    Layers,
    Context,
    NormEps,
    Tied,
    HeadBias,
    // Mixers
    Heads,
    KvHeads,
    HeadDim,
    AttentionBias,
    QkNorm,
    Window,
    /// The first layer with a window, where no list says which have one.
    WindowFrom,
    ClipQkv,
    AttentionScale,
    LayerTypes,
    FullInterval,
    QRank,
    KvRank,
    NopeDim,
    RopeDim,
    ValueDim,
    DeltaKeyHeads,
    DeltaValueHeads,
    DeltaKeyDim,
    DeltaValueDim,
    DeltaKernel,
    ConvKernel,
    ConvBias,
    // Rotary embedding
    RopeTheta,
    RopeScaling,
    RopeParameters,
    PartialRotary,
    RotaryDim,
    /// Kinds of attention by layer, as numbers: 1 is the one that is read.
    AttentionKinds,
    OriginalContext,
    // Feed-forward
    DenseWidth,
    Experts,
    TopK,
    ExpertWidth,
    /// Another statement of the expert width, which must agree.
    ExpertWidthToo,
    SharedCount,
    SharedWidth,
    NormTopk,
    NormFloor,
    RouterScale,
    RouterJitter,
    SelectionBias,
    Groups,
    GroupsKept,
    GroupMethod,
    // The gated activation
    GateAlpha,
    GateLimit,
    // Which layers have experts
    FirstDense,
    MoeEvery,
    MoeFrom,
    MoeTo,
    MlpOnly,
    MlpTypes,
    // Scalars
    EmbeddingMultiplier,
    ResidualMultiplier,
    LogitsScaling,
    // Extras
    PredictionLayers,
    Quantization,
}

/// What a missing key means. Null is as good where the reference takes it so; see `Table::null`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Absent {
    /// An error.
    Required,
    /// The mechanism is not there.
    Off,
    /// As `Off`, and null is another value, which is not supported.
    OffUnlessNull,
    /// As `Means`, and null says that the mechanism is not there.
    MeansOrOff(Lit, &'static str),
    /// An error, unless the other field is set: it says the same in another way.
    Unless(Field),
    /// The family's documented value and where it is documented.
    Means(Lit, &'static str),
}

/// A key that is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Names, the usual one first. Two of them with different values are an error.
    pub(crate) names: &'static [&'static str],
    pub(crate) field: Field,
    pub(crate) absent: Absent,
}

/// A key whose value must be one of a list, for the rest of the family follows from it. Missing is as good, and so is
/// null, mostly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fixed {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [Lit],
    /// Whether null says nothing; else it is another value, which is not supported.
    pub(crate) idle_null: bool,
}

/// A required key.
pub(crate) const fn need(name: &'static [&'static str], field: Field) -> Key {
    Key { names: name, field, absent: Absent::Required }
}

/// A key without which the mechanism is not there.
pub(crate) const fn may(name: &'static [&'static str], field: Field) -> Key {
    Key { names: name, field, absent: Absent::Off }
}

/// A key without which another says the same, and which null would overrule.
pub(crate) const fn may_not_null(name: &'static [&'static str], field: Field) -> Key {
    Key { names: name, field, absent: Absent::OffUnlessNull }
}

/// A key with a documented default that null turns off.
pub(crate) const fn or_off(name: &'static [&'static str], field: Field, value: Lit, source: &'static str) -> Key {
    Key { names: name, field, absent: Absent::MeansOrOff(value, source) }
}

/// A key that is required where the config does not say the same by another field.
pub(crate) const fn unless(name: &'static [&'static str], field: Field, other: Field) -> Key {
    Key { names: name, field, absent: Absent::Unless(other) }
}

/// A key with a documented default.
pub(crate) const fn or(name: &'static [&'static str], field: Field, value: Lit, source: &'static str) -> Key {
    Key { names: name, field, absent: Absent::Means(value, source) }
}

/// A key with a closed list of values.
pub(crate) const fn only(name: &'static str, values: &'static [Lit]) -> Fixed {
    // Null counts as false.
    let idle_null = !matches!(values, [Lit::Bool(true)]);
    Fixed { name, values, idle_null }
}

/// A key with a closed list of values in which null would be another.
pub(crate) const fn only_stated(name: &'static str, values: &'static [Lit]) -> Fixed {
    Fixed { name, values, idle_null: false }
}

/// Keys without a meaning for inference in any family.
pub(crate) const IDLE: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "ep_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "prefix",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "tf_legacy_loss",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unsloth_version",
    "unsloth_fixed",
    "use_bfloat16",
    "use_cache",
];
