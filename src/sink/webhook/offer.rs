//! Splits the events of an offer into requests, combines several events into one, and reports which events arrived.
//!
//! The requests of a queue are posted one after the other, up to the first refusal. If several requests are sent at a time,
//! each subject has a queue, and several queues are posted at the same time. Otherwise all events share one queue. The body
//! of a batch is a JSON array. Its elements are the bodies that the events would have in separate requests.
//!
//! # Invariants
//!
//! * **The events of a subject arrive in order.** The events of one type that have no subject arrive in order too.
//! * **A refused event stops only its own queue.** If a refusal concerns the endpoint itself, no further request is
//!   started. The same applies if the endpoint asks another lane for a pause.
//! * **An event that arrived is not posted again,** even if it comes after a refused event.
//! * **A batch that takes too long becomes smaller.** The endpoint may have processed its events, so the same batch is not
//!   repeated again and again.
//! * **Only the refused event is reported.** If a batch is refused for its content or its size, it is immediately offered
//!   in halves, until one event remains.
//! * **The id of a batch depends only on its events.** The `webhook-id` of a batch is a UUID that is computed from the ids
//!   of its events, in their order. After a restart, the same events give the same id. After a crash, the same events may
//!   be grouped into other batches, because a batch contains the events that are ready. A consumer that must not act twice
//!   must compare the ids of the events.
//! * **Batches are bounded,** by a number of events and by the size of the body. If an event alone exceeds this size, it is
//!   sent alone.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use tracing::{debug, warn};
use uuid::Uuid;

use super::endpoint::{Offer, Post, Webhook};
use super::response::{RefusalScope, RequestRefusal};
use super::settings::Dispatch;
use crate::{Delivery, Fault, LaneRef, SinkError, Undelivered};
use net::tasks::lock;
use proof::event::{EventKey, Offset};
use record::{Field, Message};

/// The UUID namespace of batch ids (RFC 9562, version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x5b0f_91a6_2f0e_4f0a_9d38_6c1f_4a57_e2d1);

/// The events of each request, in the order in which the requests are posted.
type Queue<'a> = Vec<&'a [Message]>;

impl Webhook {
    pub(super) async fn offer(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let messages = delivery.messages;
        let (queues, concurrency) = match self.settings.dispatch {
            Dispatch::Single { concurrency: 1 } => (vec![messages.chunks(1).collect()], 1),
            Dispatch::Single { concurrency } => (by_subject(messages), concurrency),
            Dispatch::Batches { events, .. } => {
                let events = events.min(lock(&self.batch_size).events());
                (vec![batches(messages, events, self.largest.load(Ordering::Relaxed))], 1)
            }
        };
        let (stop, mut arrived, mut refusals) = (AtomicBool::new(false), BTreeSet::new(), Vec::new());
        let offer = Offer::of(delivery.lane);
        let posting: Vec<_> = queues.into_iter().map(|queue| self.in_order(&offer, queue, &stop)).collect();
        let mut posting = stream::iter(posting).buffer_unordered(concurrency);
        while let Some((posted, refused)) = posting.next().await {
            arrived.extend(posted);
            refusals.extend(refused);
        }
        // The refusal with the highest weight decides how the lane continues. If several have this weight, the lowest
        // offset decides.
        let decisive = |(offset, error): &(Offset, SinkError)| (Reverse(weight(error)), *offset);
        let Some((_, error)) = refusals.into_iter().min_by_key(decisive) else { return Ok(()) };
        let delivered = messages.iter().take_while(|message| arrived.remove(&message.event_key())).count();
        Err(Undelivered { delivered, beyond: arrived, error })
    }

