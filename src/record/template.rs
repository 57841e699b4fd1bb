//! Bodies that others prescribe: a Jinja template over the record.
//!
//! A template sees the members of the record by their names, `alert` (what an alert says of the event) and `values` (the
//! operator's own). [`VOCABULARY`] lists what it can use.
//!
//! # Invariants
//!
//! * **Strict.** A name without a value is an error, and so is a filter that does not exist.
//! * **JSON is JSON.** Where the target takes JSON, each value is written as JSON, a text with its quotes, and what comes out
//!   is parsed: what is not JSON is not delivered. There is no filter that lets a text through as it is.
//! * **No text of others becomes markup or a line of its own** where the target takes text: control characters are replaced.
//! * **Bounded,** in steps and in bytes.
//! * **Nothing leaks.** No error holds a value of the event or of the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::io;

use bytes::Bytes;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value, escape_formatter};
use serde::de::IgnoredAny;

use super::readable::{limited, printable};
use super::{Facts, Record};
use net::secret::Secret;
use proof::event::Object;

mod alert;
mod samples;
mod shipped;
#[cfg(test)]
mod tests;
mod values;

pub(super) use alert::Alert;
pub use shipped::{Below, Shipped};

use values::{Map, Origin};

/// The names, filters and tests that a template has beside those of Jinja, for an operator.
pub const VOCABULARY: &str = "the members of the record (channel, channel_id, offset, event_id, type, time, received, \
                              verification, decoded, event), alert (severity, key, resolves, title, reason, facts, \
                              details, line) and values; the filters limit(N), slack and markdown";

/// The largest body.
const MAX_BODY: usize = 8 << 20;

/// The most steps that one rendering takes.
const MAX_STEPS: u64 = 1_000_000;

/// What the one template of an environment is called.
const NAME: &str = "template";

/// The longest part of a template that an error shows, in UTF-16 units.
const SHOWN: usize = 80;

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// What a template is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// One that is compiled in.
    Shipped(Shipped),
    /// The operator's own.
    Own(Box<str>),
}

/// A template that has been compiled.
pub struct Template {
    source: Source,
    content_type: Box<str>,
    values: BTreeMap<String, Secret>,
    environment: Environment<'static>,
}

impl Template {
    /// Compiles a template whose bodies have that media type.
    ///
    /// # Errors
    /// What is wrong with it, for an operator.
    pub fn new(source: Source, content_type: &str, values: BTreeMap<String, Secret>) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(MAX_STEPS));
        environment.remove_filter("safe");
        let escape = if is_json(content_type) { AutoEscape::Json } else { AutoEscape::None };
        environment.set_auto_escape_callback(move |_| escape.clone());
        if !is_json(content_type) {
            let is_markup = is_markup(content_type);
            environment.set_formatter(
                move |out, state, value| {
                    if is_markup { markup(out, state, value) } else { text(out, state, value) }
                },
            );
        }
        environment.add_filter("limit", |text: &str, limit: usize| limited(text, limit));
        environment.add_filter("slack", slack);
        environment.add_filter("markdown", markdown);
        let compiled = environment.add_template_owned(NAME, source.text().to_owned());
        compiled.map_err(|error| explained(&error, source.text(), &values))?;
        Ok(Self { source, content_type: content_type.into(), values, environment })
    }

    /// The target, where the template is one that is compiled in.
    pub fn shipped(&self) -> Option<Shipped> {
        match self.source {
            Source::Shipped(shipped) => Some(shipped),
            Source::Own(_) => None,
        }
    }

    /// The media type of what it makes.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// Whether what it makes is JSON.
    pub fn makes_json(&self) -> bool {
        is_json(&self.content_type)
    }

    /// A text of the target without the operator's values, which it may repeat.
    pub fn redacted(&self, text: String) -> String {
        without(&self.values, text)
    }

    /// What is wrong with it, by samples of the events that `takes` lets through, a sentence each. A mistake that several
    /// samples show is said once.
    pub fn try_samples(&self, include_proof: bool, takes: impl Fn(&Facts) -> bool) -> Vec<String> {
        let samples = samples::all().into_iter().filter(|(_, record)| takes(record.facts()));
        let mut said = BTreeSet::new();
        let tried = samples.filter_map(|(name, record)| {
            let json = super::shape::data(&record, include_proof);
            let error = self.body(&record, &json, Origin::Sample).err()?;
            said.insert(error.clone()).then(|| format!("{error} (in a sample: {name})"))
        });
        tried.collect()
    }

    /// The body for a record, whose JSON with or without its proof is `json`.
    pub(super) fn render(&self, record: &Record, json: &[u8]) -> Result<Bytes, String> {
        self.body(record, json, Origin::Event)
    }

    fn body(&self, record: &Record, json: &[u8], origin: Origin) -> Result<Bytes, String> {
        let mut out = Bounded(Vec::new());
        let template = self.environment.get_template(NAME).map_err(|error| self.explained(&error))?;
        let rendered = template.render_captured_to(self.context(record, json, origin), &mut out).map(drop);
        rendered.map_err(|error| self.explained(&error))?;
        let Bounded(body) = out;
        if !self.makes_json() {
            return Ok(body.into());
        }
        serde_json::from_slice::<IgnoredAny>(&body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!(
                "what the template makes is no JSON, at line {line}, column {column}: a value comes with its own quotes, as in \
                 \"text\": {{{{ type }}}}, and texts are joined by ~"
            )
        })?;
        Ok(compact(body).into())
    }

    fn context(&self, record: &Record, json: &[u8], origin: Origin) -> Value {
        let record_json = Object::read(json).expect("a record is JSON");
        let member =
            |(name, json): (&str, &serde_json::value::RawValue)| (Value::from(name), values::value(json.get(), origin));
        let mut context: Map = record_json.members().map(member).collect();
        let own: Map =
            self.values.iter().map(|(name, value)| (Value::from(name.as_str()), value.expose().into())).collect();
        context.insert("values".into(), own.into());
        context.insert("alert".into(), Alert::of(record).value());
        context.into()
    }

    fn explained(&self, error: &Error) -> String {
        explained(error, self.source.text(), &self.values)
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        let Self { source, content_type, values, environment: _ } = self;
        (source, content_type, values) == (&other.source, &other.content_type, &other.values)
    }
}

