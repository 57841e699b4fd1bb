//! Combines several events into one request.
//!
//! # Invariants
//!
//! * **The id of a batch depends only on its events.** Its `webhook-id` is a UUID that is computed from the event ids in
//!   their order. It is the same at each attempt and after a restart. After a crash the batches may be cut differently,
//!   because they depend on which events are ready to be sent. A consumer that must not act twice must compare the ids of
//!   the events.
//! * **Batches are bounded,** by a number of events and by the size of the body. If an event alone exceeds this size, it is
//!   sent alone.

use bytes::Bytes;
use uuid::Uuid;

use record::Message;

/// The UUID namespace of batch ids (RFC 9562, version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0f_91a6_2f0e_4f0a_9d38_6c1f_4a57_e2d1);

/// The events of each request, in the order in which the requests are posted.
pub(super) type Queue<'a> = Vec<&'a [Message]>;

/// Splits messages into batches. Each batch has as many events as the limits allow, and at least one.
pub(super) fn batches(mut messages: &[Message], events: usize, bytes: usize) -> Queue<'_> {
    let mut batches = Vec::new();
    while !messages.is_empty() {
        // The opening bracket.
        let mut size = 1;
        let fits = |message: &&Message| {
            // One more byte for the comma or the closing bracket after it.
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

/// The body of a batch: a JSON array, or lines if the events are not JSON.
pub(super) fn joined(events: &[Message]) -> Bytes {
    let bodies: Vec<&[u8]> = events.iter().map(|message| &**message.body()).collect();
    if !events[0].is_json() {
        return Bytes::from([&*bodies.join(&b"\n"[..]), b"\n"].concat());
    }
    Bytes::from([b"[", &*bodies.join(&b","[..]), b"]"].concat())
}
