//! One lane of a stream: its claim, its position, and the events in the stream that the state does not record as delivered.
//!
//! # Invariants
//!
//! * **Nothing is appended without a claim.** A delivery removes the claim, and restores it only if the delivery succeeded.
//!   If the delivery failed, or its future was dropped, its events may have reached the server. The lane then resumes and
//!   claims again. After the new claim, earlier appends can no longer take effect, and the position shows which of them
//!   took effect.
//! * **One position.** A delivery begins only if the stream has the position that the caller expects.
//! * **A refusal concerns one event.** If an event is too large, or the stream does not accept it, the position covers all
//!   events before it, and only this event is reported. If the stream accepts no event, this is reported instead (see
//!   `narrowing`).

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;
use tracing::{info, warn};
use uuid::Uuid;

use super::{Appended, ClaimedPosition, Log, Position, Unrecorded, UnrecordedEvents};
use crate::narrowing::{OTHERS, OtherContent};
use crate::{
    Delivery, Fault, LaneRef, LateDelivery, Position as LanePosition, Recorded, Resumed, SinkError, Undelivered,
};
use net::request_size::RequestSize;
use net::tasks::lock;
use proof::event::{ChannelId, EventKey};
use record::Message;

pub(crate) struct Lanes<L>(Mutex<HashMap<ChannelId, Arc<tokio::sync::Mutex<Lane<L>>>>>);

impl<L> Default for Lanes<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: Log> Lanes<L> {
    pub(crate) async fn lane(&self, identity: &LaneRef, log: impl FnOnce() -> L) -> OwnedMutexGuard<Lane<L>> {
        let new = || Arc::new(tokio::sync::Mutex::new(Lane::new(identity.clone(), log())));
        let lane = lock(&self.0).entry(identity.channel.id).or_insert_with(new).clone();
        lane.lock_owned().await
    }

    /// Calls `work` with the log of each lane that is not in use.
    #[cfg(feature = "kafka")]
    pub(crate) fn unused(&self, work: impl Fn(&mut L)) {
        let lanes: Vec<_> = lock(&self.0).values().cloned().collect();
        lanes.iter().filter_map(|lane| lane.try_lock().ok()).for_each(|mut lane| work(&mut lane.log));
    }
}

pub(crate) struct Lane<L> {
    identity: LaneRef,
    pub(crate) log: L,
    is_claimed: bool,
    /// The position in the stream. Valid only while the lane is claimed.
    position: Position,
    /// Events that are in the stream, but that the state does not record as delivered. They are skipped when they are
    /// offered.
    held: BTreeSet<EventKey>,
    /// The delivery that was appended last, while its outcome is unknown.
    unanswered: Option<Uuid>,
    /// The most events of the next append.
    append_size: RequestSize,
}

/// The messages of a delivery that are appended next.
struct Chunk<E> {
    events: Vec<E>,
    /// The keys of the events, and their indices among the messages of the delivery.
    keys: Vec<(usize, EventKey)>,
    /// Once the events of this chunk are in the stream, the stream contains all messages before this index.
    end: usize,
    /// The error if the stream does not accept the message at `end`.
    unfit: Option<SinkError>,
}

impl<L: Log> Lane<L> {
    fn new(identity: LaneRef, log: L) -> Self {
        let (position, held, append_size) = (Position::default(), BTreeSet::new(), RequestSize::new(usize::MAX));
        Self { identity, log, is_claimed: false, position, held, unanswered: None, append_size }
    }

    /// Claims the lane, and compares its position in the stream with the recorded cursor.
    pub(crate) async fn resume(&mut self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        self.is_claimed = false;
        let position = match self.log.claim(recorded).await? {
            ClaimedPosition::Missing(why) => {
                return Ok(Resumed { position: LanePosition::Missing(why), ..Resumed::default() });
            }
            ClaimedPosition::At(position) => position,
        };
        let place = LanePosition::At(position.through);
        let is_lost = |delivery: &&LateDelivery| delivery.after > position.through;
        let mut lost: BTreeSet<_> = recorded.late.iter().filter(is_lost).map(|delivery| delivery.event).collect();
        let in_doubt = position.late_in_doubt(recorded);
        let unrecorded = Unrecorded::new(recorded, position.through);
        let (replayed, others) =
            position.events().into_iter().partition::<BTreeSet<_>, _>(|key| unrecorded.is_replayed(key));
        // Unless the position answers the last append, it names events of a recorded delivery.
        let is_recorded = self.unanswered != Some(position.delivery);
        let position = if is_recorded && !replayed.is_empty() { position.keeping(&others) } else { position };
        let doubted = unrecorded.doubted(&position, recorded);
        // The position no longer names events of earlier deliveries. Only a search of the whole stream finds these events.
        let is_moved_back = unrecorded.is_moved_back(&position);
        let everywhere = is_moved_back || position.is_unsearched || !doubted.is_empty();
        let UnrecordedEvents { mut last, mut earlier } = self.log.search(everywhere, &unrecorded).await?;
        earlier.retain(|key| !unrecorded.is_replayed(key));
        if !in_doubt.is_empty() {
            let UnrecordedEvents { last, earlier } = self.log.search(true, &Unrecorded::only(&in_doubt)).await?;
            lost.extend(&in_doubt - &(&last | &earlier));
        }
        let found = &last | &earlier;
        last.extend(earlier.iter().filter(|key| doubted.contains(&key.offset)));
        let (position, there) = unrecorded.compare(&position, &doubted, &last, &found);
        let (channel, sink, events) = (&self.identity.channel.name, &self.identity.sink, there.len());
        if is_moved_back && events > 0 {
            warn!(%channel, %sink, events, "{}", L::MOVED_BACK);
        } else if events > 0 {
            info!(%channel, %sink, events, "{}", L::HOLDS);
        }
        // The events in `held` will be offered again. A pending event that is in the stream is not offered again,
        // unless an operator replays it.
        (self.position, self.held, self.is_claimed) = (position, &there - &unrecorded.pending, true);
        self.unanswered = None;
        Ok(Resumed { position: place, held: there.into_iter().collect(), lost })
    }

