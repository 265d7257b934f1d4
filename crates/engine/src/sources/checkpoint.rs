//! Unquantised experts of a checkpoint, read when first needed and kept.

use crate::error::EngineError;
use crate::experts::{Expert, ExpertLayout, ExpertSource, Part, PinnedBytes};
use smoe_codec::half;
use smoe_model::role::Proj;
use smoe_model::spec::{ModelSpec, MoeSpec};
use smoe_model::store::{Dtype, ExpertMatrix, ExpertReader};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Values read from the checkpoint at a time.
const SLICE: usize = 1 << 18;

/// A checkpoint's experts. A matrix is held in bf16 or f16 where every value of it is one, else in f32: nothing is
/// rounded.
pub struct CheckpointExperts {
    reader: Arc<dyn ExpertReader>,
    hidden: usize,
    /// By layer; empty for layers without experts.
    layers: Vec<Option<Layer>>,
}

struct Layer {
    moe: MoeSpec,
    experts: Vec<OnceLock<Expert>>,
}

impl CheckpointExperts {
    /// Experts of `spec` as `reader` has them.
    pub fn new(spec: &ModelSpec, reader: Arc<dyn ExpertReader>) -> Self {
        let mut layers: Vec<Option<Layer>> = spec.layers.iter().map(|_| None).collect();
        for (i, moe) in spec.moe_layers() {
            let experts = (0..moe.experts).map(|_| OnceLock::new()).collect();
            layers[i] = Some(Layer { moe: moe.clone(), experts });
        }
        Self { reader, hidden: spec.hidden, layers }
    }

    fn load(&self, layer: usize, expert: usize, moe: &MoeSpec) -> Result<Expert, EngineError> {
        let mut bytes = Vec::new();
        let mut part = |proj| self.load_matrix(ExpertMatrix { layer, expert, proj }, moe, &mut bytes);
        let parts = [part(Proj::Gate)?, part(Proj::Up)?, part(Proj::Down)?];
        let biases = if moe.expert_bias {
            let mut bias = |proj, rows| self.load_bias(ExpertMatrix { layer, expert, proj }, rows, &mut bytes);
            Some([bias(Proj::Gate, moe.width)?, bias(Proj::Up, moe.width)?, bias(Proj::Down, self.hidden)?])
        } else {
            None
        };
        let layout = ExpertLayout { hidden: self.hidden, width: moe.width, parts, biases };
        let bytes: PinnedBytes = Arc::new(bytes);
        Ok(Expert { layout: Arc::new(layout), bytes })
    }

    /// Appends a matrix in the narrowest type that holds it exactly.
    fn load_matrix(&self, at: ExpertMatrix, moe: &MoeSpec, bytes: &mut Vec<u8>) -> Result<Part, EngineError> {
        let (rows, cols) = match at.proj {
            Proj::Gate | Proj::Up => (moe.width, self.hidden),
            Proj::Down => (self.hidden, moe.width),
        };
        let mut values = vec![0.0; rows * cols];
        let step = (SLICE / cols).max(1);
        for (i, slice) in values.chunks_mut(step * cols).enumerate() {
            self.reader.read_expert_rows(at, i * step, slice)?;
        }
        let start = bytes.len().next_multiple_of(64);
        bytes.resize(start, 0);
        let dtype = if values.iter().all(|w| w.to_bits() & 0xFFFF == 0) {
            bytes.extend(values.iter().flat_map(|w| half::f32_to_bf16(*w).to_le_bytes()));
            Dtype::Bf16
        } else if values.iter().all(|w| half::f16_to_f32(half::f32_to_f16(*w)).to_bits() == w.to_bits()) {
            bytes.extend(values.iter().flat_map(|w| half::f32_to_f16(*w).to_le_bytes()));
            Dtype::F16
        } else {
            bytes.extend(values.iter().flat_map(|w| w.to_le_bytes()));
            Dtype::F32
        };
        Ok(Part::Dense { dtype, at: start..bytes.len() })
    }

    fn load_bias(&self, at: ExpertMatrix, rows: usize, bytes: &mut Vec<u8>) -> Result<Range<usize>, EngineError> {
        let bias = self.reader.read_expert_bias(at)?;
        let bias = bias.filter(|b| b.len() == rows).ok_or_else(|| EngineError::MissingRole {
            role: format!("the bias of {:?} in expert {} of layer {}", at.proj, at.expert, at.layer),
        })?;
        let start = bytes.len().next_multiple_of(64);
        bytes.resize(start, 0);
        bytes.extend(bias.iter().flat_map(|b| b.to_le_bytes()));
        Ok(start..bytes.len())
    }
}

impl ExpertSource for CheckpointExperts {
    fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError> {
        let Some(Some(Layer { moe, experts })) = self.layers.get(layer) else {
            return Err(EngineError::Spec(format!("layer {layer} has no experts")));
        };
        let one = |&id: &u32| {
            let slot = &experts[id as usize];
            match slot.get() {
                Some(expert) => Ok(expert.clone()),
                None => {
                    let expert = self.load(layer, id as usize, moe)?;
                    // Another session may have been first: its copy is the same.
                    Ok(slot.get_or_init(|| expert).clone())
                }
            }
        };
        ids.iter().map(one).collect()
    }

    fn resident_bytes(&self) -> u64 {
        let weights = |l: &Layer| 3 * (l.moe.experts as u64) * (l.moe.width as u64) * (self.hidden as u64);
        self.layers.iter().flatten().map(|l| 2 * weights(l)).sum()
    }
}
