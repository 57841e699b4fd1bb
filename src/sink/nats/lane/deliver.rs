//! Publishing a delivery: in atomic batches, or one message at a time, each time followed by the position.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{Claim, Lane, Shared, fenced, max_payload, stream};
use crate::nats::BATCH;
use crate::nats::message::{
    BATCH_COMMIT, BATCH_ID, BATCH_SEQUENCE, EXPECTED_SEQUENCE, EXPECTED_SUBJECT, Outgoing, key_of,
};
use crate::nats::position::Position;
use crate::nats::server::{Ack, BATCHES_DISABLED, DUPLICATE, Failure, WRONG_SEQUENCE};
use crate::stream::Unrecorded;
use crate::{Delivery, SinkError, Undelivered};
use proof::event::{EventKey, Offset};

/// The most bytes in one batch, unless one event is larger. A server keeps a batch in memory until the batch ends.
const BATCH_BYTES: usize = 4 << 20;

/// How messages are sent together.
#[derive(Clone, Copy)]
struct Attempt {
    /// The most messages in one batch.
    size: usize,
    /// Set if the server already knows the plain ids: this sequence number of the lane's position is appended to each id.
    again: Option<u64>,
}

impl Attempt {
    const FIRST: Self = Self { size: BATCH, again: None };
}

/// The messages of a delivery that are sent next.
struct Chunk {
    events: Vec<Outgoing>,
    /// When these are in the stream, all messages before this index are.
    end: usize,
    /// Why the message at `end` can never be sent, if so.
    unfit: Option<SinkError>,
}

/// The outcome of messages that were sent together.
enum Sent {
    /// All messages of the delivery before this index are in the stream, and the position covers them. The error, if any,
    /// is the refusal of the message at the index.
    Stored(usize, Option<SinkError>),
    /// No message is stored. They are sent again in this way.
    Retry(Attempt),
}

impl Lane {
    /// Publishes the messages that are not in the stream yet.
    pub(in crate::nats) async fn deliver(
        &mut self,
        shared: &Shared,
        delivery: &Delivery<'_>,
    ) -> Result<(), Undelivered> {
        let mut settled = 0;
        let result = self.publish(shared, delivery, &mut settled).await;
        if let Some(last) = delivery.messages[..settled].last() {
            let offered: BTreeSet<_> = delivery.messages.iter().map(|message| message.record().event_key()).collect();
            self.held.retain(|key| key.offset >= last.offset() && !offered.contains(key));
        }
        result.map_err(|error| Undelivered::after(settled, error))
    }

    /// Counts in `settled` how many of the first messages are in the stream and covered by the position.
    async fn publish(
        &mut self,
        shared: &Shared,
        delivery: &Delivery<'_>,
        settled: &mut usize,
    ) -> Result<(), SinkError> {
        if self.claim.is_none() || self.position.lane.through != delivery.after {
            return Err(self.displaced(shared));
        }
        // Events that are in the stream, but not recorded as delivered, stay named in the position.
        let mut named = self.position.lane.events();
        named.retain(|key| self.held.contains(key));
        let base = self.position.lane.keeping(&named);
        let (mut has_looked, mut attempt) = (false, Attempt::FIRST);
        loop {
            let mut chunk = self.chunk(shared, delivery, *settled, attempt).await?;
            if chunk.events.is_empty() && self.position.lane.through == reached(delivery, chunk.end) {
                *settled = chunk.end;
                let Some(error) = chunk.unfit.take() else { return Ok(()) };
                if has_looked {
                    return Err(error);
                }
                // An operator may have changed the stream meanwhile.
                let looked = stream(shared, false).await?;
                let (Some(claim), Some(looked)) = (&mut self.claim, looked) else { return Err(self.displaced(shared)) };
                claim.stream = looked;
                has_looked = true;
                continue;
            }
            let mut position = Position { lane: base.clone(), since: None, ..self.position.clone() };
            (position.lane.epoch, position.lane.delivery) = (delivery.epoch, Uuid::new_v4());
            match self.send(shared, delivery, chunk, position, &mut named, attempt).await? {
                Sent::Stored(end, error) => {
                    *settled = end;
                    if let Some(error) = error {
                        return Err(error);
                    }
                    attempt = Attempt::FIRST;
                }
                Sent::Retry(other) => attempt = other,
            }
        }
    }

