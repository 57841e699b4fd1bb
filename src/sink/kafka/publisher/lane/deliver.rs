//! Producing a delivery: its events and the lane's position, in one transaction or, where it is large, in several.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use uuid::Uuid;

use super::{Lane, Shared};
use crate::event::Offset;
use crate::record::{Field, Message};
use crate::sink::kafka::publisher::failure::Failure;
use crate::sink::kafka::publisher::positions::{Position, body};
use crate::sink::kafka::publisher::producer::{Broken, Outgoing, POSITIONS};
use crate::sink::{SinkError, Undelivered, stream};

/// The most bytes in one transaction, unless one event has more. The library keeps a copy of them until it ends.
pub(super) const BYTES: usize = 4 << 20;

/// What a batch of one record adds to the record, at the most, and each header to its texts.
const OVERHEAD: usize = 128;
const HEADER_OVERHEAD: usize = 10;

/// An event that is ready to be produced.
struct Event {
    /// Its place among the messages that were offered.
    index: usize,
    offset: Offset,
    key: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Event {
    /// Its size as a broker counts it, or a little more.
    fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD);
        OVERHEAD + self.key.len() + self.body.len() + headers.sum::<usize>()
    }
}

impl Lane {
    /// Produces what is not there yet.
    pub(in crate::sink::kafka::publisher) fn deliver(
        &mut self,
        shared: &Shared,
        epoch: u64,
        messages: &[Message],
    ) -> Result<(), Undelivered> {
        let mut settled = 0;
        let result = self.produce(shared, epoch, messages, &mut settled);
        self.used = Instant::now();
        let rest = if result.is_ok() { &[] } else { &messages[settled..] };
        let beyond = rest.iter().map(Message::offset).filter(|offset| self.held.contains(offset)).collect();
        // What was offered is not offered again unless that is meant.
        if let Some(last) = messages.last() {
            self.held.retain(|offset| *offset > last.offset());
        }
        result.map_err(|error| Undelivered { delivered: settled, beyond, error })
    }

    /// Counts in `settled` how many of the first messages are there.
    fn produce(
        &mut self,
        shared: &Shared,
        epoch: u64,
        messages: &[Message],
        settled: &mut usize,
    ) -> Result<(), SinkError> {
        shared.brokers.reach().map_err(Failure::error)?;
        self.claimed(shared, epoch).map_err(Failure::error)?;
        // What was there before and is not recorded stays named in the lane's position.
        let mut there = self.held.clone();
        let prior = if there.is_empty() { self.position.highest() } else { self.position.prior };
        let delivery = Uuid::new_v4();
        let (mut limit, mut has_looked) = (self.bytes, false);
        loop {
            let (chunk, unfit) = self.chunk(messages, *settled, limit, shared);
            if chunk.is_empty() {
                let Some(error) = unfit else { return Ok(()) };
                if has_looked {
                    return Err(error);
                }
                // An operator may have changed the topic meanwhile.
                self.look_again(shared).map_err(Failure::error)?;
                has_looked = true;
                continue;
            }
            let all: BTreeSet<_> = there.iter().copied().chain(chunk.iter().map(|event| event.offset)).collect();
            let position = Position {
                channel: self.identity.channel.name.to_string(),
                channel_id: self.identity.channel.id,
                sink: self.identity.sink.to_string(),
                epoch,
                delivery,
                prior,
                offsets: Vec::new(),
            }
            .with(&all);
            match self.transact(shared, &chunk, position) {
                Ok(()) => {
                    there = all;
                    *settled = chunk.last().map_or(*settled, |last| last.index + 1);
                }
                // One of them is refused: which, the halves tell.
                Err(Broken { failure: Failure::Event { is_too_large, .. }, is_aborted: true }) if chunk.len() > 1 => {
                    limit = chunk.iter().map(Event::size).sum::<usize>().div_ceil(2);
                    if is_too_large {
                        self.bytes = limit;
                    }
                }
                Err(Broken { failure, .. }) => {
                    return Err(match failure {
                        // By another instance, or because the transaction was open for too long: the next claim tells.
                        Failure::Fenced => self.claimed(shared, epoch).err().unwrap_or(failure).error(),
                        Failure::Event { said, is_too_large } => self.refused(&chunk[0], &said, is_too_large, shared),
                        failure => failure.error(),
                    });
                }
            }
        }
    }

    /// The messages from the first one that is not settled on that can be produced together, and why the one after them cannot
    /// be at all, where that is so.
    fn chunk(
        &self,
        messages: &[Message],
        settled: usize,
        limit: usize,
        shared: &Shared,
    ) -> (Vec<Event>, Option<SinkError>) {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for (index, message) in messages.iter().enumerate().skip(settled) {
            if self.held.contains(&message.offset()) {
                continue;
            }
            let record = message.record();
            let key = record.facts().subject().or_else(|| record.facts().get(Field::Type).map(str::to_owned));
            let headers = stream::headers(&self.identity, message);
            let (key, body) = (key.unwrap_or_default(), message.body().clone());
            let event = Event { index, offset: record.offset, key, headers, body };
            if self.largest().is_some_and(|largest| event.size() > largest) {
                return (chunk, Some(self.too_large(&event, None, shared)));
            }
            bytes += event.size();
            if bytes > limit && !chunk.is_empty() {
                break;
            }
            chunk.push(event);
        }
        (chunk, None)
    }

    /// The largest batch that the topic takes, as far as it was told.
    fn largest(&self) -> Option<usize> {
        self.claim.as_ref()?.topic.largest
    }

    fn look_again(&mut self, shared: &Shared) -> Result<(), Failure> {
        shared.seen.forget();
        let topic = shared.seen.facts(&shared.brokers)?;
        if let Some(claim) = &mut self.claim {
            claim.topic = topic;
        }
        Ok(())
    }

    /// That a broker has refused an event that stood alone.
    fn refused(&mut self, event: &Event, said: &str, is_too_large: bool, shared: &Shared) -> SinkError {
        if !is_too_large {
            return SinkError::refused(format!("the topic {} refuses it: {said}", shared.brokers.settings.topic));
        }
        // What it takes was not known, or has changed. Where it cannot be asked now, one size is said.
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

    /// Produces events and the lane's position as one. What came of it is in doubt until it is told.
    fn transact(&mut self, shared: &Shared, events: &[Event], position: Position) -> Result<(), Broken> {
        let settings = &shared.brokers.settings;
        let Some(claim) = &self.claim else { return Err(Broken { failure: Failure::Fenced, is_aborted: false }) };
        self.in_doubt = Some(position.delivery);
        let place = body(&position);
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
        records.push(Outgoing {
            topic: &settings.positions_topic,
            partition: Some(POSITIONS),
            key: &self.id,
            headers: &[],
            body: &place,
        });
        let result = claim.producer.transact(&shared.brokers, &records);
        match &result {
            Ok(()) => self.position = position,
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
