//! The messages of a lane: one for each event, and the position, which is the last message on the lane's own subject. Filters of
//! subjects are tokens separated by dots, with the wildcards `*` for one token and `>` for all remaining tokens.

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::settings::NatsSettings;
use crate::{LaneRef, stream};
use proof::event::{ChannelId, EventKey};
use record::Message;

/// The maximum number of bytes that the headers for a batch, or for a condition on the position, add to a message.
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
    pub(super) fn new(lane: &LaneRef, message: &Message, settings: &NatsSettings) -> Self {
        let record = message.record();
        // The id by which a server recognizes a message that it has already stored. Two events at one offset have different
        // ids.
        let id = record.event_id.map(|id| format!(":{id}")).unwrap_or_default();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, format!("{}:{}{id}", record.channel.id, record.offset));
        headers.insert(NATS_EXPECTED_STREAM, &*settings.stream);
        for (name, value) in stream::headers(lane, message) {
            headers.insert(name, &*value);
        }
        let (subject, body) = (settings.subject.of(record), message.body().clone());
        Self { key: record.event_key(), subject, headers, body }
    }

    /// The size of headers and body, as a server compares it with `max_payload`.
    pub(super) fn size(&self) -> usize {
        let line = |name: &str, value: &str| name.len() + value.len() + ": \r\n".len();
        let headers = self.headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
        let lines: usize = headers.map(|(name, value)| line(name.as_ref(), value.as_ref())).sum();
        lines + "NATS/1.0\r\n\r\n".len() + MORE_HEADERS + self.body.len()
    }

    /// The same message with another id, for an event that must be stored although the server already knows its usual id.
    pub(super) fn again(mut self, position: u64) -> Self {
        let id = self.headers.get(NATS_MESSAGE_ID).map(|id| format!("{id}:{position}")).unwrap_or_default();
        self.headers.insert(NATS_MESSAGE_ID, id);
        self
    }
}

/// Identifies the event in a message of this lane by the headers that a server returns. `None` for a message of another lane.
pub(super) fn key_of(headers: &[u8], channel: ChannelId, sink: &str) -> Option<EventKey> {
    let headers = String::from_utf8_lossy(headers);
    let value = |name: &str| {
        let line = headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim())
    };
    stream::key_of(channel, sink, value)
}

/// A position, and the claim under which it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    #[serde(flatten, deserialize_with = "stream::Position::read")]
    pub(super) lane: stream::Position,
    /// Identifies the run of the process that wrote the position.
    pub(super) instance: Uuid,
    /// Written for instances of an older version: they search for events after the position only if this is true. This
    /// version always searches.
    pub(super) follow: bool,
    /// The sequence number after which the stream may contain unrecorded events of the lane. `None` means the sequence number
    /// of this message. A claim repeats the position of an earlier message, and therefore contains an earlier number.
    pub(super) since: Option<u64>,
    /// The filters of the subjects on which the lane has published its events, the present one last. An earlier version did not
    /// write them.
    #[serde(default)]
    pub(super) filters: Vec<String>,
}

/// The maximum number of bytes of the filters in a position. A single filter may be longer.
const FILTER_BYTES: usize = 1_000;

impl Position {
    /// The filters of a lane that now publishes on the subjects of `filter`. If they are too many, the oldest are left out.
    pub(super) fn filters_with(mut known: Vec<String>, filter: String) -> Vec<String> {
        known.retain(|known| !covers(&filter, known));
        known.push(filter);
        while known.len() > 1 && known.iter().map(|filter| filter.len() + r#""","#.len()).sum::<usize>() > FILTER_BYTES
        {
            known.remove(0);
        }
        known
    }

    /// The maximum number of events in a delivery if a message may have `max_bytes` bytes. The position of a delivery can
    /// also name events of the previous delivery, so the result is half of the number of events that a message can name.
    pub(super) fn most_events(max_bytes: usize) -> usize {
        let other = stream::Position::BYTES + FILTER_BYTES;
        ((max_bytes / 2).saturating_sub(other) / stream::Position::BYTES_PER_EVENT).max(1)
    }
}

/// Whether `filter` matches every subject that `subject` matches. `subject` may have wildcards.
pub(super) fn covers(filter: &str, subject: &str) -> bool {
    let (mut filters, mut subjects) = (filter.split('.'), subject.split('.'));
    loop {
        match (filters.next(), subjects.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(filter), Some(token)) if filter == token && token != ">" => {}
            _ => return false,
        }
    }
}

/// Whether a subject can match both filters.
pub(super) fn meets(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(one), Some(other)) if one == other || one == "*" || other == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_the_subjects_that_were_configured_before() {
        let with = |known: &[&str], filter: &str| {
            Position::filters_with(known.iter().map(|&known| known.to_owned()).collect(), filter.to_owned())
        };
        assert_eq!(with(&[], "a.>"), ["a.>"]);
        assert_eq!(with(&["a.>"], "b.one.>"), ["a.>", "b.one.>"]);
        assert_eq!(with(&["a.>", "b.one.>"], "a.>"), ["b.one.>", "a.>"]);
        assert_eq!(with(&["a.one.>", "b.one.>"], "a.>"), ["b.one.>", "a.>"], "the new filter matches the first one");
        let long = ["a", "b", "c"].map(|first| format!("{first}.{}", "x".repeat(400)));
        assert_eq!(with(&[&long[0], &long[1]], &long[2]), long[1..], "bounded");
    }

    #[test]
    fn filters_meet_if_a_subject_matches_both() {
        for (one, other) in [(">", "a.b"), ("a.*", "a.>"), ("a.*.c", "a.b.*"), ("*.b", "a.>"), ("a", "a")] {
            assert!(meets(one, other) && meets(other, one), "{one} {other}");
        }
        for (one, other) in [("a", "a.>"), ("a.*", "a.b.c"), ("a.b", "a.c"), ("b.>", "a.>")] {
            assert!(!meets(one, other) && !meets(other, one), "{one} {other}");
        }
    }

    #[test]
    fn a_filter_covers_only_its_own_subjects() {
        for (filter, subject) in
            [(">", "a.b"), ("a.>", "a.b.c"), ("a.*", "a.b"), ("a.b", "a.b"), ("a.>", "a.>"), ("a.*.>", "a.*.b")]
        {
            assert!(covers(filter, subject), "{filter} {subject}");
        }
        for (filter, subject) in [
            ("a.>", "a"),
            ("a.*", "a.b.c"),
            ("a.b", "a.c"),
            ("a.*", "a.>"),
            ("a.b", "a.*"),
            ("a.b.c", "a.b"),
            ("a", "a.b"),
        ] {
            assert!(!covers(filter, subject), "{filter} {subject}");
        }
    }
}
