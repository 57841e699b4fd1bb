//! Several events in one request.
//!
//! # Invariants
//!
//! * **A batch's id depends on its events alone.** Its `webhook-id` is a UUID made of their ids in their order: the same at
//!   each attempt and after a restart. After a crash other events may form a batch, because that depends on what there is
//!   to send: a consumer that must not act twice goes by the ids of the events.
//! * **Batches are bounded,** by a number of events and by the size of the body. An event that is larger is sent alone.

use bytes::Bytes;
use uuid::Uuid;

use super::offer::Queue;
use record::Message;

/// The ids of batches are made in this namespace (RFC 9562, version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0f_91a6_2f0e_4f0a_9d38_6c1f_4a57_e2d1);

/// As many events in each batch as it takes, and at least one.
pub(super) fn batches(mut messages: &[Message], events: usize, bytes: usize) -> Queue<'_> {
    let mut batches = Vec::new();
    while !messages.is_empty() {
        // The first bracket.
        let mut size = 1;
        let fits = |message: &&Message| {
            // With the comma, or the last bracket, after it.
            size += message.body().len() + 1;
            size <= bytes
        };
        let fitting = messages.iter().take(events).take_while(fits).count();
        let (batch, rest) = messages.split_at(fitting.max(1));
        batches.push(batch);
        messages = rest;
    }
    batches
}

/// The `webhook-id` of a batch.
pub(super) fn batch_id(events: &[Message]) -> String {
    let ids: Vec<_> = events.iter().map(Message::key).collect();
    Uuid::new_v5(&NAMESPACE, ids.join("\n").as_bytes()).to_string()
}

/// The body of a batch: a JSON array, or lines.
pub(super) fn joined(events: &[Message]) -> Bytes {
    let bodies: Vec<&[u8]> = events.iter().map(|message| &**message.body()).collect();
    if !events[0].is_json() {
        return Bytes::from([&*bodies.join(&b"\n"[..]), b"\n"].concat());
    }
    Bytes::from([b"[", &*bodies.join(&b","[..]), b"]"].concat())
}