impl Eq for Template {}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("shipped", &self.shipped()).finish_non_exhaustive()
    }
}

impl Source {
    fn text(&self) -> &str {
        match self {
            Self::Shipped(shipped) => shipped.source(),
            Self::Own(text) => text,
        }
    }
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == JSON || essence.ends_with("+json")
}

fn is_markup(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("html") || essence.ends_with("xml")
}

/// An error without what a value held: its kind, where, and what of the template it is about.
fn explained(error: &Error, source: &str, values: &BTreeMap<String, Secret>) -> String {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    let part = error.range().and_then(|range| source.get(range));
    let part = part.map(|part| printable(&limited(part.lines().next().unwrap_or_default(), SHOWN)));
    let part = part.filter(|part| !part.is_empty()).map(|part| format!(" `{part}`")).unwrap_or_default();
    let said = match error.kind() {
        ErrorKind::UndefinedError if part.starts_with(" `values.") => {
            format!("no value for{part}: set it in template_values, or a file that holds it in template_value_files")
        }
        ErrorKind::UndefinedError => {
            format!(
                "no value for{part}: is it spelled right? What not every event has is asked for by {{% if … is defined %}}"
            )
        }
        ErrorKind::OutOfFuel => format!("takes more than {MAX_STEPS} steps"),
        ErrorKind::WriteFailure => format!("makes more than {} MiB", MAX_BODY >> 20),
        // Of these the library tells what the template says, and never a value.
        ErrorKind::SyntaxError
        | ErrorKind::UnknownFilter
        | ErrorKind::UnknownTest
        | ErrorKind::UnknownFunction
        | ErrorKind::BadEscape => error.detail().unwrap_or("it is not a template").to_owned() + &part,
        kind => format!("{kind}{part}"),
    };
    without(values, format!("{line}{said}"))
}

/// A text without the operator's values.
fn without(values: &BTreeMap<String, Secret>, text: String) -> String {
    let known = values.values().map(Secret::expose).filter(|value| !value.is_empty());
    known.fold(text, |text, value| text.replace(value, "[secret]"))
}

/// Writes a value into a text: what may break a line is replaced.
fn text(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if !value.is_safe() => out.write_str(&printable(text)).map_err(Error::from),
        _ => escape_formatter(out, state, value),
    }
}

/// Writes a value into HTML or XML.
fn markup(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_safe() {
        return escape_formatter(out, state, value);
    }
    let text = value.as_str().map_or_else(|| value.to_string(), printable);
    for c in text.chars() {
        match c {
            '&' => out.write_str("&amp;")?,
            '<' => out.write_str("&lt;")?,
            '>' => out.write_str("&gt;")?,
            '"' => out.write_str("&quot;")?,
            '\'' => out.write_str("&#39;")?,
            c => out.write_char(c)?,
        }
    }
    Ok(())
}

/// A text in Slack's markup: no mention and no link of others.
fn slack(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A text in Markdown, in which nothing is markup.
fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, c) in printable(text).chars().enumerate() {
        // What begins a list or a quotation does so at the beginning only.
        if "\\`*_~|<>[]()#".contains(c) || at == 0 && "-+".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// JSON without the space between its tokens: on one line.
fn compact(mut json: Vec<u8>) -> Vec<u8> {
    let (mut in_text, mut escaped) = (false, false);
    json.retain(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ => {}
        }
        in_text || !byte.is_ascii_whitespace()
    });
    json
}

/// Takes so many bytes, and then no more.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_BODY {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
