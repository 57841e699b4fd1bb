//! Bodies in a format that the target prescribes: a Jinja template over the record.
//!
//! A template can use the members of the record by name, `alert` (the alert for the event) and `values` (the operator's own
//! values). [`VOCABULARY`] lists all names and filters.
//!
//! # Invariants
//!
//! * **Strict.** A name without a value is an error, and so is an unknown filter.
//! * **JSON is JSON.** If the target accepts JSON, each value is written as JSON, and a string gets its quotes. The
//!   output is parsed, and output that is not JSON is not delivered. No filter passes a text through unescaped.
//! * **No text from outside becomes markup or a line of its own** if the target accepts text: control characters are
//!   replaced.
//! * **Bounded,** in steps and in bytes.
//! * **Nothing leaks.** No error contains a value of the event or of the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::{BufMut, Bytes};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value, escape_formatter};
use serde::de::IgnoredAny;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::readable::{limited, printable};
use crate::{Facts, Record};
use net::secret::Secret;
use proof::event::Object;

mod alert;
mod samples;
#[cfg(test)]
mod tests;
mod values;

pub(super) use values::Origin;

use alert::Alert;
use values::Map;

/// The names and filters that a template has in addition to Jinja's, described for an operator.
pub const VOCABULARY: &str = "the members of the record (channel, channel_id, offset, event_id, type, time, received, \
                              confidence, network, verification, decoded, event), alert (severity, key, resolves, title, reason, facts, \
                              details, line) and values; the filters limit(N), slack and markdown";

/// The largest body, in bytes.
const MAX_BODY: usize = 8 << 20;

/// The most steps that rendering a template may take.
const MAX_STEPS: u64 = 1_000_000;

/// The name of the only template in an environment.
const NAME: &str = "template";

/// The longest part of a template that an error quotes, in UTF-16 units.
const SHOWN: usize = 80;

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// The text that a template is compiled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A template that is compiled into channeld.
    Shipped(BuiltInTarget),
    /// The operator's own template.
    Own(Box<str>),
}

/// A compiled template.
pub struct Template {
    source: Source,
    content_type: Box<str>,
    values: BTreeMap<String, Secret>,
    environment: Environment<'static>,
}

impl Template {
    /// Compiles a template that renders bodies of the media type `content_type`.
    ///
    /// # Errors
    /// A message for an operator that describes the mistake.
    pub fn new(source: Source, content_type: &str, values: BTreeMap<String, Secret>) -> Result<Self, String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(MAX_STEPS));
        environment.remove_filter("safe");
        let escape = if is_json(content_type) { AutoEscape::Json } else { AutoEscape::None };
        environment.set_auto_escape_callback(move |_| escape.clone());
        if !is_json(content_type) {
            environment.set_formatter(if is_markup(content_type) { markup } else { text });
        }
        environment.add_filter("limit", |text: &str, limit: usize| limited(text, limit));
        environment.add_filter("slack", slack);
        environment.add_filter("markdown", markdown);
        let compiled = environment.add_template_owned(NAME, source.text().to_owned());
        compiled.map_err(|error| explained(&error, source.text(), &values))?;
        Ok(Self { source, content_type: content_type.into(), values, environment })
    }

    /// Returns the text of the template. It contains none of its `values`.
    pub fn text(&self) -> &str {
        self.source.text()
    }

    /// Returns the target if the template is compiled into channeld.
    pub fn shipped(&self) -> Option<BuiltInTarget> {
        match self.source {
            Source::Shipped(shipped) => Some(shipped),
            Source::Own(_) => None,
        }
    }

    /// The media type of the bodies.
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The path and query to append to the target's address for this event, if it needs an address of its own.
    pub(super) fn below(&self, record: &Record) -> Option<UrlSuffix> {
        if self.shipped() != Some(BuiltInTarget::Opsgenie) {
            return None;
        }
        let alert = Alert::of(record);
        alert
            .resolves
            .then(|| UrlSuffix { path: vec![alert.key, "close".to_owned()], query: ("identifierType", "alias") })
    }

    /// Whether the bodies are JSON.
    pub fn makes_json(&self) -> bool {
        is_json(&self.content_type)
    }

    /// Removes the operator's values from a text that the target sent, because the target may echo them.
    pub fn redacted(&self, text: String) -> String {
        without(&self.values, text)
    }

    /// Renders sample events and returns one sentence for each mistake. Uses only the samples that `takes` accepts. If
    /// several samples lead to the same message, it is returned once.
    pub fn try_samples(&self, include_proof: bool, takes: impl Fn(&Facts) -> bool) -> Vec<String> {
        let samples = samples::all().into_iter().filter(|(_, record)| takes(record.facts()));
        let mut said = BTreeSet::new();
        let tried = samples.filter_map(|(name, record)| {
            let json = record.data(include_proof);
            let error = self.render(&record, &json, Origin::Sample).err()?;
            said.insert(error.clone()).then(|| format!("{error} (in a sample: {name})"))
        });
        tried.collect()
    }

    /// Renders the body for a record. `json` is the record's JSON, with or without its proof.
    pub(super) fn render(&self, record: &Record, json: &[u8], origin: Origin) -> Result<Bytes, String> {
        let mut out = Vec::new().limit(MAX_BODY).writer();
        let template = self.environment.get_template(NAME);
        let context = self.context(record, json, origin);
        let rendered = template.and_then(|template| template.render_captured_to(context, &mut out).map(drop));
        rendered.map_err(|error| explained(&error, self.source.text(), &self.values))?;
        let body = out.into_inner().into_inner();
        if !self.makes_json() {
            return Ok(body.into());
        }
        serde_json::from_slice::<IgnoredAny>(&body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!(
                "the template's output is not JSON, at line {line}, column {column}: a value includes its quotes, as in \
                 \"text\": {{{{ type }}}}, and strings are joined by ~"
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
            Self::Shipped(BuiltInTarget::Slack) => include_str!("template/slack.jinja"),
            Self::Shipped(BuiltInTarget::Teams) => include_str!("template/teams.jinja"),
            Self::Shipped(BuiltInTarget::Discord) => include_str!("template/discord.jinja"),
            Self::Shipped(BuiltInTarget::PagerDuty) => include_str!("template/pagerduty.jinja"),
            Self::Shipped(BuiltInTarget::Opsgenie) => include_str!("template/opsgenie.jinja"),
            Self::Own(text) => text,
        }
    }
}

