//! The message for an event: its subject, its headers and its size.

use async_nats::HeaderMap;
use bytes::Bytes;

use crate::settings::Pattern;
use crate::{LaneRef, stream};
use proof::event::{ChannelId, EventKey};
use record::Message;

pub(super) const MESSAGE_ID: &str = "Nats-Msg-Id";
pub(super) const EXPECTED_STREAM: &str = "Nats-Expected-Stream";
pub(super) const EXPECTED_SEQUENCE: &str = "Nats-Expected-Last-Subject-Sequence";
pub(super) const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
pub(super) const ROLLUP: &str = "Nats-Rollup";
pub(super) const BATCH_ID: &str = "Nats-Batch-Id";
pub(super) const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
pub(super) const BATCH_COMMIT: &str = "Nats-Batch-Commit";

/// The most bytes that the headers of a batch or of a fence add.
const MORE_HEADERS: usize = 400;

/// An event that is ready to be published.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) key: EventKey,
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Outgoing {
    pub(super) fn new(lane: &LaneRef, message: &Message, stream: &str, pattern: &Pattern) -> Self {
        let record = message.record();
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE_ID, &*message_id(record.channel.id, record.event_key()));
        headers.insert(EXPECTED_STREAM, stream);
        for (name, value) in stream::headers(lane, message) {
            headers.insert(name, &*value);
        }
        let (subject, body) = (pattern.of(record), message.body().clone());
        Self { key: record.event_key(), subject, headers, body }
    }

    /// The size of headers and body, as a server compares it with `max_payload`.
    pub(super) fn size(&self) -> usize {
        let line = |name: &str, value: &str| name.len() + value.len() + ": \r\n".len();
        let headers = self.headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        let lines: usize = headers.map(|(name, value)| line(name.as_ref(), value.as_ref())).sum();
        lines + "NATS/1.0\r\n\r\n".len() + MORE_HEADERS + self.body.len()
    }

    /// The same message with another id. It is used if the server knows the first id, and the event is delivered again on
    /// purpose.
    pub(super) fn again(mut self, position: u64) -> Self {
        let id = self.headers.get(MESSAGE_ID).map(|id| format!("{id}:{position}")).unwrap_or_default();
        self.headers.insert(MESSAGE_ID, &*id);
        self
    }
}

/// The id by which a server recognizes a message that it has already stored. Two events at one offset have different ids.
fn message_id(channel: ChannelId, EventKey { offset, id }: EventKey) -> String {
    let id = id.map(|id| format!(":{id}")).unwrap_or_default();
    format!("{channel}:{offset}{id}")
}

/// Identifies the event in a message of this lane by the headers that a server returns. `None` for a message of another lane.
pub(super) fn key_of(headers: &str, channel: ChannelId, sink: &str) -> Option<EventKey> {
    let value = |name: &str| {
        let line = headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim())
    };
    stream::key_of(channel, sink, value)
}
