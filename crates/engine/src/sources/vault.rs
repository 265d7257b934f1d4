//! A vault's experts, all in memory.

use crate::error::EngineError;
use crate::experts::{Expert, ExpertLayout, ExpertSource, Part, PinnedBytes};
use smoe_model::spec::{ModelSpec, MoeSpec};
use smoe_vault::{BlobLayout, ExpertRecord, VaultFile};
use std::sync::Arc;

/// Every expert of a vault, read and checked when it is opened.
pub struct VaultExperts {
    /// By layer; empty for layers without experts.
    layers: Vec<Vec<Expert>>,
    bytes: u64,
}

impl VaultExperts {
    /// Reads the experts that `spec` asks for.
    ///
    /// # Errors
    /// An expert that is missing, has another shape than the spec says, cannot be read or is damaged.
    pub fn load(file: &VaultFile, spec: &ModelSpec) -> Result<Self, EngineError> {
        let mut layers: Vec<Vec<Expert>> = Vec::new();
        let mut total = 0;
        for places in expert_places(file, spec)? {
            let mut layer = Vec::with_capacity(places.len());
            for ExpertPlace { record, layout } in places {
                let blob = file.read_blob(&record)?;
                total += blob.len() as u64;
                let bytes: PinnedBytes = Arc::new(blob);
                layer.push(Expert { layout, bytes });
            }
            layers.push(layer);
        }
        Ok(Self { layers, bytes: total })
    }
}

/// Where an expert lies in a vault, and how its blob is laid out.
#[derive(Debug, Clone)]
pub struct ExpertPlace {
    /// Its record.
    pub record: ExpertRecord,
    /// Its layout, shared by all that are alike.
    pub layout: Arc<ExpertLayout>,
}

/// The experts that `spec` asks for, by layer; none for layers without experts. Nothing is read: what does not fit is
/// refused at once.
///
/// # Errors
/// An expert that is missing or has another shape than the spec says.
pub fn expert_places(file: &VaultFile, spec: &ModelSpec) -> Result<Vec<Vec<ExpertPlace>>, EngineError> {
    let mut layouts = Layouts::default();
    let mut layers: Vec<Vec<ExpertPlace>> = spec.layers.iter().map(|_| Vec::new()).collect();
    for (layer, moe) in spec.moe_layers() {
        for expert in 0..moe.experts {
            let record = *record_of(file, spec.hidden, (layer, expert), moe)?;
            layers[layer].push(ExpertPlace { record, layout: layouts.of(file, &record)? });
        }
    }
    Ok(layers)
}

/// The record of an expert, of the shape that the spec says.
pub(crate) fn record_of<'a>(
    file: &'a VaultFile,
    hidden: usize,
    (layer, expert): (usize, usize),
    moe: &MoeSpec,
) -> Result<&'a ExpertRecord, EngineError> {
    let fail = |cause: String| EngineError::Manifest { file: file.name().into(), part: "expert table", cause };
    let ids = u32::try_from(layer).ok().zip(u32::try_from(expert).ok());
    let record = ids.and_then(|(layer, expert)| file.expert(layer, expert));
    let record = record.ok_or_else(|| fail(format!("layer {layer} has no expert {expert}")))?;
    let found = (record.hidden as usize, record.width as usize, record.biases);
    let expected = (hidden, moe.width, moe.expert_bias);
    if found != expected {
        let text =
            format!("layer {layer}, expert {expert}: expected (hidden, width, biases) {expected:?}, found {found:?}");
        return Err(fail(text));
    }
    Ok(record)
}

/// Layouts, each once: a model has one or a few.
#[derive(Default)]
struct Layouts(Vec<Arc<ExpertLayout>>);

impl Layouts {
    fn of(&mut self, file: &VaultFile, record: &ExpertRecord) -> Result<Arc<ExpertLayout>, EngineError> {
        let blob = record.layout().map_err(|kind| EngineError::Manifest {
            file: file.name().into(),
            part: "expert table",
            cause: kind.to_string(),
        })?;
        let layout = layout_of(&blob);
        if let Some(known) = self.0.iter().find(|known| ***known == layout) {
            return Ok(known.clone());
        }
        self.0.push(Arc::new(layout));
        Ok(self.0[self.0.len() - 1].clone())
    }
}

/// Where the parts of a blob lie.
fn layout_of(blob: &BlobLayout) -> ExpertLayout {
    let part = |p| Part::Coded { codec: blob.codec(p), codes: blob.codes(p), scales: blob.scales(p) };
    let (width, hidden) = blob.shape(0);
    ExpertLayout {
        hidden,
        width,
        parts: [part(0), part(1), part(2)],
        biases: blob.bias(0).zip(blob.bias(1)).zip(blob.bias(2)).map(|((gate, up), down)| [gate, up, down]),
    }
}

/// The blobs of one layer, in memory before they are in a vault.
pub struct BlobExperts {
    layer: usize,
    experts: Vec<Expert>,
}

impl BlobExperts {
    /// Experts of `layer` in their order, blobs of `layout`.
    ///
    /// # Panics
    /// If a blob does not have the layout's length.
    pub fn new(layer: usize, layout: &BlobLayout, blobs: Vec<Vec<u8>>) -> Self {
        let place = Arc::new(layout_of(layout));
        let expert = |blob: Vec<u8>| {
            assert_eq!(blob.len(), layout.len_bytes(), "a blob of layer {layer}");
            let bytes: PinnedBytes = Arc::new(blob);
            Expert { layout: place.clone(), bytes }
        };
        Self { layer, experts: blobs.into_iter().map(expert).collect() }
    }
}

impl ExpertSource for BlobExperts {
    fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError> {
        let missing = |id: u32| EngineError::Spec(format!("layer {layer} has no expert {id} here"));
        let one = |&id: &u32| self.experts.get(id as usize).filter(|_| layer == self.layer).cloned();
        ids.iter().map(|id| one(id).ok_or_else(|| missing(*id))).collect()
    }

    fn resident_bytes(&self) -> u64 {
        self.experts.iter().map(|e| (*e.bytes).as_ref().len() as u64).sum()
    }
}

impl ExpertSource for VaultExperts {
    fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError> {
        let experts = self.layers.get(layer).map_or(&[][..], Vec::as_slice);
        let missing = |id: u32| EngineError::Spec(format!("layer {layer} has no expert {id}"));
        ids.iter().map(|&id| experts.get(id as usize).cloned().ok_or_else(|| missing(id))).collect()
    }

    fn resident_bytes(&self) -> u64 {
        self.bytes
    }
}
