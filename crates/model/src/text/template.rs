//! Chat templates: Jinja as released models use it, under limits, since the text comes from a stranger's folder.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter};
use minijinja_contrib::pycompat;

use super::clock::strftime;
use super::error::{TextError, brief};
use super::tojson::{python_float, tojson};

/// Work that one rendering may do: an instruction, or 64 bytes made. A second or two at most.
const FUEL: u64 = 30_000_000;
/// Longest prompt in bytes: 16 M tokens of text.
const MAX_OUTPUT: usize = 64 << 20;
/// Released templates reach 25 kB.
const MAX_SOURCE: usize = 1 << 20;
const NAME: &str = "chat_template";

/// A template that has been parsed once.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) name: String,
    /// With the tags that only training needs taken out.
    pub(super) source: String,
    /// The file that it came from.
    file: String,
}

impl Template {
    pub(super) fn new(name: &str, source: &str, file: &str) -> Result<Self, TextError> {
        if source.len() > MAX_SOURCE {
            let reason = format!("chat template `{name}`: expected at most {MAX_SOURCE} B, found {} B", source.len());
            return Err(TextError::file(file, reason));
        }
        let template = Self { name: name.to_owned(), source: without_generation_tags(source), file: file.to_owned() };
        environment(0, &Refusal::default())
            .template_from_named_str(NAME, &template.source)
            .map_err(|error| template.fault(&error))?;
        Ok(template)
    }

    /// Renders `source`, which is the template or a marked copy of it.
    pub(super) fn render(&self, source: &str, context: &Value, now: i64) -> Result<String, TextError> {
        let refusal = Refusal::default();
        let environment = environment(now, &refusal);
        let mut out = Capped(Vec::new());
        let result = environment
            .template_from_named_str(NAME, source)
            .and_then(|template| template.render_captured_to(context.clone(), &mut out).map(drop));
        if let Some(reason) = refusal.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(TextError::Refused(brief(&reason)));
        }
        result.map_err(|error| self.fault(&error))?;
        String::from_utf8(out.0).map_err(|_| TextError::file(&self.file, "the template wrote half a character"))
    }

    fn fault(&self, error: &Error) -> TextError {
        let mut reason = error.kind().to_string();
        if let Some(detail) = error.detail() {
            reason = format!("{reason}: {detail}");
        }
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            reason = format!("{reason}: {cause}");
            source = cause.source();
        }
        let reason = brief(&format!("chat template `{}`: {reason}", self.name));
        TextError::Template { file: self.file.clone(), line: error.line().unwrap_or(0), reason }
    }
}

/// What `raise_exception` said.
type Refusal = Arc<Mutex<Option<String>>>;

/// Output that stops growing at [`MAX_OUTPUT`].
struct Capped(Vec<u8>);

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other(format!("the prompt is longer than {MAX_OUTPUT} B")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment<'source>(now: i64, refusal: &Refusal) -> Environment<'source> {
    let mut environment = Environment::new();
    // As the reference renderer sets Jinja up.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(python_method);
    environment.add_filter("tojson", |value: Value, kwargs: Kwargs| tojson(&value, &kwargs));
    python_tests(&mut environment);
    python_floats(&mut environment);
    let refusal = Arc::clone(refusal);
    environment.add_function("raise_exception", move |reason: String| -> Result<Value, Error> {
        *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.clone());
        Err(Error::new(ErrorKind::InvalidOperation, reason))
    });
    environment.add_function("strftime_now", move |format: String| strftime(now, &format));
    environment
}

/// Tests that Jinja answers otherwise: a string is a sequence and can be iterated, `None` cannot.
fn python_tests(environment: &mut Environment) {
    let is_sequence = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map);
    environment.add_test("sequence", move |value: Value| is_sequence(&value));
    environment.add_test("iterable", move |value: Value| {
        is_sequence(&value) || matches!(value.kind(), ValueKind::Iterable | ValueKind::Undefined)
    });
}

/// Floats as Python writes them (1e-07), where they are written and where `string` makes text of them.
fn python_floats(environment: &mut Environment) {
    let written = |value: &Value| {
        let float = value.kind() == ValueKind::Number && !value.is_integer();
        float.then(|| f64::try_from(value.clone()).ok().map(python_float)).flatten()
    };
    environment.set_formatter(move |out, state, value| match written(value) {
        Some(text) => Ok(out.write_str(&text)?),
        None => escape_formatter(out, state, value),
    });
    environment.add_filter("string", move |value: Value| match written(&value) {
        Some(text) => Value::from(text),
        None if value.kind() == ValueKind::String => value,
        None => Value::from(value.to_string()),
    });
}

/// Methods of Python strings that `pycompat` lacks, then `pycompat`.
fn python_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if value.kind() == ValueKind::String
        && let Some(text) = value.as_str()
    {
        match method {
            "removeprefix" | "removesuffix" => {
                let (affix,): (&str,) = from_args(args)?;
                let cut = if method == "removeprefix" { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
                return Ok(Value::from(cut.unwrap_or(text)));
            }
            "rsplit" => {
                let (separator, Rest(limit)): (&str, Rest<i64>) = from_args(args)?;
                let limit = limit.first().and_then(|limit| usize::try_from(*limit).ok()).unwrap_or(usize::MAX);
                if separator.is_empty() {
                    return Err(Error::new(ErrorKind::InvalidOperation, "rsplit: empty separator"));
                }
                let mut parts: Vec<&str> = text.rsplitn(limit.saturating_add(1), separator).collect();
                parts.reverse();
                return Ok(parts.into_iter().map(Value::from).collect());
            }
            _ => {}
        }
    }
    pycompat::unknown_method_callback(state, value, method, args)
}

/// `{% generation %}` marks what to train on. Blocks that are always taken stand in for it, so that the trimming of
/// white space around the tags stays.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start + 2..].find("%}").map(|length| length + 2) else { break };
        let inside = &rest[start + 2..start + length];
        let word = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let stand_in = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        // Only the opening is passed over where the tag is another: `%}` within a string must not hide a tag.
        let end = if stand_in.is_some() { start + length } else { start + 2 };
        match stand_in {
            Some(stand_in) => {
                out.push_str(&rest[..start + 2]);
                out.push_str(&inside.replacen(word, stand_in, 1));
            }
            None => out.push_str(&rest[..end]),
        }
        rest = &rest[end..];
    }
    out + rest
}
