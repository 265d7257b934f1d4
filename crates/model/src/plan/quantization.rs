//! `quantization_config`: the block format that it announces. Which tensors are in it is what their headers say.

use crate::config::{Field, Values, read_flat};
use crate::error::CheckpointError;
use serde_json::{Map, Value};

/// A block format of the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockFormat {
    /// e4m3 with a scale for each block of rows and columns.
    Fp8 { rows: usize, cols: usize },
    /// e2m1 with a power of two for 32.
    Mxfp4,
    /// Four bits, offset 8, with a scale for `group` columns (0: for a row).
    Int4 { group: usize },
}

/// Names of formats that are not read, as people know them.
const REFUSED: &[(&str, &str)] = &[
    ("gptq", "GPTQ"),
    ("awq", "AWQ"),
    ("bitsandbytes", "bitsandbytes"),
    ("hqq", "HQQ"),
    ("quanto", "Quanto"),
    ("aqlm", "AQLM"),
    ("eetq", "EETQ"),
    ("torchao", "torchao"),
    ("auto-round", "AutoRound"),
    ("modelopt", "ModelOpt (NVFP4)"),
    ("fbgemm_fp8", "FBGEMM fp8"),
    ("exl2", "EXL2"),
    ("exl3", "EXL3"),
    ("vptq", "VPTQ"),
    ("bitnet", "BitNet"),
];

/// Reads the format; `None` where the config announces none.
pub(crate) fn read(values: &Values) -> Result<Option<BlockFormat>, CheckpointError> {
    let Some(object) = values.object(Field::Quantization)? else { return Ok(None) };
    let path = values.key(Field::Quantization).to_owned();
    let config = Config { object, path };
    match config.word("quant_method")?.unwrap_or("") {
        "fp8" => config.fp8().map(Some),
        "mxfp4" => {
            config.known(&["quant_method", "modules_to_not_convert", "dequantize"])?;
            Ok(Some(BlockFormat::Mxfp4))
        }
        "compressed-tensors" => config.packed().map(Some),
        other => {
            let name = REFUSED.iter().find(|(method, _)| *method == other).map_or(other, |(_, name)| name);
            let text = format!(
                "{name} checkpoints are not read (supported: fp8, mxfp4, compressed-tensors int4, and bf16, f16, f32); \
                 use the unquantised release"
            );
            Err(config.fault("quant_method", text))
        }
    }
}

struct Config<'a> {
    object: &'a Map<String, Value>,
    path: String,
}

impl Config<'_> {
    fn fault(&self, key: &str, text: impl Into<String>) -> CheckpointError {
        CheckpointError::key(format!("{}.{key}", self.path), text)
    }

    fn known(&self, keys: &[&str]) -> Result<(), CheckpointError> {
        read_flat(self.object, &self.path, keys)
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn word(&self, key: &str) -> Result<Option<&str>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.fault(key, format!("expected a word, found {value}")))
    }

    /// The value must be one of `expected`, or absent.
    fn only(&self, key: &str, expected: &[Value]) -> Result<(), CheckpointError> {
        match self.get(key) {
            Some(value) if !expected.contains(value) => {
                let expected: Vec<String> = expected.iter().map(Value::to_string).collect();
                Err(self.fault(key, format!("{value} is not supported; expected {}", expected.join(" or "))))
            }
            _ => Ok(()),
        }
    }

    fn fp8(&self) -> Result<BlockFormat, CheckpointError> {
        self.known(&[
            "quant_method",
            "activation_scheme",
            "fmt",
            "weight_block_size",
            "scale_fmt",
            "modules_to_not_convert",
            "modules_to_convert",
            "ignored_layers",
            "dequantize",
        ])?;
        self.only("fmt", &["e4m3".into(), "float8_e4m3fn".into()])?;
        let block: Option<Vec<u64>> =
            self.get("weight_block_size").and_then(Value::as_array).and_then(|b| b.iter().map(Value::as_u64).collect());
        match block.as_deref() {
            Some([128, 128]) => Ok(BlockFormat::Fp8 { rows: 128, cols: 128 }),
            _ => {
                let found = self.get("weight_block_size").unwrap_or(&Value::Null);
                Err(self.fault("weight_block_size", format!("{found} is not supported; expected [128,128]")))
            }
        }
    }

    fn packed(&self) -> Result<BlockFormat, CheckpointError> {
        self.known(&[
            "quant_method",
            "config_groups",
            "format",
            "global_compression_ratio",
            "ignore",
            "kv_cache_scheme",
            "quantization_status",
            "sparsity_config",
            "transform_config",
            "version",
        ])?;
        self.only("format", &["pack-quantized".into()])?;
        let empty = Value::Object(Map::new());
        self.only("sparsity_config", std::slice::from_ref(&empty))?;
        self.only("transform_config", std::slice::from_ref(&empty))?;
        let groups = self.get("config_groups").and_then(Value::as_object);
        let groups = groups.filter(|groups| !groups.is_empty());
        let groups = groups.ok_or_else(|| self.fault("config_groups", "expected an object with a group"))?;
        let mut sizes = Vec::new();
        for (name, group) in groups {
            let weights = group.get("weights").and_then(Value::as_object);
            let path = format!("{}.config_groups.{name}.weights", self.path);
            let weights = weights.ok_or_else(|| CheckpointError::key(&path, "expected an object"))?;
            sizes.push(Config { object: weights, path }.group()?);
        }
        if sizes.iter().any(|size| *size != sizes[0]) {
            return Err(self.fault("config_groups", format!("groups of different sizes {sizes:?} are not supported")));
        }
        Ok(BlockFormat::Int4 { group: sizes[0] })
    }

    /// Columns of a group, from one `weights` object.
    fn group(&self) -> Result<usize, CheckpointError> {
        self.known(&[
            "actorder",
            "block_structure",
            "dynamic",
            "group_size",
            "num_bits",
            "observer",
            "observer_kwargs",
            "scale_dtype",
            "strategy",
            "symmetric",
            "type",
            "zp_dtype",
        ])?;
        self.only("num_bits", &[4.into()])?;
        self.only("type", &["int".into()])?;
        self.only("symmetric", &[true.into()])?;
        self.only("dynamic", &[false.into()])?;
        self.only("actorder", &[false.into(), "weight".into(), "static".into()])?;
        self.only("strategy", &["group".into(), "channel".into()])?;
        let strategy = self.word("strategy")?.unwrap_or("group");
        match (strategy, self.get("group_size").and_then(Value::as_u64)) {
            ("channel", _) => Ok(0),
            (_, Some(size)) if size > 0 && size % 8 == 0 && size <= 1 << 20 => Ok(size as usize),
            (_, size) => Err(self.fault("group_size", format!("{size:?} is not supported; expected a multiple of 8"))),
        }
    }
}