    /// Appends the messages that are not in the stream yet.
    pub(crate) async fn deliver(&mut self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let mut settled = 0;
        let appended = self.append(delivery, &mut settled).await;
        appended.map_err(|error| Undelivered::after(settled, error))?;
        if let Some(last) = delivery.messages.last() {
            let offered: BTreeSet<_> = delivery.messages.iter().map(Message::event_key).collect();
            self.held.retain(|key| key.offset >= last.offset() && !offered.contains(key));
        }
        self.is_claimed = true;
        Ok(())
    }

    /// Sets `settled` to the number of messages, counted from the first, that are in the stream and covered by the
    /// position. The number is also valid if this method fails.
    async fn append(&mut self, delivery: &Delivery<'_>, settled: &mut usize) -> Result<(), SinkError> {
        if !mem::take(&mut self.is_claimed) || self.position.through != delivery.after {
            return Err(self.log.displaced());
        }
        self.log.ready(&self.position).await?;
        // Events that are in the stream, but not recorded as delivered, stay named in the position.
        let mut named = self.position.events();
        named.retain(|key| self.held.contains(key));
        let base = self.position.keeping(&named);
        let (mut most, mut refused, mut is_fresh) = (usize::MAX, None::<(usize, SinkError)>, false);
        loop {
            let stop = refused.as_ref().map(|(index, _)| *index);
            let Chunk { events, keys, end, unfit } =
                self.chunk(delivery.messages, *settled, most.min(self.append_size.events()), stop);
            // The position after all messages before `end` are delivered.
            let through = delivery.after.max((end > 0).then(|| delivery.through_part(&(0..end))));
            if events.is_empty() && self.position.through == through {
                *settled = end;
                match (refused, unfit) {
                    (Some((index, error)), _) => {
                        let others = self.fitting(&delivery.messages[index + 1..]).take(OTHERS).collect();
                        let other = self.log.offer_others(others, &self.position).await;
                        return Err(error.judged(other));
                    }
                    (None, None) => return Ok(()),
                    (None, Some(error)) if is_fresh => {
                        let takes_other = self.log.takes_small(&delivery.messages[end])
                            || self.fitting(delivery.messages).next().is_some();
                        return Err(error.judged(OtherContent::accepted(takes_other)));
                    }
                    (None, Some(_)) => self.log.refresh().await?,
                }
                (refused, is_fresh) = (None, true);
                continue;
            }
            let mut all = named.clone();
            all.extend(keys.iter().map(|(_, key)| *key));
            let mut position = base.clone().with(&all);
            (position.epoch, position.delivery, position.through) = (delivery.epoch, Uuid::new_v4(), through);
            position.is_unsearched = false;
            self.unanswered = Some(position.delivery);
            let appended = self.log.append(events, &position).await;
            match &appended {
                Err(SinkError::Unavailable { fault: Fault::Target, .. }) if !keys.is_empty() => {
                    self.append_size.shrink_to(keys.len().div_ceil(2));
                }
                Ok(Appended::All) => self.append_size.succeeded(keys.len()),
                _ => {}
            }
            let there = match appended? {
                Appended::All => {
                    (named, self.position, self.unanswered, *settled) = (all, position, None, end);
                    continue;
                }
                Appended::Held(there) => there,
                Appended::Refused { at, error } => {
                    let Some(at) = at.or((keys.len() == 1).then_some(0)) else {
                        // Appending smaller parts shows which event is refused.
                        most = keys.len().div_ceil(2);
                        continue;
                    };
                    refused = Some((keys[at].0, error));
                    keys[..at].iter().map(|(_, key)| *key).collect()
                }
            };
            self.held.extend(&there);
            named.extend(there);
        }
    }

    /// The events of the messages that the limits of the stream allow.
    fn fitting(&self, messages: &[Message]) -> impl Iterator<Item = L::Event> {
        messages.iter().filter_map(|message| self.log.event(message).ok()).map(|(event, _)| event)
    }

    /// The messages after the first `settled` that can be appended together: at most `most`, and not the message at `stop`.
    fn chunk(&self, messages: &[Message], settled: usize, most: usize, stop: Option<usize>) -> Chunk<L::Event> {
        let limits = self.log.limits();
        let (most, mut bytes) = (limits.events.min(most), 0);
        let mut chunk = Chunk { events: Vec::new(), keys: Vec::new(), end: messages.len(), unfit: None };
        for (index, message) in messages.iter().enumerate().skip(settled) {
            let key = message.event_key();
            if self.held.contains(&key) {
                continue;
            }
            if chunk.events.len() == most || stop == Some(index) {
                return Chunk { end: index, ..chunk };
            }
            match self.log.event(message) {
                Err(error) => return Chunk { end: index, unfit: Some(error), ..chunk },
                Ok((_, size)) if bytes + size > limits.bytes && !chunk.events.is_empty() => {
                    return Chunk { end: index, ..chunk };
                }
                Ok((event, size)) => {
                    bytes += size;
                    chunk.events.push(event);
                    chunk.keys.push((index, key));
                }
            }
        }
        chunk
    }
}

#[cfg(test)]
mod tests;
