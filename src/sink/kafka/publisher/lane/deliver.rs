//! Producing a delivery: its events and the lane's position, in one transaction, or in several if the delivery is large.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use uuid::Uuid;

use super::{Lane, Shared, raised};
use crate::kafka::publisher::failure::Failure;
use crate::kafka::publisher::positions::{Position, body};
use crate::kafka::publisher::producer::{Broken, Outgoing};
use crate::{SinkError, Undelivered, stream};
use proof::event::{EventKey, Offset};
use record::{Field, Message};

/// The most bytes in one transaction, unless one event is larger. The library keeps a copy of them until the transaction
/// ends.
pub(super) const BYTES: usize = 4 << 20;

/// Upper bounds of the overhead in bytes: of a batch of one record, and of each header without its texts.
const OVERHEAD: usize = 128;
const HEADER_OVERHEAD: usize = 10;

/// An event that is ready to be produced.
struct Event {
    identity: EventKey,
    key: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Event {
    /// The size as a broker counts it, or slightly more.
    fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD);
        OVERHEAD + self.key.len() + self.body.len() + headers.sum::<usize>()
    }
}

/// An owned copy of a delivery, for the thread that produces it.
pub(in crate::kafka::publisher) struct Offer {
    pub(in crate::kafka::publisher) epoch: u64,
    pub(in crate::kafka::publisher) after: Option<Offset>,
    pub(in crate::kafka::publisher) through: Offset,
    pub(in crate::kafka::publisher) messages: Vec<Message>,
}

impl Offer {
    /// The position after all messages before this index are delivered.
    fn reached(&self, end: usize) -> Option<Offset> {
        let through = if end == self.messages.len() {
            Some(self.through)
        } else {
            end.checked_sub(1).map(|last| self.messages[last].offset())
        };
        self.after.max(through)
    }
}

/// The messages of a delivery that are produced next.
struct Chunk {
    events: Vec<Event>,
    /// When these are in the topic, all messages before this index are.
    end: usize,
    /// Why the message at `end` can never be produced, if so.
    unfit: Option<SinkError>,
}

impl Lane {
    /// Produces the messages that are not in the topic yet.
    pub(in crate::kafka::publisher) fn deliver(&mut self, shared: &Shared, offer: &Offer) -> Result<(), Undelivered> {
        let mut settled = 0;
        let result = self.produce(shared, offer, &mut settled);
        self.used = Instant::now();
        if let Some(last) = offer.messages[..settled].last() {
            let offered: BTreeSet<_> = offer.messages.iter().map(|message| message.record().event_key()).collect();
            self.held.retain(|key| key.offset >= last.offset() && !offered.contains(key));
        }
        result.map_err(|error| Undelivered::after(settled, error))
    }

    /// Counts in `settled` how many of the first messages are in the topic and covered by the position.
    fn produce(&mut self, shared: &Shared, offer: &Offer, settled: &mut usize) -> Result<(), SinkError> {
        shared.brokers.reach().map_err(Failure::error)?;
        self.claimed(shared, offer.epoch).map_err(Failure::error)?;
        if self.position.lane.through != offer.after {
            return Err(self.displaced(shared).error());
        }
        // Events that are in the topic, but not recorded as delivered, stay named in the position.
        let mut named = self.position.lane.events();
        named.retain(|key| self.held.contains(key));
        let base = self.position.lane.keeping(&named);
        let delivery = Uuid::new_v4();
        let (mut limit, mut has_looked) = (self.bytes, false);
        loop {
            let Chunk { events, end, unfit } = self.chunk(&offer.messages, *settled, limit, shared);
            let through = offer.reached(end);
            if events.is_empty() && self.position.lane.through == through {
                *settled = end;
                let Some(error) = unfit else { return Ok(()) };
                if has_looked {
                    return Err(error);
                }
                // An operator may have raised the limit of the topic meanwhile.
                self.look_again(shared).map_err(Failure::error)?;
                has_looked = true;
                continue;
            }
            let mut all = named.clone();
            all.extend(events.iter().map(|event| event.identity));
            let mut position = Position { lane: base.clone().with(&all), ends: self.position.ends.clone() };
            (position.lane.epoch, position.lane.delivery, position.lane.through) = (offer.epoch, delivery, through);
            match self.transact(shared, &events, position) {
                Ok(()) => {
                    named = all;
                    *settled = end;
                }
                // One of the events is refused. Smaller transactions show which one.
                Err(Broken { failure: Failure::Event { is_too_large, .. }, is_aborted: true }) if events.len() > 1 => {
                    limit = events.iter().map(Event::size).sum::<usize>().div_ceil(2);
                    if is_too_large {
                        self.bytes = limit;
                    }
                }
                Err(Broken { failure, .. }) => {
                    return Err(match failure {
                        Failure::Event { said, is_too_large } if !events.is_empty() => {
                            self.refused(&events[0], &said, is_too_large, shared)
                        }
                        Failure::Event { said, .. } => SinkError::unusable(format!(
                            "producing the lane's position to {}: {said}",
                            shared.brokers.settings.positions_topic
                        )),
                        failure => failure.error(),
                    });
                }
            }
        }
    }

