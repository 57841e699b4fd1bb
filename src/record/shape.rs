//! A record in the shape that a sink wants it in.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Record, rfc3339};
use crate::event::{Event, Offset, Proofs};

/// What a sink writes for an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The record.
    #[default]
    Json,
    /// A CloudEvents 1.0 event in its structured JSON form, with the record as its `data`.
    CloudEvents,
    /// The service's event alone.
    Raw,
}

/// The shape that one sink wants records in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// What is written.
    pub format: Format,
    /// Whether the record carries the proof beside the event: what an auditor needs to verify it years later.
    pub include_proof: bool,
}

/// A record as one sink is given it. Made of a [`Record`] and of nothing else.
#[derive(Clone, Debug)]
pub struct Message {
    record: Arc<Record>,
    shape: Shape,
    body: Bytes,
}

impl Message {
    /// The record in that shape.
    #[must_use]
    pub fn new(record: &Arc<Record>, shape: Shape) -> Self {
        Self { record: record.clone(), shape, body: body(record, shape) }
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The event's place in its channel.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.record.offset
    }

    /// What a consumer deduplicates on.
    #[must_use]
    pub fn key(&self) -> String {
        self.record.key()
    }

    /// One JSON object on one line, without the line break at its end.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The media type of a JSON array of such bodies.
    #[must_use]
    pub fn batch_content_type(&self) -> &'static str {
        match self.shape.format {
            Format::Json | Format::Raw => "application/json",
            Format::CloudEvents => "application/cloudevents-batch+json",
        }
    }

    /// The media type of the body.
    #[must_use]
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

#[derive(Serialize)]
struct Proof<'a> {
    report: &'a str,
    context: &'a str,
    signatures: &'a [Option<Box<str>>],
}

fn data(record: &Record, include_proof: bool) -> Bytes {
    if !include_proof || !record.verified {
        return record.json.clone();
    }
    let event = Event::parse(record.event()).expect("it was read before it was verified");
    let Proofs::One(ocr) = event.proofs() else { unreachable!("a verified event has one proof") };
    let proof = Proof { report: &ocr.report, context: &ocr.context, signatures: &ocr.signatures };
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
        kind: record.kind.as_str(),
        subject: record.facts().subject(),
        time: record.time.and_then(rfc3339),
        datacontenttype: "application/json",
        data: serde_json::from_slice(data).expect("a record is JSON"),
    };
    serde_json::to_vec(&event).expect("an event has text keys and no value that can fail").into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::record::tests::{notice, proved};

    fn shaped(record: Record, format: Format, include_proof: bool) -> (Message, Value) {
        let message = Message::new(&Arc::new(record), Shape { format, include_proof });
        let value = serde_json::from_slice(message.body()).unwrap();
        (message, value)
    }

    #[test]
    fn a_cloud_event_has_the_record_as_its_data() {
        let record = proved(r#""watcher_id":"W","timestamp":1715688015"#, r#"{"name":"Transfer"}"#);
        let (plain, _) = shaped(record.clone(), Format::Json, false);
        let (message, event) = shaped(record, Format::CloudEvents, false);
        assert_eq!(message.content_type(), "application/cloudevents+json");
        let data: Value = serde_json::from_slice(plain.body()).unwrap();
        let expected = json!({
            "specversion": "1.0",
            "id": "00000000-0000-0000-0000-000000000002",
            "source": "urn:uuid:00000000-0000-0000-0000-000000000001",
            "type": "watcher.event",
            "subject": "watcher/W",
            "time": "2024-05-14T12:00:15Z",
            "datacontenttype": "application/json",
            "data": data,
        });
        assert_eq!(event, expected);
    }

    #[test]
    fn raw_is_the_services_event_alone() {
        let record = notice("wallet.status", r#"{"status":"deployed"}"#);
        let event = record.event();
        assert_eq!(shaped(record, Format::Raw, false).0.body(), &event);
    }

    #[test]
    fn a_proof_stands_beside_its_event_and_a_notice_has_none() {
        let proof = json!({"report": "0x01", "context": "0x02", "signatures": ["0x03", "0x04"]});
        let record = proved(r#""watcher_id":"W""#, "{}");
        assert_eq!(shaped(record.clone(), Format::Json, true).1["proof"], proof);
        assert_eq!(shaped(record, Format::CloudEvents, true).1["data"]["proof"], proof);
        assert_eq!(shaped(notice("wallet.status", "{}"), Format::Json, true).1["proof"], Value::Null);
    }
}
