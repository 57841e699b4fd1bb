//! The shapes in which sinks write a record.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::{Confidence, Record, rfc3339};
use proof::event::{EventKey, Offset};

mod readable;
mod template;

pub use readable::{Readable, printable};
pub use template::{BuiltInTarget, JSON, Source, Template, UrlSuffix, VOCABULARY};

use template::Origin;

/// The format in which a sink writes an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Format {
    /// The record.
    #[default]
    Json,
    /// A CloudEvents 1.0 event in its structured JSON form, with the record as its `data`.
    CloudEvents,
    /// The service's event alone.
    Raw,
    /// The readable line.
    Text,
    /// The output of a template.
    Template,
}

/// The shape of a sink's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The format.
    pub format: Format,
    /// Whether the record includes the proof in addition to the event, so that an auditor can verify it years later.
    pub include_proof: bool,
    /// The template. Set only for [`Format::Template`].
    pub template: Option<Arc<Template>>,
}

/// A record in the shape of one sink. It can only be made from a [`Record`].
#[derive(Clone, Debug)]
pub struct Message {
    record: Arc<Record>,
    shape: Shape,
    body: Bytes,
    unshaped: Option<Box<str>>,
}

impl Message {
    /// Renders the record in this shape.
    pub fn new(record: &Arc<Record>, shape: &Shape) -> Self {
        let (body, unshaped) = match body(record, shape) {
            Ok(body) => (body, None),
            Err(why) => (Bytes::new(), Some(why.into())),
        };
        Self { record: record.clone(), shape: shape.clone(), body, unshaped }
    }

    /// Tells an operator why the record cannot be rendered in this shape. No sink gets a message that was not rendered.
    /// `None` if the record was rendered.
    pub fn unshaped(&self) -> Option<&str> {
        self.unshaped.as_deref()
    }

    /// The record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The event's offset in its channel.
    pub fn offset(&self) -> Offset {
        self.record.offset
    }

    /// The offset and id of the event.
    pub fn event_key(&self) -> EventKey {
        self.record.event_key()
    }

    /// The bytes that a sink writes, without a trailing line break. The body is one JSON object on one line, except for the
    /// format `text` and for templates of other media types.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the proof as JSON, if the shape includes it and the event has one. This parses the event.
    pub fn proof(&self) -> Option<Bytes> {
        (self.shape.include_proof && self.record.is_verified()).then(|| self.record.proof().into())
    }

    /// The media type of a batch of such bodies: a JSON array, or lines.
    pub fn batch_content_type(&self) -> &str {
        match self.shape.format {
            Format::CloudEvents => "application/cloudevents-batch+json",
            Format::Template if self.is_json() => JSON,
            _ => self.content_type(),
        }
    }

    /// The media type of the body.
    pub fn content_type(&self) -> &str {
        match (self.shape.format, &self.shape.template) {
            (Format::Text, _) => "text/plain; charset=utf-8",
            (Format::CloudEvents, _) => "application/cloudevents+json",
            (Format::Template, Some(template)) => template.content_type(),
            (Format::Json | Format::Raw | Format::Template, _) => JSON,
        }
    }

    /// Whether the body is JSON.
    pub fn is_json(&self) -> bool {
        template::is_json(self.content_type())
    }

    /// Returns the path and query to append to the target's address, if this event needs an address of its own.
    pub fn below(&self) -> Option<UrlSuffix> {
        self.shape.template.as_ref()?.below(&self.record)
    }
}

fn body(record: &Record, shape: &Shape) -> Result<Bytes, String> {
    let data = || record.data(shape.include_proof);
    Ok(match (shape.format, &shape.template) {
        (Format::Raw, _) => record.event(),
        (Format::CloudEvents, _) => cloud_event(record, &data()),
        (Format::Text, _) => Readable::of(record).to_string().into(),
        (Format::Template, Some(template)) => template.render(record, &data(), Origin::Event)?,
        (Format::Json | Format::Template, _) => data(),
    })
}

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    /// An extension attribute, like `network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<Confidence>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
    datacontenttype: &'static str,
    data: &'a RawValue,
}

/// The CloudEvents type of an event whose own type is not a valid attribute. The attribute is required.
const UNNAMED: &str = "channeld.unnamed";

/// Whether CloudEvents allows a text as an attribute: it is not empty, and has neither control characters nor
/// noncharacters.
fn is_attribute(text: &str) -> bool {
    let is_noncharacter = |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    !text.is_empty() && !text.chars().any(|c| c.is_control() || is_noncharacter(c))
}

fn cloud_event(record: &Record, data: &[u8]) -> Bytes {
    let event = CloudEvent {
        specversion: "1.0",
        id: record.key(),
        source: format!("urn:uuid:{}", record.channel.id),
        kind: Some(record.kind.as_ref()).filter(|kind| is_attribute(kind)).unwrap_or(UNNAMED),
        subject: record.facts().subject().filter(|subject| is_attribute(subject)),
        time: record.time.and_then(rfc3339),
        confidence: record.confidence,
        network: record.network,
        datacontenttype: "application/json",
        data: serde_json::from_slice(data).expect("a record is JSON"),
    };
    serde_json::to_vec(&event).expect("an event has text keys and no value that can fail").into()
}

#[cfg(test)]
mod tests;
