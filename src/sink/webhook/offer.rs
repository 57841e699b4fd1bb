//! How the events of an offer go into requests, and which of them arrived.
//!
//! Requests stand in queues. Those of a queue are posted one after the other, up to the first refusal; several queues at
//! the same time. Events that are sent alone, one request at a time, are one queue; so are batches, each a JSON array of
//! what its events would have been sent as alone. With several requests at a time each subject has a queue.
//!
//! # Invariants
//!
//! * **Each subject's events arrive in their order.** Events without a subject keep their order among those of the same
//!   type.
//! * **A refusal of one event concerns its queue alone.** After one that concerns the endpoint itself no further request
//!   is begun.
//! * **What arrived is not posted again,** even when it stands behind an event that was refused.
//! * **A batch's id depends on its events alone.** Its `webhook-id` is a UUID made of their ids in their order: the same at
//!   each attempt and after a restart. After a crash other events may form a batch, because that depends on what there is
//!   to send: a consumer that must not act twice goes by the ids of the events.
//! * **Batches are bounded,** by a number of events and by the size of the body. An event that is larger is sent alone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use uuid::Uuid;

use super::Webhook;
use super::answer::Refusal;
use super::settings::Dispatch;
use crate::event::Offset;
use crate::record::{Field, Message};
use crate::sink::{SinkError, Undelivered};

/// The ids of batches are made in this namespace (RFC 9562, version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0f_91a6_2f0e_4f0a_9d38_6c1f_4a57_e2d1);

/// The events of each request.
type Queue<'a> = Vec<&'a [Message]>;

impl Webhook {
    pub(super) async fn offer(&self, messages: &[Message]) -> Result<(), Undelivered> {
        let (queues, concurrency) = match self.settings.dispatch {
            Dispatch::Single { concurrency: 1 } => (vec![messages.chunks(1).collect()], 1),
            Dispatch::Single { concurrency } => (by_subject(messages), concurrency),
            Dispatch::Batches { events, bytes, .. } => (vec![batches(messages, events, bytes)], 1),
        };
        let (stop, mut arrived, mut refusals) = (AtomicBool::new(false), BTreeSet::new(), Vec::new());
        let posting: Vec<_> = queues.into_iter().map(|queue| self.in_order(queue, &stop)).collect();
        let mut posting = stream::iter(posting).buffer_unordered(concurrency);
        while let Some((posted, refused)) = posting.next().await {
            arrived.extend(posted);
            refusals.extend(refused);
        }
        // The one that decides what is done next, and of several such the earliest.
        let decisive = |(offset, error): &(Offset, SinkError)| (Reverse(weight(error)), *offset);
        let Some((_, error)) = refusals.into_iter().min_by_key(decisive) else { return Ok(()) };
        let delivered = messages.iter().take_while(|message| arrived.contains(&message.offset())).count();
        Err(Undelivered { delivered, beyond: arrived.split_off(&messages[delivered].offset()), error })
    }

    /// Posts requests until one is refused, or `stop` is set. Returns what arrived; the first event of the refused request,
    /// and why.
    async fn in_order(&self, queue: Queue<'_>, stop: &AtomicBool) -> (Vec<Offset>, Option<(Offset, SinkError)>) {
        let mut arrived = Vec::new();
        for events in queue {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (id, content_type, body) = match self.settings.dispatch {
                Dispatch::Single { .. } => (events[0].key(), events[0].content_type(), events[0].body().clone()),
                Dispatch::Batches { .. } => (batch_id(events), events[0].batch_content_type(), array(events)),
            };
            if let Err(Refusal { error, of_endpoint }) = self.post(id, content_type, body).await {
                stop.fetch_or(of_endpoint, Ordering::Relaxed);
                return (arrived, Some((events[0].offset(), error)));
            }
            arrived.extend(events.iter().map(Message::offset));
        }
        (arrived, None)
    }
}

/// A queue for each subject, in the order in which the subjects first appear.
fn by_subject(messages: &[Message]) -> Vec<Queue<'_>> {
    let mut queues: HashMap<_, Queue<'_>> = HashMap::new();
    for event in messages.chunks(1) {
        let facts = event[0].record().facts();
        // What it is about, or else its type: no subject is taken for a type.
        let subject = facts.subject().ok_or_else(|| facts.get(Field::Type));
        queues.entry(subject).or_default().push(event);
    }
    let mut queues: Vec<_> = queues.into_values().collect();
    queues.sort_by_key(|queue| queue[0][0].offset());
    queues
}

/// As many events in each batch as it takes, and at least one.
fn batches(mut messages: &[Message], events: usize, bytes: usize) -> Queue<'_> {
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

fn batch_id(events: &[Message]) -> String {
    let ids: Vec<_> = events.iter().map(Message::key).collect();
    Uuid::new_v5(&NAMESPACE, ids.join("\n").as_bytes()).to_string()
}

fn array(events: &[Message]) -> Bytes {
    let bodies: Vec<&[u8]> = events.iter().map(|message| &**message.body()).collect();
    Bytes::from([b"[", &*bodies.join(&b","[..]), b"]"].concat())
}

/// How much an error matters for what is done next.
fn weight(error: &SinkError) -> u8 {
    match error {
        SinkError::Refused { retry_after: None, .. } => 0,
        SinkError::Refused { .. } | SinkError::Io { .. } => 1,
        SinkError::Gone { .. } | SinkError::Overtaken { .. } | SinkError::Closed => 2,
    }
}
