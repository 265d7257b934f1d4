//! [`Streams`]: the hidden states of all calibration texts between two layers, and the steps that move them on.

use super::rows::Rows;
use super::watch::Watch;
use crate::calibrate::{CalibrateError, Routed, Stream, Tamper};
use crate::control::Control;
use crate::error::Result;
use smoe_engine::observer::Routes;
use smoe_engine::{ExpertSource, Layerwise, LoadedLayer, Silent};
use smoe_model::spec::Mlp;
use std::ops::Range;
use std::path::Path;

/// Both streams. Between layers they hold what enters the next one.
pub(crate) struct Streams {
    hidden: usize,
    /// Tokens of each text.
    texts: Vec<Range<usize>>,
    /// The residual streams, quantised and reference.
    residual: [Option<Rows>; 2],
    /// What enters the experts of the layer that was looked at last.
    inputs: [Option<Rows>; 2],
    routes: Routes,
}

/// Where hidden states may lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room<'a> {
    /// Bytes of hidden states beyond which they go into a file.
    pub(crate) memory_bytes: u64,
    /// The folder of that file.
    pub(crate) folder: &'a Path,
}

/// Bytes of all hidden states.
pub(crate) fn hidden_bytes(tokens: usize, hidden: usize, reference: bool) -> u64 {
    let arrays = if reference { 4 } else { 2 };
    (arrays * 4 * tokens as u64).saturating_mul(hidden as u64)
}

impl Streams {
    /// The embedded texts; `reference` asks for the second stream.
    pub(crate) fn embed(model: &Layerwise<'_>, texts: &[Vec<u32>], reference: bool, room: Room<'_>) -> Result<Self> {
        let hidden = model.spec().hidden;
        let mut end = 0;
        let ranges = texts.iter().map(|text| {
            let start = end;
            end += text.len();
            start..end
        });
        let ranges: Vec<_> = ranges.collect();
        let tokens = ranges.last().map_or(0, |r| r.end);
        let spill = hidden_bytes(tokens, hidden, reference) > room.memory_bytes;
        let rows = |wanted: bool| match (wanted, spill) {
            (false, _) => Ok(None),
            (true, false) => Ok(Some(Rows::in_memory(tokens, hidden))),
            (true, true) => Rows::in_file(tokens, hidden, room.folder).map(Some),
        };
        let mut streams = Self {
            hidden,
            texts: ranges,
            residual: [rows(true)?, rows(reference)?],
            inputs: [rows(true)?, rows(reference)?],
            routes: Routes::default(),
        };
        let (ids, mut at) = (texts.concat(), 0);
        model.embed(&ids, |x| -> Result<()> {
            streams.residual.iter_mut().flatten().try_for_each(|rows| rows.set(at, x))?;
            at += x.len() / hidden;
            Ok(())
        })?;
        Ok(streams)
    }

    /// Tokens of all texts.
    pub(crate) fn tokens(&self) -> usize {
        self.texts.last().map_or(0, |text| text.end)
    }

    /// What entered the experts, of the layer that was looked at last.
    pub(crate) fn inputs(&self) -> [Option<&Rows>; 2] {
        [self.inputs[0].as_ref(), self.inputs[1].as_ref()]
    }

    /// Whom the router chose there, on the quantised stream.
    pub(crate) fn routed(&self) -> Routed<'_> {
        Routed { k: self.routes.k, ids: &self.routes.ids, weights: &self.routes.weights }
    }

    /// Through the first half of a layer.
    pub(crate) fn mix(&mut self, layer: &LoadedLayer<'_>, control: &Control<'_>) -> Result<()> {
        self.each(|_, x| {
            control.check()?;
            Ok(layer.mix(x)?)
        })
    }

    /// Keeps what enters the experts and whom the router chooses, on what [`Streams::mix`] left.
    pub(crate) fn look(&mut self, layer: &LoadedLayer<'_>, tamper: &dyn Tamper, control: &Control<'_>) -> Result<()> {
        self.routes = Routes::default();
        for stream in [Stream::Quantised, Stream::Reference] {
            let slots = (&self.residual[stream as usize], &mut self.inputs[stream as usize]);
            let (Some(residual), Some(inputs)) = slots else { continue };
            for (i, text) in self.texts.iter().enumerate() {
                control.check()?;
                let mut watch = Watch::default();
                layer.look(&mut residual.range(text.clone())?.into_owned(), &mut watch)?;
                tamper.captured(layer.index(), stream, i, (&mut watch.inputs, &mut watch.routes));
                check_seen(layer, (i, text.len()), &watch, self.hidden)?;
                inputs.set(text.start, &watch.inputs)?;
                if stream == Stream::Quantised {
                    self.routes.k = watch.routes.k;
                    self.routes.ids.extend(watch.routes.ids);
                    self.routes.weights.extend(watch.routes.weights);
                }
            }
        }
        Ok(())
    }

    /// Through the second half of a layer: with the experts of the first source on the quantised stream, of the other on
    /// the reference stream.
    pub(crate) fn feed(
        &mut self,
        layer: &LoadedLayer<'_>,
        [quantised, original]: [&dyn ExpertSource; 2],
        control: &Control<'_>,
    ) -> Result<()> {
        self.each(|stream, x| {
            control.check()?;
            let source = if stream == Stream::Quantised { quantised } else { original };
            Ok(layer.feed(x, source, &mut Silent)?)
        })
    }

    fn each(&mut self, step: impl Fn(Stream, &mut [f32]) -> Result<()>) -> Result<()> {
        for stream in [Stream::Quantised, Stream::Reference] {
            let Some(residual) = &mut self.residual[stream as usize] else { continue };
            for text in &self.texts {
                let mut x = residual.range(text.clone())?.into_owned();
                step(stream, &mut x)?;
                residual.set(text.start, &x)?;
            }
        }
        Ok(())
    }
}

/// Every token was seen on its way into the experts, and the router's choice for it.
fn check_seen(layer: &LoadedLayer<'_>, (text, tokens): (usize, usize), seen: &Watch, hidden: usize) -> Result<()> {
    let Mlp::Moe(moe) = &layer.spec().mlp else { return Ok(()) };
    let fail = |what, expected, found| {
        Err(CalibrateError::Capture { layer: layer.index(), text, what, expected, found }.into())
    };
    let (k, slots) = (moe.top_k, tokens * moe.top_k);
    if seen.inputs.len() != tokens * hidden {
        return fail("values entering the experts", tokens * hidden, seen.inputs.len());
    }
    if seen.routes.ids.len() != slots || seen.routes.weights.len() != slots || seen.routes.k != k {
        return fail("choices of the router", slots, seen.routes.ids.len());
    }
    Ok(())
}