    /// The messages after the first `settled` that can be sent together.
    async fn chunk(
        &self,
        shared: &Shared,
        delivery: &Delivery<'_>,
        settled: usize,
        Attempt { size, again }: Attempt,
    ) -> Result<Chunk, SinkError> {
        let (settings, max_payload) = (&shared.settings, max_payload(shared).await?);
        let (mut events, mut bytes) = (Vec::new(), 0);
        for (index, message) in delivery.messages.iter().enumerate().skip(settled) {
            if self.held.contains(&message.record().event_key()) {
                continue;
            }
            if events.len() == size {
                return Ok(Chunk { events, end: index, unfit: None });
            }
            let mut outgoing = Outgoing::new(index, delivery.lane, message, &settings.stream, &settings.subject);
            if let Some(position) = again {
                outgoing = outgoing.again(position);
            }
            if let Some(error) = self.unfit(&outgoing, max_payload, &settings.stream) {
                return Ok(Chunk { events, end: index, unfit: Some(error) });
            }
            bytes += outgoing.size();
            if bytes > BATCH_BYTES && !events.is_empty() {
                return Ok(Chunk { events, end: index, unfit: None });
            }
            events.push(outgoing);
        }
        Ok(Chunk { events, end: delivery.messages.len(), unfit: None })
    }

    /// Why the stream would not accept an event, if so.
    fn unfit(&self, event: &Outgoing, max_payload: usize, stream: &str) -> Option<SinkError> {
        let facts = &self.claim.as_ref()?.stream;
        let size = event.size();
        let limit = facts.max_size.filter(|limit| *limit < max_payload);
        let message = if !facts.takes(&event.subject) {
            let subject = &event.subject;
            format!("the stream {stream} does not take the subject {subject}: add it to the stream's subjects")
        } else if let Some(limit) = limit.filter(|limit| size > *limit) {
            format!(
                "the event takes {size} bytes with its headers, and the stream {stream} takes {limit} (max_msg_size)"
            )
        } else if size > max_payload {
            format!("the event takes {size} bytes with its headers, and the server takes {max_payload} (max_payload)")
        } else {
            return None;
        };
        Some(SinkError::refused(message))
    }

    /// Sends the messages of a chunk, and the position that results from them. Adds the events that the stream then
    /// contains to `named`.
    async fn send(
        &mut self,
        shared: &Shared,
        delivery: &Delivery<'_>,
        Chunk { events, end, .. }: Chunk,
        position: Position,
        named: &mut BTreeSet<EventKey>,
        attempt: Attempt,
    ) -> Result<Sent, SinkError> {
        let Some(claim) = self.claim.take() else { return Err(self.displaced(shared)) };
        let sequence = claim.sequence;
        let (count, refused) =
            if claim.stream.batches { (events.len(), None) } else { self.one_by_one(shared, &events, sequence).await };
        let end = events.get(count).map_or(end, |next| next.index);
        let refused = match refused {
            Some(Failure::Refused(refusal)) if refusal.err_code == WRONG_SEQUENCE => return Err(self.displaced(shared)),
            Some(failure @ Failure::Unanswered(_)) => return Err(shared.server.error_of_event(failure)),
            refused => refused.map(|failure| shared.server.error_of_event(failure)),
        };
        if count == 0 && refused.is_some() {
            self.claim = Some(claim);
            return Ok(Sent::Stored(end, refused));
        }
        let mut all = named.clone();
        all.extend(events[..count].iter().map(|event| event.key));
        let mut position = Position { lane: position.lane.with(&all), ..position };
        position.lane.through = reached(delivery, end);
        let is_position_alone = events.is_empty() || !claim.stream.batches;
        let batch = if claim.stream.batches { events } else { Vec::new() };
        let size = batch.len();
        let failure = match self.store(shared, claim, batch, position).await {
            Ok(()) => {
                *named = all;
                return Ok(Sent::Stored(end, refused));
            }
            Err(failure) => failure,
        };
        match failure {
            Failure::Refused(refusal) if refusal.err_code == WRONG_SEQUENCE => {
                self.claim = None;
                Err(self.displaced(shared))
            }
            Failure::Refused(refusal) if refusal.err_code == DUPLICATE => {
                let (known, found) = (named.len(), self.stored_after(shared, sequence).await?);
                self.held.extend(&found);
                named.extend(found);
                match attempt.again {
                    // The server has stored only a part of a batch.
                    _ if named.len() > known => Ok(Sent::Retry(Attempt::FIRST)),
                    None => Ok(Sent::Retry(Attempt { again: Some(sequence), ..attempt })),
                    Some(_) => Err(shared.server.error_of_event(Failure::Refused(refusal))),
                }
            }
            failure if is_position_alone => Err(shared.server.error_in("publishing the lane's position to", failure)),
            failure => match shared.server.error_of_event(failure) {
                // One of the messages is refused. Smaller batches show which one.
                SinkError::Refused { .. } if size > 1 => Ok(Sent::Retry(Attempt { size: size.div_ceil(2), ..attempt })),
                error => Err(error),
            },
        }
    }

