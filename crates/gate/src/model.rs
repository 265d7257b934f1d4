//! What an evaluation needs of a model: logits of a window that starts from nothing.

use smoe_engine::observer::Silent;
use smoe_engine::{Engine, Want};

/// A model's own error.
pub type ModelFault = Box<dyn std::error::Error + Send + Sync>;

/// A model that can be evaluated.
pub trait LogitsModel {
    /// How many ids it knows.
    fn vocab(&self) -> usize;

    /// Logits `[window.len(), vocab]`, row-major: row `t` is what follows `window[..=t]`.
    ///
    /// # Errors
    /// Whatever keeps the model from answering.
    fn logits(&mut self, window: &[u32]) -> Result<Vec<f32>, ModelFault>;
}

/// An [`Engine`] as a [`LogitsModel`]: a fresh session for each window.
pub struct EngineModel<'a>(pub &'a Engine);

impl LogitsModel for EngineModel<'_> {
    fn vocab(&self) -> usize {
        self.0.spec().vocab
    }

    fn logits(&mut self, window: &[u32]) -> Result<Vec<f32>, ModelFault> {
        Ok(self.0.forward(&mut self.0.session(), window, &mut Silent, Want::All)?)
    }
}
