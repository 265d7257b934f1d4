//! [`CheckpointLayer`]: a layer's inputs from the streams and its weights from the checkpoint, as the calibration reads
//! them.

use super::rows::Rows;
use crate::calibrate::{LayerSource, Projection, SourceError, Stream};
use crate::control::Control;
use smoe_model::Checkpoint;
use smoe_model::role::Proj;
use smoe_model::store::{ExpertMatrix, ExpertReader};
use std::borrow::Cow;
use std::ops::Range;

/// The source of one layer.
pub(crate) struct CheckpointLayer<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) layer: usize,
    /// Rows and columns of gate and up; down has them the other way round.
    pub(crate) shape: (usize, usize),
    /// What enters the experts on the quantised stream and, where it is needed, on the reference stream.
    pub(crate) inputs: [Option<&'a Rows>; 2],
    pub(crate) control: &'a Control<'a>,
    /// Told of an expert when its first matrix is read.
    pub(crate) begun: &'a (dyn Fn(usize) + Sync),
}

impl CheckpointLayer<'_> {
    fn rows_of(&self, stream: Stream) -> Result<&Rows, SourceError> {
        self.inputs[stream as usize].ok_or_else(|| format!("the {stream:?} stream was not captured").into())
    }

    fn at(&self, expert: usize, projection: Projection) -> ExpertMatrix {
        let proj = [Proj::Gate, Proj::Up, Proj::Down][projection as usize];
        ExpertMatrix { layer: self.layer, expert, proj }
    }
}

impl LayerSource for CheckpointLayer<'_> {
    fn block(&self, stream: Stream, tokens: Range<usize>) -> Result<Cow<'_, [f32]>, SourceError> {
        self.control.check()?;
        Ok(self.rows_of(stream)?.range(tokens)?)
    }

    fn rows(&self, stream: Stream, tokens: &[u32]) -> Result<Vec<f32>, SourceError> {
        self.control.check()?;
        Ok(self.rows_of(stream)?.gather(tokens)?)
    }

    fn weights(&self, expert: usize, projection: Projection) -> Result<Vec<f32>, SourceError> {
        self.control.check()?;
        if projection == Projection::Gate {
            (self.begun)(expert);
        }
        let mut out = vec![0.0; self.shape.0 * self.shape.1];
        self.checkpoint.read_expert_rows(self.at(expert, projection), 0, &mut out)?;
        Ok(out)
    }

    fn bias(&self, expert: usize, projection: Projection) -> Result<Option<Vec<f32>>, SourceError> {
        Ok(self.checkpoint.read_expert_bias(self.at(expert, projection))?)
    }
}
