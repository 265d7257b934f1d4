//! Results token by token, in the form of a checkpoint's `reference.safetensors`.

use std::path::Path;

use smoe_engine::tensors::{self, Array, Arrays};

use crate::error::GateError;

/// `[rows, width]`, where `width` is the longest window less one. Column t of a row speaks of the id at t + 1.
#[derive(Debug, Clone, PartialEq)]
pub struct PerToken {
    /// Windows.
    pub rows: usize,
    /// Predicted positions of the longest window.
    pub width: usize,
    /// Negative log-likelihood, nats; NaN where a window is short.
    pub nll: Vec<f32>,
    /// The most likely id; -1 where a window is short.
    pub argmax: Vec<i32>,
    /// KL(reference || candidate), nats, against a reference; NaN where a window is short.
    pub kld: Option<Vec<f32>>,
}

impl PerToken {
    pub(crate) fn new(rows: usize, width: usize, against: bool) -> Self {
        let cells = rows * width;
        let nll = vec![f32::NAN; cells];
        let kld = against.then(|| nll.clone());
        Self { rows, width, nll, argmax: vec![-1; cells], kld }
    }

    /// Writes `nll`, `argmax` and, against a reference, `kld` as a safetensors file, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), GateError> {
        let shape = [self.rows, self.width];
        let mut arrays = Arrays::new();
        arrays.insert("nll".into(), Array::floats(&shape, self.nll.clone()));
        arrays.insert("argmax".into(), Array::integers(&shape, self.argmax.clone()));
        if let Some(kld) = &self.kld {
            arrays.insert("kld".into(), Array::floats(&shape, kld.clone()));
        }
        tensors::write(path, &arrays).map_err(|error| GateError::input(&path.display().to_string(), error.to_string()))
    }
}