    /// Publishes the events of a batch and then the position, all or nothing. The lane has no claim while it waits for the
    /// answer.
    async fn store(
        &mut self,
        shared: &Shared,
        claim: Claim,
        batch: Vec<Outgoing>,
        position: Position,
    ) -> Result<(), Failure> {
        let id = position.lane.delivery.simple().to_string();
        let last = batch.len() + 1;
        for (event, number) in batch.into_iter().zip(1_usize..) {
            let mut headers = event.headers;
            headers.insert(BATCH_ID, &*id);
            headers.insert(BATCH_SEQUENCE, &*number.to_string());
            shared.server.send(event.subject, headers, event.body).await?;
        }
        let mut headers = fenced(&claim.stream, claim.sequence, &shared.settings);
        if last > 1 {
            headers.insert(BATCH_ID, &*id);
            headers.insert(BATCH_SEQUENCE, &*last.to_string());
            headers.insert(BATCH_COMMIT, "1");
        }
        match shared.server.publish(self.subject.clone(), headers, position.to_json()).await {
            Ok(Ack { seq, .. }) => {
                self.sequence = seq;
                self.claim = Some(Claim { sequence: seq, ..claim });
                self.position = position;
                Ok(())
            }
            Err(failure) => {
                // An operator has changed the stream. Without its claim the lane resumes, and reads the stream's settings
                // again.
                let is_changed = matches!(&failure, Failure::Refused(refusal) if refusal.err_code == BATCHES_DISABLED);
                if !is_changed && matches!(failure, Failure::Refused(_)) {
                    self.claim = Some(claim);
                }
                Err(failure)
            }
        }
    }

    /// Publishes each event under the condition that the position message `sequence` is still the last one on its subject.
    /// Returns how many of the first events are stored, and why the next one is not.
    async fn one_by_one(&self, shared: &Shared, events: &[Outgoing], sequence: u64) -> (usize, Option<Failure>) {
        for (count, event) in events.iter().enumerate() {
            if let Err(failure) = self.one(shared, event, sequence).await {
                return (count, Some(failure));
            }
        }
        (events.len(), None)
    }

    /// Publishes one event after the position message `sequence`.
    async fn one(&self, shared: &Shared, event: &Outgoing, sequence: u64) -> Result<(), Failure> {
        let mut event = event.clone();
        loop {
            let mut headers = event.headers.clone();
            headers.insert(EXPECTED_SEQUENCE, &*sequence.to_string());
            headers.insert(EXPECTED_SUBJECT, &*self.subject);
            let ack = shared.server.publish(event.subject.clone(), headers, event.body.clone()).await?;
            if !ack.duplicate {
                return Ok(());
            }
            // The server knows the id from a stored message of this lane, or from another message.
            let known = if ack.seq > sequence { shared.server.at(ack.seq).await? } else { None };
            let key = known.and_then(|known| key_of(&known.headers, self.identity.channel.id, &self.identity.sink));
            if key == Some(event.key) {
                return Ok(());
            }
            event = event.again(sequence);
        }
    }

    /// The events of this lane in the stream after the position message `sequence`.
    async fn stored_after(&self, shared: &Shared, sequence: u64) -> Result<BTreeSet<EventKey>, SinkError> {
        let found = self.search(shared, sequence + 1, &Unrecorded::all()).await?;
        Ok(found.into_iter().map(|(_, key)| key).collect())
    }

    fn displaced(&self, shared: &Shared) -> SinkError {
        SinkError::Displaced(format!(
            "the lane's last position message in the stream {}, on the subject {}, is not the one that this instance wrote",
            shared.settings.stream, self.subject
        ))
    }
}

/// The position after all messages before this index are delivered.
fn reached(delivery: &Delivery<'_>, end: usize) -> Option<Offset> {
    let through = if end == 0 { None } else { Some(delivery.through_part(&(0..end))) };
    delivery.after.max(through)
}
