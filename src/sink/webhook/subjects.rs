//! Several requests at a time, each subject's events one after the other.
//!
//! # Invariants
//!
//! * **A subject's story is told in its order.** Its events are posted one by one, and none after one that was refused.
//!   Events without a subject keep their order among those of the same type.
//! * **A refusal of one event concerns its subject alone.** What says that the endpoint itself wants a rest, or cannot be
//!   reached, concerns all: nothing further is begun.
//! * **What arrived is said.** Also of the events after the first that did not: they are not posted again.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::stream;

use super::answer::{Concern, Refusal};
use super::{Posting, Webhook};
use crate::record::{Field, Message};
use crate::sink::{SinkError, Undelivered};

/// What an event is about, or of which type it is where it says nothing of that.
#[derive(PartialEq, Eq, Hash)]
enum Subject {
    Named(String),
    Typed(Option<String>),
}

/// What became of one subject's events.
struct Told {
    /// The places of those that arrived.
    arrived: Vec<usize>,
    /// The place of the one that did not, and why.
    refused: Option<(usize, SinkError)>,
}

impl Webhook {
    pub(super) async fn by_subject(&self, batch: &[Message], concurrency: usize) -> Result<(), Undelivered> {
        let enough = AtomicBool::new(false);
        let stories: Vec<_> = stories(batch).into_iter().map(|story| self.tell(batch, story, &enough)).collect();
        let told: Vec<Told> = stream::iter(stories).buffer_unordered(concurrency).collect().await;
        sum_up(batch, told)
    }

    async fn tell(&self, batch: &[Message], story: Vec<usize>, enough: &AtomicBool) -> Told {
        let mut arrived = Vec::with_capacity(story.len());
        for place in story {
            if enough.load(Ordering::Relaxed) {
                break;
            }
            if let Err(Refusal { error, of }) = self.post(Posting::of(&batch[place])).await {
                enough.fetch_or(of == Concern::Endpoint, Ordering::Relaxed);
                return Told { arrived, refused: Some((place, error)) };
            }
            arrived.push(place);
        }
        Told { arrived, refused: None }
    }
}

/// The places of each subject's events, in the order in which the subjects begin.
fn stories(batch: &[Message]) -> Vec<Vec<usize>> {
    let mut stories: Vec<Vec<usize>> = Vec::new();
    let mut known = HashMap::new();
    for (place, message) in batch.iter().enumerate() {
        let facts = message.record().facts();
        let typed = || Subject::Typed(facts.get(Field::Type).map(str::to_owned));
        let subject = facts.subject().map_or_else(typed, Subject::Named);
        let number = *known.entry(subject).or_insert_with(|| {
            stories.push(Vec::new());
            stories.len() - 1
        });
        stories[number].push(place);
    }
    stories
}

fn sum_up(batch: &[Message], told: Vec<Told>) -> Result<(), Undelivered> {
    let mut arrived = vec![false; batch.len()];
    let mut refusals = Vec::new();
    for Told { arrived: places, refused } in told {
        for place in places {
            arrived[place] = true;
        }
        refusals.extend(refused);
    }
    // The one that counts most for what is done next, and of those the earliest.
    let counts = |(place, error): &(usize, SinkError)| (Reverse(rank(error)), *place);
    let Some((_, error)) = refusals.into_iter().min_by_key(counts) else { return Ok(()) };
    let delivered = arrived.iter().take_while(|arrived| **arrived).count();
    let later = batch.iter().zip(&arrived).skip(delivered).filter(|(_, arrived)| **arrived);
    Err(Undelivered { delivered, beyond: later.map(|(message, _)| message.offset()).collect(), error })
}

fn rank(error: &SinkError) -> u8 {
    match error {
        SinkError::Refused { retry_after: None, .. } => 0,
        SinkError::Refused { .. } | SinkError::Io { .. } => 1,
        SinkError::Gone { .. } | SinkError::Closed => 2,
    }
}