    /// Posts requests until one is refused, or `stop` is set. Returns the events that arrived. If a request was refused,
    /// also returns the offset of the request's first event, and the error.
    async fn in_order(
        &self,
        offer: &Offer<'_>,
        queue: Queue<'_>,
        stop: &AtomicBool,
    ) -> (Vec<EventKey>, Option<(Offset, SinkError)>) {
        let (mut arrived, mut queue) = (Vec::new(), VecDeque::from(queue));
        while let Some(events) = queue.pop_front() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if self.turns.pause().is_some() && !offer.has_turn() {
                // The endpoint has asked another lane for a pause. This lane waits for its end before its next offer.
                let message = "the endpoint has asked all requests to wait".to_owned();
                let error = SinkError::Refused { message, retry_after: None, fault: Fault::Target };
                return (arrived, Some((events[0].offset(), error)));
            }
            let post = self.settings.dispatch.post(events);
            let (bytes, largest) = (post.body.len(), self.largest.load(Ordering::Relaxed));
            if events.len() > 1 && bytes > largest {
                // The endpoint has refused a batch for its size since these batches were made.
                batches(events, events.len(), largest).into_iter().rev().for_each(|part| queue.push_front(part));
                continue;
            }
            let Err(RequestRefusal { error, about }) = self.post(offer, &post).await else {
                arrived.extend(events.iter().map(Message::event_key));
                lock(&self.batch_size).succeeded(events.len());
                continue;
            };
            if events.len() > 1 && matches!(about, RefusalScope::Content | RefusalScope::Size) {
                self.halves(offer.lane, events.len(), bytes, about);
                let (first, second) = events.split_at(events.len() / 2);
                queue.push_front(second);
                queue.push_front(first);
                continue;
            }
            if about == RefusalScope::Time {
                lock(&self.batch_size).shrink_to(events.len() / 2);
            }
            stop.fetch_or(matches!(about, RefusalScope::Endpoint | RefusalScope::Time), Ordering::Relaxed);
            let error = if about == RefusalScope::Size { self.too_large(error, bytes) } else { error };
            return (arrived, Some((events[0].offset(), error)));
        }
        (arrived, None)
    }

    /// Logs that a batch is offered in halves. If it was too large, later batches are at most half its size.
    fn halves(&self, LaneRef { channel, sink }: &LaneRef, events: usize, bytes: usize, about: RefusalScope) {
        let channel = &channel.name;
        if about == RefusalScope::Size {
            let (smaller, batch_bytes) = (bytes / 2, self.settings.dispatch.batch_bytes());
            self.largest.fetch_min(smaller, Ordering::Relaxed);
            warn!(%channel, %sink, events, bytes, smaller, batch_bytes, "endpoint refused a batch because of its size: using smaller ones from now on; lower batch_bytes");
        } else {
            debug!(%channel, %sink, events, bytes, "endpoint refused a batch because of its content: offering it in halves");
        }
    }

    /// Adds the size of the event to the error, because the endpoint refused the event for its size.
    fn too_large(&self, mut error: SinkError, bytes: usize) -> SinkError {
        if let SinkError::Refused { message, .. } = &mut error {
            let batch_bytes = self.settings.dispatch.batch_bytes();
            let set = batch_bytes.map(|set| format!(" (batch_bytes is {set})")).unwrap_or_default();
            *message = format!("{message}: the event alone has {bytes} bytes, more than the endpoint accepts{set}");
        }
        error
    }
}

impl Dispatch {
    pub(super) fn post(self, events: &[Message]) -> Post<'_> {
        let first = &events[0];
        match self {
            Self::Single { .. } => Post {
                id: first.record().key(),
                content_type: first.content_type(),
                body: first.body().clone(),
                below: first.below(),
            },
            Self::Batches { .. } => Post {
                id: batch_id(events),
                content_type: first.batch_content_type(),
                body: joined(events),
                below: None,
            },
        }
    }
}

/// A queue for each subject, in the order in which the subjects first appear.
fn by_subject(messages: &[Message]) -> Vec<Queue<'_>> {
    let mut queues: HashMap<_, Queue<'_>> = HashMap::new();
    for event in messages.chunks(1) {
        let facts = event[0].record().facts();
        // A subject is `Ok` and a type is `Err`, so a subject never equals a type.
        let subject = facts.subject().ok_or_else(|| facts.get(Field::Type));
        queues.entry(subject).or_default().push(event);
    }
    let mut queues: Vec<_> = queues.into_values().collect();
    queues.sort_by_key(|queue| queue[0][0].offset());
    queues
}

/// Splits messages into batches. Each batch is as large as the limits allow, and has at least one event.
fn batches(mut messages: &[Message], events: usize, bytes: usize) -> Queue<'_> {
    let mut batches = Vec::new();
    while !messages.is_empty() {
        // The opening bracket.
        let mut size = 1;
        let fits = |message: &&Message| {
            // One more byte for the comma or the closing bracket after the message.
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
    let ids: Vec<_> = events.iter().map(|event| event.record().key()).collect();
    Uuid::new_v5(&NAMESPACE, ids.join("\n").as_bytes()).to_string()
}

/// The body of a batch: a JSON array, or lines if the events are not JSON.
fn joined(events: &[Message]) -> Bytes {
    let bodies: Vec<&[u8]> = events.iter().map(|message| &**message.body()).collect();
    if !events[0].is_json() {
        return Bytes::from([&*bodies.join(&b"\n"[..]), b"\n"].concat());
    }
    Bytes::from([b"[", &*bodies.join(&b","[..]), b"]"].concat())
}

/// The weight of an error: the error with the highest weight decides how the lane continues.
fn weight(error: &SinkError) -> u8 {
    match error {
        SinkError::Refused { retry_after: None, .. } => 0,
        SinkError::Refused { .. } | SinkError::Io { .. } | SinkError::Unavailable { .. } => 1,
        SinkError::Gone { .. } | SinkError::Overtaken { .. } | SinkError::Displaced { .. } | SinkError::Closed => 2,
    }
}
