//! [`ExpertSource`]: who has the routed experts' weights.

use crate::error::EngineError;
use smoe_codec::Codec;
use smoe_model::role::Proj;
use smoe_model::store::Dtype;
use std::ops::Range;
use std::sync::Arc;

/// How one matrix lies in an expert's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Rows of plain numbers.
    Dense {
        /// `Bf16`, `F16` or `F32`.
        dtype: Dtype,
        /// Bytes within the blob.
        at: Range<usize>,
    },
    /// Packed rows.
    Coded {
        /// The codec.
        codec: Codec,
        /// All rows' codes.
        codes: Range<usize>,
        /// All rows' scales.
        scales: Range<usize>,
    },
}

/// Where everything lies in an expert's bytes; the same for many experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertLayout {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of gate and up.
    pub width: usize,
    /// Gate, up, down.
    pub parts: [Part; 3],
    /// f32 biases of gate, up and down.
    pub biases: Option<[Range<usize>; 3]>,
}

/// An expert's bytes, wherever they are held: dropping the holder lifts the pin.
pub type PinnedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// One expert, pinned in memory while this lives.
#[derive(Clone)]
pub struct Expert {
    /// Where things lie.
    pub layout: Arc<ExpertLayout>,
    /// Codes, scales or plain numbers, biases.
    pub bytes: PinnedBytes,
}

impl Expert {
    /// Rows and columns of a matrix.
    pub fn shape(&self, proj: Proj) -> (usize, usize) {
        match proj {
            Proj::Gate | Proj::Up => (self.layout.width, self.layout.hidden),
            Proj::Down => (self.layout.hidden, self.layout.width),
        }
    }

    /// A matrix's place.
    pub fn part(&self, proj: Proj) -> &Part {
        &self.layout.parts[proj as usize]
    }

    /// A matrix's bias.
    pub fn bias(&self, proj: Proj) -> Option<Vec<f32>> {
        let at = self.layout.biases.as_ref()?[proj as usize].clone();
        let bytes = &(*self.bytes).as_ref()[at];
        Some(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }
}

/// An expert that was asked for.
pub enum Pending {
    /// In memory.
    Here(Expert),
    /// On its way from a drive.
    Coming(Box<dyn Arrival>),
}

/// An expert on its way.
pub trait Arrival: Send {
    /// Whether [`Arrival::wait`] would return at once.
    fn has_arrived(&self) -> bool;
    /// Waits for it.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or the wait was given up.
    fn wait(self: Box<Self>) -> Result<Expert, EngineError>;
}

/// Routed experts, by layer and index.
pub trait ExpertSource: Send + Sync {
    /// The experts `ids` of a layer, in this order, pinned until dropped.
    fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError>;
    /// [`ExpertSource::fetch`] without the wait: what a source has comes at once, what it must read is being read when
    /// this returns. A caller computes with the former meanwhile.
    fn request(&self, layer: usize, ids: &[u32]) -> Result<Vec<Pending>, EngineError> {
        Ok(self.fetch(layer, ids)?.into_iter().map(Pending::Here).collect())
    }
    /// How many experts may be pinned at once; a caller with more visits them in turns.
    fn at_once(&self) -> usize {
        usize::MAX
    }
    /// Whether an expert is in memory now: a caller with several turns visits those first, before they make room.
    fn holds(&self, layer: usize, id: u32) -> bool {
        let _ = (layer, id);
        true
    }
    /// Says which experts will be asked for next; a source that reads from a drive begins.
    fn expect(&self, layer: usize, ids: &[u32]) {
        let _ = (layer, ids);
    }
    /// Whether [`ExpertSource::guess`] is of use.
    fn wants_guesses(&self) -> bool {
        false
    }
    /// Says which experts a later layer may ask for; nothing depends on it but time.
    fn guess(&self, layer: usize, ids: &[u32]) {
        let _ = (layer, ids);
    }
    /// Bytes that the source holds in memory when everything was used once.
    fn resident_bytes(&self) -> u64;
}

impl<T: ExpertSource + ?Sized> ExpertSource for Arc<T> {
    fn fetch(&self, layer: usize, ids: &[u32]) -> Result<Vec<Expert>, EngineError> {
        (**self).fetch(layer, ids)
    }

    fn request(&self, layer: usize, ids: &[u32]) -> Result<Vec<Pending>, EngineError> {
        (**self).request(layer, ids)
    }

    fn at_once(&self) -> usize {
        (**self).at_once()
    }

    fn holds(&self, layer: usize, id: u32) -> bool {
        (**self).holds(layer, id)
    }

    fn expect(&self, layer: usize, ids: &[u32]) {
        (**self).expect(layer, ids);
    }

    fn wants_guesses(&self) -> bool {
        (**self).wants_guesses()
    }

    fn guess(&self, layer: usize, ids: &[u32]) {
        (**self).guess(layer, ids);
    }

    fn resident_bytes(&self) -> u64 {
        (**self).resident_bytes()
    }
}
