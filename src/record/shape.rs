//! The shapes of a record that sinks write.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use strum::{EnumString, IntoStaticStr, VariantNames};

use super::{Record, rfc3339};
use crate::event::{Event, Offset, Proofs};

/// What a sink writes for an event.
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
}

/// The shape of a sink's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The format.
    pub format: Format,
    /// Whether the record carries the proof beside the event, so that an auditor can verify it years later.
    pub include_proof: bool,
}

/// A record in the shape of one sink. Made only of a [`Record`].
#[derive(Clone, Debug)]
pub struct Message {
    record: Arc<Record>,
    shape: Shape,
    body: Bytes,
}

impl Message {
    /// The record in that shape.
    pub fn new(record: &Arc<Record>, shape: Shape) -> Self {
        Self { record: record.clone(), shape, body: body(record, shape) }
    }

    /// The record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The event's place in its channel.
    pub fn offset(&self) -> Offset {
        self.record.offset
    }

    /// The key for deduplication.
    pub fn key(&self) -> String {
        self.record.key()
    }

    /// One JSON object on one line, without the line break at its end.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The media type of a JSON array of such bodies.
    pub fn batch_content_type(&self) -> &'static str {
        match self.shape.format {
            Format::Json | Format::Raw => "application/json",
            Format::CloudEvents => "application/cloudevents-batch+json",
        }
    }

    /// The media type of the body.
    pub fn content_type(&self) -> &'static str {
        match self.shape.format {
            Format::Json | Format::Raw => "application/json",
            Format::CloudEvents => "application/cloudevents+json",
        }
    }
}

fn body(record: &Record, shape: Shape) -> Bytes {
    match shape.format {
        Format::Raw => record.event(),
        Format::Json => data(record, shape.include_proof),
        Format::CloudEvents => cloud_event(record, &data(record, shape.include_proof)),
    }
}

fn data(record: &Record, include_proof: bool) -> Bytes {
    if !include_proof || !record.is_verified() {
        return record.json.clone();
    }
    let event = Event::parse(record.event()).expect("it was read before it was verified");
    let Proofs::One(proof) = event.proofs else { unreachable!("a verified event has one proof") };
    let proof = serde_json::to_vec(&proof).expect("a proof is made of texts");
    let open = &record.json[..record.json.len() - 1];
    [open, br#","proof":"#, &proof, b"}"].concat().into()
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
    datacontenttype: &'static str,
    data: &'a RawValue,
}

fn cloud_event(record: &Record, data: &[u8]) -> Bytes {
    let event = CloudEvent {
        specversion: "1.0",
        id: record.key(),
        source: format!("urn:uuid:{}", record.channel.id),
        kind: record.kind.as_ref(),
        subject: record.facts().subject(),
        time: record.time.and_then(rfc3339),
        datacontenttype: "application/json",
        data: serde_json::from_slice(data).expect("a record is JSON"),
    };
    serde_json::to_vec(&event).expect("an event has text keys and no value that can fail").into()
}

#[cfg(test)]
mod tests;
