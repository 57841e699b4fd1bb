//! The events and positions of one lane in a JetStream stream.
//!
//! Each message has the condition that the lane's last position message has not changed. The server checks it.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_nats::HeaderMap;
use async_trait::async_trait;
use tracing::info;

use super::message::{
    BATCH_COMMIT, BATCH_ID, BATCH_SEQUENCE, EXPECTED_SEQUENCE, EXPECTED_STREAM, EXPECTED_SUBJECT, Outgoing, ROLLUP,
    key_of,
};
use super::position::Position;
use super::server::{DUPLICATE, NO_STREAM, Refusal, RequestFailure, WRONG_SEQUENCE, misconfigured};
use super::shared::{BATCH, Shared};
use super::stream::Facts;
use crate::stream::{self, Appended, Claim, Found, Limits, Log, Unrecorded};
use crate::{LaneRef, Position as Place, Recorded, SinkError};
use proof::event::EventKey;
use record::Message;

/// How often a claim is tried if other instances claim the lane at the same time.
const CLAIMS: usize = 5;

/// The most bytes in one batch, unless one event is larger. A server keeps a batch in memory until the batch ends.
const BATCH_BYTES: usize = 4 << 20;

/// One lane's part of the stream.
pub(super) struct LaneLog {
    shared: Arc<Shared>,
    identity: LaneRef,
    /// The subject of its position.
    subject: String,
    /// The epoch of the lease under which this process claimed the lane last. If a newer position is from another process,
    /// that process has taken the lane over.
    epoch: Option<u64>,
    /// The sequence number of the last position message that this process has certainly written. The claim is valid while it
    /// is the last message on the subject.
    sequence: u64,
    /// The sequence number after which the stream may contain events that the claimed position does not cover.
    since: u64,
    /// The stream, as it was last looked at.
    facts: Facts,
    /// The largest message with its headers, in bytes, that the server accepts.
    max_payload: usize,
    /// Set if the server already knows the plain ids: this sequence number of the lane's position is appended to each id.
    again: Option<u64>,
}

/// The last position message.
struct Last {
    sequence: u64,
    position: Position,
}

impl LaneLog {
    pub(super) fn new(shared: Arc<Shared>, identity: LaneRef) -> Self {
        let subject = format!("{}.{}.{}", shared.settings.positions, identity.channel.id, identity.sink);
        let (facts, max_payload) = (Facts::default(), usize::MAX);
        Self { shared, identity, subject, epoch: None, sequence: 0, since: 0, facts, max_payload, again: None }
    }

    /// Fails if another process has claimed the lane since this process claimed it under the same lease.
    fn check_ours(&mut self, last: Option<&Last>, epoch: u64) -> Result<(), SinkError> {
        let is_newer = |last: &&Last| last.position.instance != self.shared.instance && last.sequence > self.sequence;
        let Some(last) = last.filter(is_newer).filter(|_| self.epoch == Some(epoch)) else { return Ok(()) };
        self.epoch = None;
        Err(SinkError::Overtaken(format!(
            "another instance has claimed the lane in the stream {}, at its message {}",
            self.shared.settings.stream, last.sequence
        )))
    }

    /// The position that a claim repeats. `None` if the stream has no position although one is confirmed.
    fn position_to_claim(
        &self,
        known: Option<stream::Position>,
        facts: &Facts,
        recorded: &Recorded,
    ) -> Option<stream::Position> {
        match (known, recorded.confirmed) {
            (None, Some(confirmed)) if facts.has_dropped => {
                info!(channel = %self.identity.channel.name, sink = %self.identity.sink,
                    "the limits of the stream have deleted the lane's position: it starts again at the recorded one");
                Some(stream::Position::first(&self.identity, confirmed.position))
            }
            (known, _) => stream::Position::adopted(known, recorded),
        }
    }

    /// The last position message.
    async fn last(&self) -> Result<Option<Last>, SinkError> {
        let Shared { server, settings, .. } = &*self.shared;
        let stored = match server.last(&self.subject).await {
            Err(RequestFailure::Refused(Refusal { err_code: NO_STREAM, .. })) => None,
            stored => stored.map_err(|failure| server.error_in("reading", failure))?,
        };
        let Some(stored) = stored else { return Ok(None) };
        let position = Position::read(&stored.body).map_err(|error| {
            let doing = format!("reading the lane's position in the stream {}", settings.stream);
            let message = format!(
                "message {} is not a position ({error}): nats stream purge {} --subject={}",
                stored.sequence, settings.stream, self.subject
            );
            misconfigured(&doing, &message)
        })?;
        Ok(Some(Last { sequence: stored.sequence, position }))
    }

    fn missing(&self) -> String {
        format!("the stream {} has no position message on the subject {}", self.shared.settings.stream, self.subject)
    }

