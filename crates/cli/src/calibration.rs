//! The text of `--calibrate`, for the commands that take it.

use crate::job::counted;
use crate::model;
use crate::ui::{Ui, Unit};
use anyhow::Context;
use smoe_gate::Windows;
use smoe_quantize::capture::{CalibrationText, OwnText, TextKind, WINDOW, own_text};
use std::path::Path;
use std::time::Instant;

/// What `--calibrate` is given for text that the model writes itself.
const OWN: &str = "self";

/// Reads the calibration text, or has the model write it.
pub(crate) fn text(checkpoint: &Path, path: &Path, own: &OwnText, ui: &Ui) -> anyhow::Result<CalibrationText> {
    if path.as_os_str() == OWN {
        let began = Instant::now();
        let text = counted("writing text", Unit::Count("tokens"), |control| own_text(checkpoint, own, control))
            .with_context(|| model::name(checkpoint))?;
        let seconds = began.elapsed().as_secs_f64();
        ui.note(format_args!("the model wrote {} tokens of its own in {seconds:.1} s", text.tokens()));
        return Ok(text);
    }
    let windows = path.extension().is_some_and(|extension| extension == "safetensors");
    let tokenizer = if windows { None } else { model::text(checkpoint)? };
    let rows = Windows::read(path, tokenizer.as_ref(), WINDOW).with_context(|| model::name(path))?;
    rows.notes().iter().for_each(|note| ui.note(format_args!("note: {}: {note}", path.display())));
    Ok(CalibrationText {
        name: path.file_name().map_or_else(|| "text".into(), |name| name.to_string_lossy().into_owned()),
        kind: if windows { TextKind::Windows } else { TextKind::Documents },
        rows: (0..rows.rows()).map(|row| rows.row(row).to_vec()).collect(),
    })
}
