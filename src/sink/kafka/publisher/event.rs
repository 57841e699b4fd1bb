//! The record for an event: its key, its headers and its size.

use bytes::Bytes;

use crate::{LaneRef, SinkError, stream};
use record::{Field, Message};

/// Upper bounds of the overhead in bytes: of a batch of one record, and of each header without its texts.
const OVERHEAD: usize = 128;
const HEADER_OVERHEAD: usize = 10;

/// An event that is ready to be produced.
pub(super) struct Event {
    pub(super) key: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

impl Event {
    pub(super) fn of(lane: &LaneRef, message: &Message) -> Self {
        let facts = message.record().facts();
        let key = facts.subject().or_else(|| facts.get(Field::Type).map(str::to_owned));
        let headers = stream::headers(lane, message);
        Self { key: key.unwrap_or_default(), headers, body: message.body().clone() }
    }

    /// The size as a broker counts it, or slightly more.
    pub(super) fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD);
        OVERHEAD + self.key.len() + self.body.len() + headers.sum::<usize>()
    }

    /// The error if the event is too large for a topic. `said` is the message of a broker.
    pub(super) fn too_large(&self, topic: &str, largest: Option<usize>, said: Option<&str>) -> SinkError {
        let size = self.size();
        let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
        SinkError::refused(match largest {
            Some(largest) => format!(
                "the event has {size} bytes with its headers, but the topic {topic} accepts {largest} (max.message.bytes){said}"
            ),
            None => format!("the event has {size} bytes with its headers, but the topic {topic} accepts fewer{said}"),
        })
    }
}