    /// The unrecorded events of this lane in the stream after the message `sequence`, with their sequence numbers.
    async fn search_after(
        &self,
        mut sequence: u64,
        unrecorded: &Unrecorded,
    ) -> Result<Vec<(u64, EventKey)>, SinkError> {
        let server = &self.shared.server;
        let filter = self.shared.settings.subject.filter(&self.identity.channel);
        let mut found = Vec::new();
        loop {
            let next = server.next(sequence + 1, &filter).await;
            let Some(message) = next.map_err(|failure| server.error_in("reading", failure))? else {
                return Ok(found);
            };
            let key = key_of(&message.headers, self.identity.channel.id, &self.identity.sink);
            found.extend(key.filter(|key| unrecorded.contains(key)).map(|key| (message.sequence, key)));
            sequence = message.sequence;
        }
    }

    /// Publishes a position message under the condition that the last message on its subject is the message `sequence`. A
    /// batch has these headers in addition.
    async fn publish_position(
        &mut self,
        sequence: u64,
        position: &Position,
        batch: &[(&'static str, &str)],
    ) -> Result<(), RequestFailure> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED_STREAM, &*self.shared.settings.stream);
        headers.insert(EXPECTED_SEQUENCE, &*sequence.to_string());
        headers.insert("Content-Type", "application/json");
        if self.facts.rollups {
            headers.insert(ROLLUP, "sub");
        }
        for (name, value) in batch {
            headers.insert(*name, *value);
        }
        let ack = self.shared.server.publish(self.subject.clone(), headers, position.to_json()).await?;
        self.sequence = ack.seq;
        Ok(())
    }

    /// Publishes the events of a batch and then the position, all or nothing.
    async fn publish_batch(&mut self, events: Vec<Outgoing>, position: &Position) -> Result<(), RequestFailure> {
        if events.is_empty() {
            return self.publish_position(self.sequence, position, &[]).await;
        }
        let id = position.lane.delivery.simple().to_string();
        let last = (events.len() + 1).to_string();
        for (event, number) in events.into_iter().zip(1_usize..) {
            let mut headers = event.headers;
            headers.insert(BATCH_ID, &*id);
            headers.insert(BATCH_SEQUENCE, &*number.to_string());
            self.shared.server.send(event.subject, headers, event.body).await?;
        }
        let batch = [(BATCH_ID, &*id), (BATCH_SEQUENCE, &*last), (BATCH_COMMIT, "1")];
        self.publish_position(self.sequence, position, &batch).await
    }

    /// Publishes one event under the condition that the lane's position message is still the last one on its subject.
    async fn publish_alone(&self, mut event: Outgoing) -> Result<(), RequestFailure> {
        let (server, sequence) = (&self.shared.server, self.sequence);
        loop {
            let mut headers = event.headers.clone();
            headers.insert(EXPECTED_SEQUENCE, &*sequence.to_string());
            headers.insert(EXPECTED_SUBJECT, &*self.subject);
            let ack = server.publish(event.subject.clone(), headers, event.body.clone()).await?;
            if !ack.duplicate {
                return Ok(());
            }
            // The server knows the id from a stored message of this lane, or from another message.
            let known = if ack.seq > sequence { server.at(ack.seq).await? } else { None };
            let key = known.and_then(|known| key_of(&known.headers, self.identity.channel.id, &self.identity.sink));
            if key == Some(event.key) {
                return Ok(());
            }
            event = event.again(sequence);
        }
    }

    /// The result if the server knows the id of an event of a batch, and so has not stored the position.
    async fn duplicate(&mut self, keys: &BTreeSet<EventKey>, refusal: Refusal) -> Result<Appended, SinkError> {
        let stored = self.search_after(self.sequence, &Unrecorded::all()).await?;
        let stored: BTreeSet<_> = stored.into_iter().map(|(_, key)| key).filter(|key| keys.contains(key)).collect();
        if !stored.is_empty() {
            // The server has stored only a part of a batch.
            self.again = None;
        } else if self.again.replace(self.sequence).is_some() {
            return Err(self.shared.server.error_of_event(RequestFailure::Refused(refusal)));
        }
        Ok(Appended::Held(stored))
    }