/// A target with a built-in template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum BuiltInTarget {
    /// An incoming webhook of Slack.
    Slack,
    /// A workflow of Microsoft Teams that accepts Adaptive Cards.
    Teams,
    /// A webhook of a Discord channel.
    Discord,
    /// `PagerDuty`'s Events API v2.
    PagerDuty,
    /// Opsgenie's Alert API, which Jira Service Management also offers.
    Opsgenie,
}

/// The path and query to append to a target's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlSuffix {
    /// Path segments, not yet encoded.
    pub path: Vec<String>,
    /// The name and the value of a query parameter.
    pub query: (&'static str, &'static str),
}

pub(super) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == JSON || essence.ends_with("+json")
}

fn is_markup(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("html") || essence.ends_with("xml")
}

/// Describes an error without event or operator values: its kind, its line, and the affected part of the template.
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
                "no value for{part}: is it spelled correctly? Test for optional values with {{% if … is defined %}}"
            )
        }
        ErrorKind::OutOfFuel => format!("rendering takes more than {MAX_STEPS} steps"),
        ErrorKind::WriteFailure => format!("the output has more than {} MiB", MAX_BODY >> 20),
        // For these kinds the library quotes only the template, never a value.
        ErrorKind::SyntaxError
        | ErrorKind::UnknownFilter
        | ErrorKind::UnknownTest
        | ErrorKind::UnknownFunction
        | ErrorKind::BadEscape => error.detail().unwrap_or("it is not a template").to_owned() + &part,
        kind => format!("{kind}{part}"),
    };
    without(values, format!("{line}{said}"))
}

fn without(values: &BTreeMap<String, Secret>, text: String) -> String {
    let known = values.values().map(Secret::expose).filter(|value| !value.is_empty());
    known.fold(text, |text, value| text.replace(value, "[secret]"))
}

/// Writes a value into a text. Characters that could break a line are replaced.
fn text(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) if !value.is_safe() => out.write_str(&printable(text)).map_err(Error::from),
        _ => escape_formatter(out, state, value),
    }
}

fn markup(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_safe() {
        return escape_formatter(out, state, value);
    }
    let text = value.as_str().map_or_else(|| value.to_string(), printable);
    out.write_str(&entities(&text).replace('"', "&quot;").replace('\'', "&#39;")).map_err(Error::from)
}

/// Escapes a text for Slack's markup, so that it cannot contain a mention or a link.
fn slack(text: &str) -> String {
    entities(&printable(text))
}

fn entities(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Escapes a text for Markdown, so that Markdown renders it literally.
fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, c) in printable(text).chars().enumerate() {
        // `-` and `+` start a list, but only at the start of a text.
        if "\\`*_~|<>[]()#".contains(c) || at == 0 && "-+".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Removes the white space between JSON tokens, so that the JSON is on one line.
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
