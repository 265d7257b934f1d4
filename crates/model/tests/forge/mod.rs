//! Checkpoints made for tests: a model in memory, changed in one place, written as a folder.
#![allow(dead_code)] // Each test file uses a part of it.

use serde_json::{Map, Value, json};
use smoe_model::{Checkpoint, CheckpointError, OpenOptions, families};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Name to (dtype, shape, bytes).
pub(crate) type Tensors = BTreeMap<String, Tensor>;

/// Dtype, shape, bytes.
pub(crate) type Tensor = (String, Vec<usize>, Vec<u8>);

/// A model in memory.
#[derive(Clone)]
pub(crate) struct Model {
    /// `config.json`.
    pub(crate) config: Value,
    /// The weights.
    pub(crate) tensors: Tensors,
}

/// The golden folder of the repository.
pub(crate) fn golden() -> Model {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/qwen3_moe"))
}

/// A folder with one file of weights.
pub(crate) fn read(folder: &Path) -> Model {
    let config = serde_json::from_slice(&fs::read(folder.join("config.json")).expect("config")).expect("JSON");
    let bytes = fs::read(folder.join("model.safetensors")).expect("weights");
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + n]).expect("header");
    let mut tensors = Tensors::new();
    for (name, t) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let at = |i: usize| 8 + n + t["data_offsets"][i].as_u64().expect("an offset") as usize;
        let shape =
            t["shape"].as_array().expect("a shape").iter().map(|d| d.as_u64().expect("a size") as usize).collect();
        let dtype = t["dtype"].as_str().expect("a dtype").to_owned();
        tensors.insert(name.clone(), (dtype, shape, bytes[at(0)..at(1)].to_vec()));
    }
    Model { config, tensors }
}

/// The configs of the golden folders, by name.
pub(crate) fn golden_configs() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden_configs");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).expect("configs").map(|e| e.expect("a file").path()).collect();
    paths.sort();
    let read = |p: PathBuf| {
        let name = p.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, serde_json::from_slice(&fs::read(p).expect("a config")).expect("JSON"))
    };
    paths.into_iter().map(read).collect()
}

/// One golden config.
pub(crate) fn golden_config(name: &str) -> Value {
    golden_configs().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no config {name}")).1
}

/// A random model of a config, without its block format.
pub(crate) fn of_config(mut config: Value) -> Model {
    config.as_object_mut().expect("an object").remove("quantization_config");
    let plan = families::spec_from_config(&config.to_string(), &OpenOptions::default()).expect("a plan");
    let mut tensors = Tensors::new();
    for (i, (name, shape)) in families::tensors(&plan).expect("names").into_iter().enumerate() {
        tensors.insert(name, random(i as u64, shape));
    }
    Model { config, tensors }
}

/// bf16 values between 0.5 and 2, either sign: no two tensors alike.
pub(crate) fn random(seed: u64, shape: Vec<usize>) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let count = shape.iter().product::<usize>();
    let mut bytes = Vec::with_capacity(2 * count);
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bits = 0x3f00 | (state >> 40) as u16 & 0x80ff;
        bytes.extend(bits.to_le_bytes());
    }
    ("BF16".into(), shape, bytes)
}

/// The bytes of a file.
pub(crate) fn safetensors(tensors: &Tensors) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, (dtype, shape, bytes)) in tensors {
        let begin = data.len();
        data.extend(bytes);
        header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]}));
    }
    framed(&Value::Object(header).to_string(), &data)
}

/// Length, header, data.
pub(crate) fn framed(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A shard's name.
pub(crate) fn shard(i: usize, n: usize) -> String {
    format!("model-{i:05}-of-{n:05}.safetensors")
}

impl Model {
    /// In one file.
    pub(crate) fn write(&self, folder: &Path) {
        fs::write(folder.join("config.json"), self.config.to_string()).expect("config");
        fs::write(folder.join("model.safetensors"), safetensors(&self.tensors)).expect("weights");
    }

    /// In `n` shards with an index; tensors go round.
    pub(crate) fn write_shards(&self, folder: &Path, n: usize) {
        fs::write(folder.join("config.json"), self.config.to_string()).expect("config");
        let mut shards = vec![Tensors::new(); n];
        let mut map = Map::new();
        for (i, (name, tensor)) in self.tensors.iter().enumerate() {
            shards[i % n].insert(name.clone(), tensor.clone());
            map.insert(name.clone(), json!(shard(i % n + 1, n)));
        }
        for (i, tensors) in shards.iter().enumerate() {
            fs::write(folder.join(shard(i + 1, n)), safetensors(tensors)).expect("shard");
        }
        let index = json!({"metadata": {}, "weight_map": map});
        fs::write(folder.join("model.safetensors.index.json"), index.to_string()).expect("index");
    }

    /// Written and opened; the folder lives as long as the result.
    pub(crate) fn open(&self) -> Result<Opened, CheckpointError> {
        let folder = tempfile::tempdir().expect("a folder");
        self.write(folder.path());
        open(folder.path()).map(|checkpoint| Opened { checkpoint, _folder: folder })
    }

    /// The message with which it is refused.
    pub(crate) fn refusal(&self) -> String {
        match self.open() {
            Ok(_) => panic!("opened, expected a refusal"),
            Err(e) => e.to_string(),
        }
    }

    /// A tensor that must be there.
    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.get_mut(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }
}

/// A checkpoint and its folder.
pub(crate) struct Opened {
    /// The checkpoint.
    pub(crate) checkpoint: Checkpoint,
    _folder: tempfile::TempDir,
}

impl Opened {
    /// A checkpoint that was opened elsewhere.
    pub(crate) fn of(checkpoint: Checkpoint, folder: tempfile::TempDir) -> Self {
        Self { checkpoint, _folder: folder }
    }
}

impl std::ops::Deref for Opened {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        &self.checkpoint
    }
}

/// Opens a folder with default options.
pub(crate) fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::open(folder, &OpenOptions::default())
}

/// A random model of a golden config.
pub(crate) fn read_golden(name: &str) -> Model {
    of_config(golden_config(name))
}