    /// Why the stream would not accept an event, if so.
    fn unfit(&self, event: &Outgoing, size: usize) -> Option<SinkError> {
        let (stream, max_payload) = (&self.shared.settings.stream, self.max_payload);
        let limit = self.facts.max_size.filter(|limit| *limit < max_payload);
        let message = if !self.facts.takes(&event.subject) {
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
}

#[async_trait]
impl Log for LaneLog {
    type Event = Outgoing;

    const MOVED_BACK: &str = "the cursor was moved back: events that are in the stream are not published again";
    const HOLDS: &str = "stream already holds events that are not recorded as delivered";

    async fn position(&mut self) -> Result<Place, SinkError> {
        let last = self.last().await?;
        Ok(last.map_or_else(|| Place::Missing(self.missing()), |last| Place::At(last.position.lane.through)))
    }

    /// Repeats the position as a message of this process.
    async fn claim(&mut self, recorded: &Recorded) -> Result<Claim, SinkError> {
        for _ in 0..CLAIMS {
            let Some(facts) = self.shared.stream(recorded.confirmed.is_none()).await? else {
                return Ok(Claim::Missing(self.missing()));
            };
            let last = self.last().await?;
            self.check_ours(last.as_ref(), recorded.epoch)?;
            let (sequence, known) = match last {
                Some(Last { sequence, position }) => (sequence, Some(position)),
                None => (0, None),
            };
            self.since = known.as_ref().and_then(|known| known.since).unwrap_or(sequence);
            let Some(mut lane) = self.position_to_claim(known.map(|known| known.lane), &facts, recorded) else {
                return Ok(Claim::Missing(self.missing()));
            };
            lane.epoch = recorded.epoch;
            let claim = Position {
                lane: lane.clone(),
                instance: self.shared.instance,
                follow: !facts.batches,
                since: Some(self.since),
            };
            self.facts = facts;
            match self.publish_position(sequence, &claim, &[]).await {
                Ok(()) => {
                    self.epoch = Some(recorded.epoch);
                    return Ok(Claim::At(lane));
                }
                Err(RequestFailure::Refused(refusal)) if refusal.err_code == WRONG_SEQUENCE => {}
                Err(failure) => return Err(self.shared.server.error_in("claiming a lane in", failure)),
            }
        }
        Err(SinkError::away(
            "other processes claim this lane repeatedly: does a second channeld use this sink?".to_owned(),
        ))
    }

    /// Always searches after the claimed position: events that were published one by one, or a part of a batch, can be there.
    async fn search(&mut self, everywhere: bool, unrecorded: &Unrecorded) -> Result<Found, SinkError> {
        let since = self.since;
        let found = self.search_after(if everywhere { 0 } else { since }, unrecorded).await?;
        let (last, earlier): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(sequence, _)| since > 0 && *sequence > since);
        let keys = |found: Vec<(u64, EventKey)>| found.into_iter().map(|(_, key)| key).collect();
        Ok(Found { last: keys(last), earlier: keys(earlier) })
    }

    async fn ready(&mut self, _: &stream::Position) -> Result<(), SinkError> {
        (self.again, self.max_payload) = (None, self.shared.max_payload().await?);
        Ok(())
    }

    async fn refresh(&mut self) -> Result<(), SinkError> {
        self.facts = self.shared.stream(false).await?.ok_or_else(|| self.displaced())?;
        self.max_payload = self.shared.max_payload().await?;
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { events: BATCH, bytes: BATCH_BYTES }
    }

    fn event(&self, message: &Message) -> Result<(Outgoing, usize), SinkError> {
        let settings = &self.shared.settings;
        let event = Outgoing::new(&self.identity, message, &settings.stream, &settings.subject);
        let event = if let Some(sequence) = self.again { event.again(sequence) } else { event };
        let size = event.size();
        self.unfit(&event, size).map_or(Ok((event, size)), Err)
    }

    /// In one atomic batch or, if the stream does not allow batches, one message after the other.
    async fn append(&mut self, events: Vec<Outgoing>, position: &stream::Position) -> Result<Appended, SinkError> {
        let shared = self.shared.clone();
        let server = &shared.server;
        let (instance, follow) = (shared.instance, !self.facts.batches);
        let position = Position { lane: position.clone(), instance, follow, since: None };
        let (alone, batch) = if self.facts.batches { (Vec::new(), events) } else { (events, Vec::new()) };
        for (at, event) in alone.into_iter().enumerate() {
            match self.publish_alone(event).await {
                Ok(()) => {}
                Err(RequestFailure::Refused(refusal)) if refusal.err_code == WRONG_SEQUENCE => {
                    return Err(self.displaced());
                }
                Err(failure @ RequestFailure::Unanswered(_)) => return Err(server.error_of_event(failure)),
                Err(failure) => {
                    return Ok(Appended::Refused { at: Some(at), error: server.error_of_event(failure) });
                }
            }
        }
        let keys: BTreeSet<_> = batch.iter().map(|event| event.key).collect();
        match self.publish_batch(batch, &position).await {
            Ok(()) => {
                self.again = None;
                Ok(Appended::All)
            }
            Err(RequestFailure::Refused(refusal)) if refusal.err_code == WRONG_SEQUENCE => Err(self.displaced()),
            Err(RequestFailure::Refused(refusal)) if refusal.err_code == DUPLICATE => {
                self.duplicate(&keys, refusal).await
            }
            Err(failure) if keys.is_empty() => Err(server.error_in("publishing the lane's position to", failure)),
            Err(failure) => match server.error_of_event(failure) {
                error @ SinkError::Refused { .. } => Ok(Appended::Refused { at: None, error }),
                error => Err(error),
            },
        }
    }

    fn displaced(&self) -> SinkError {
        SinkError::Displaced(format!(
            "the lane's last position message in the stream {}, on the subject {}, was not written by this instance",
            self.shared.settings.stream, self.subject
        ))
    }
}