    /// The messages after the first `settled` that can be produced together.
    fn chunk(&self, messages: &[Message], settled: usize, limit: usize, shared: &Shared) -> Chunk {
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (index, message) in messages.iter().enumerate().skip(settled) {
            if self.held.contains(&message.record().event_key()) {
                continue;
            }
            let record = message.record();
            let key = record.facts().subject().or_else(|| record.facts().get(Field::Type).map(str::to_owned));
            let headers = stream::headers(&self.identity, message);
            let (key, body) = (key.unwrap_or_default(), message.body().clone());
            let event = Event { identity: record.event_key(), key, headers, body };
            if self.largest().is_some_and(|largest| event.size() > largest) {
                let unfit = Some(self.too_large(&event, None, shared));
                return Chunk { events, end: index, unfit };
            }
            bytes += event.size();
            if bytes > limit && !events.is_empty() {
                return Chunk { events, end: index, unfit: None };
            }
            events.push(event);
        }
        Chunk { events, end: messages.len(), unfit: None }
    }

    /// The largest batch that the topic accepts, if the brokers say it.
    fn largest(&self) -> Option<usize> {
        self.claim.as_ref()?.topic.largest
    }

    fn look_again(&mut self, shared: &Shared) -> Result<(), Failure> {
        shared.seen.forget();
        let topic = shared.seen.facts(&shared.brokers, false)?.ok_or_else(|| self.displaced(shared))?;
        if let Some(claim) = &mut self.claim {
            claim.topic = topic;
        }
        Ok(())
    }

    /// The error for an event that was produced alone and that a broker refused.
    fn refused(&mut self, event: &Event, said: &str, is_too_large: bool, shared: &Shared) -> SinkError {
        if !is_too_large {
            return SinkError::refused(format!("the topic {} refuses it: {said}", shared.brokers.settings.topic));
        }
        // The limit of the topic was not known, or has changed. If it cannot be read now, the message states the old limit
        // or none.
        let _ = self.look_again(shared);
        self.too_large(event, Some(said), shared)
    }

    fn too_large(&self, event: &Event, said: Option<&str>, shared: &Shared) -> SinkError {
        let (size, topic) = (event.size(), &shared.brokers.settings.topic);
        let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
        SinkError::refused(match self.largest() {
            Some(largest) => format!(
                "the event takes {size} bytes with its headers, and the topic {topic} takes {largest} (max.message.bytes){said}"
            ),
            None => format!("the event takes {size} bytes with its headers, and the topic {topic} takes fewer{said}"),
        })
    }

    /// Produces events and the lane's position in one transaction.
    fn transact(&mut self, shared: &Shared, events: &[Event], mut position: Position) -> Result<(), Broken> {
        let settings = &shared.brokers.settings;
        let Some(claim) = &self.claim else { return Err(Broken { failure: Failure::Fenced, is_aborted: false }) };
        let written = body(&position);
        let mut records: Vec<_> = events
            .iter()
            .map(|event| Outgoing {
                topic: &settings.topic,
                partition: None,
                key: &event.key,
                headers: &event.headers,
                body: &event.body,
            })
            .collect();
        records.push(shared.position_record(&self.id, &written));
        let result = claim.producer.transact(&shared.brokers, &records, |taken| {
            Self::check_ends(&position, taken, &settings.topic)?;
            position.ends = raised(&position.ends, taken);
            Ok(())
        });
        match &result {
            Ok(()) => self.position = position,
            Err(Broken { failure: Failure::Displaced(why), .. }) => {
                self.lost = Some(why.clone());
                self.claim = None;
            }
            Err(Broken { is_aborted: true, .. }) => {}
            Err(Broken { failure, .. }) => {
                if !matches!(failure, Failure::Away(_) | Failure::Fenced) {
                    shared.seen.forget();
                }
                self.claim = None;
            }
        }
        result
    }
}
