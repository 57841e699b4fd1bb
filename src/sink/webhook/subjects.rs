//! Several requests at a time, each subject's events one after the other.
//!
//! # Invariants
//!
//! * **Each subject's events arrive in their order.** They are posted one by one, and none after one that was refused.
//!   Events without a subject keep their order among those of the same type.
//! * **A refusal of one event concerns its subject alone.** After one that concerns the endpoint itself no further request
//!   is begun.
//! * **What arrived is not posted again,** even when it stands behind an event that was refused.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::stream;

use super::answer::{Concern, Refusal};
use super::{Posting, Webhook};
use crate::record::{Field, Message};
use crate::sink::{SinkError, Undelivered};

/// What an event is about, or its type where it does not say.
#[derive(PartialEq, Eq, Hash)]
enum Subject {
    Named(String),
    Typed(Option<String>),
}

/// The outcome of posting one subject's events.
struct Posted {
    /// The indices of those that arrived.
    arrived: Vec<usize>,
    /// The index of the one that did not, and why.
    refused: Option<(usize, SinkError)>,
}

impl Webhook {
    pub(super) async fn by_subject(&self, batch: &[Message], concurrency: usize) -> Result<(), Undelivered> {
        let stop = AtomicBool::new(false);
        let posting: Vec<_> = by_subject(batch).into_iter().map(|events| self.in_order(batch, events, &stop)).collect();
        let posted: Vec<Posted> = stream::iter(posting).buffer_unordered(concurrency).collect().await;
        summarize(batch, posted)
    }

    /// Posts the events at these indices until one is refused, or `stop` is set.
    async fn in_order(&self, batch: &[Message], events: Vec<usize>, stop: &AtomicBool) -> Posted {
        let mut arrived = Vec::with_capacity(events.len());
        for index in events {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if let Err(Refusal { error, of }) = self.post(Posting::of(&batch[index])).await {
                stop.fetch_or(of == Concern::Endpoint, Ordering::Relaxed);
                return Posted { arrived, refused: Some((index, error)) };
            }
            arrived.push(index);
        }
        Posted { arrived, refused: None }
    }
}

/// The indices of each subject's events, in the order in which the subjects first appear.
fn by_subject(batch: &[Message]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known = HashMap::new();
    for (index, message) in batch.iter().enumerate() {
        let facts = message.record().facts();
        let typed = || Subject::Typed(facts.get(Field::Type).map(str::to_owned));
        let subject = facts.subject().map_or_else(typed, Subject::Named);
        let group = *known.entry(subject).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(index);
    }
    groups
}

fn summarize(batch: &[Message], posted: Vec<Posted>) -> Result<(), Undelivered> {
    let mut arrived = vec![false; batch.len()];
    let mut refusals = Vec::new();
    for Posted { arrived: indices, refused } in posted {
        for index in indices {
            arrived[index] = true;
        }
        refusals.extend(refused);
    }
    // The one that decides what is done next, and of several such the earliest.
    let decisive = |(index, error): &(usize, SinkError)| (Reverse(weight(error)), *index);
    let Some((_, error)) = refusals.into_iter().min_by_key(decisive) else { return Ok(()) };
    let delivered = arrived.iter().take_while(|arrived| **arrived).count();
    let later = batch.iter().zip(&arrived).skip(delivered).filter(|(_, arrived)| **arrived);
    Err(Undelivered { delivered, beyond: later.map(|(message, _)| message.offset()).collect(), error })
}

/// How much an error matters for what is done next.
fn weight(error: &SinkError) -> u8 {
    match error {
        SinkError::Refused { retry_after: None, .. } => 0,
        SinkError::Refused { .. } | SinkError::Io { .. } => 1,
        SinkError::Gone { .. } | SinkError::Overtaken { .. } | SinkError::Closed => 2,
    }
}
