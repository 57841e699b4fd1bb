//! The events and positions of one lane in a JetStream stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_nats::HeaderMap;
use async_nats::header::{
    NATS_BATCH_COMMIT, NATS_BATCH_ID, NATS_BATCH_SEQUENCE, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM,
    NATS_ROLLUP,
};
use async_trait::async_trait;
use serde_json::json;
use tracing::info;

use super::failure::{DUPLICATE, NO_STREAM, RequestFailure, WRONG_SEQUENCE};
use super::message::{Outgoing, Position, key_of};
use super::server::Server;
use super::stream::{BATCH, Facts};
use crate::stream::{self, Appended, ClaimedPosition, Limits, Log, Unrecorded, UnrecordedEvents};
use crate::{LaneRef, Position as LanePosition, Recorded, SinkError};
use proof::event::EventKey;
use record::Message;

/// How often a claim is tried if other instances claim the lane at the same time.
const CLAIMS: usize = 5;

/// The maximum number of bytes in one batch, unless one event is larger. A server keeps a batch in memory until the batch
/// ends.
const BATCH_BYTES: usize = 4 << 20;

/// The header that names the subject to which the expected sequence number refers. Without this header, the number refers
/// to the subject of the message itself.
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";

pub(super) struct LaneLog {
    server: Arc<Server>,
    identity: LaneRef,
    /// The subject of the lane's position.
    subject: String,
    /// The epoch of the lease under which this process claimed the lane last. If a newer position is from another process,
    /// that process has taken the lane over.
    epoch: Option<u64>,
    /// The sequence number of the last position message that this process has certainly written. The claim is valid while
    /// that message is the last one on the subject.
    sequence: u64,
    /// The sequence number after which the stream may contain events that the claimed position does not cover.
    since: u64,
    /// The filters of the subjects on which the stream may contain events of the lane.
    filters: Vec<String>,
    facts: Facts,
    /// Set if the server already knows the usual ids of the events. This sequence number of the lane's position is then
    /// appended to each id.
    again: Option<u64>,
}

impl LaneLog {
    pub(super) fn new(server: Arc<Server>, identity: LaneRef) -> Self {
        let subject = format!("{}.{}.{}", server.settings.positions, identity.channel.id, identity.sink);
        let (filters, facts) = (Vec::new(), Facts::default());
        Self { server, identity, subject, epoch: None, sequence: 0, since: 0, filters, facts, again: None }
    }

    pub(super) async fn position(&self) -> Result<LanePosition, SinkError> {
        Ok(match self.last().await? {
            None => LanePosition::Missing(self.missing()),
            Some((_, position)) => LanePosition::At(position.lane.through),
        })
    }

    /// Fails if another process has taken over the lane since this process claimed it under the same lease.
    fn check_ours(&mut self, sequence: u64, last: &Position, epoch: u64) -> Result<(), SinkError> {
        let is_newer = last.instance != self.server.instance && sequence > self.sequence;
        if !is_newer || self.epoch != Some(epoch) {
            return Ok(());
        }
        self.epoch = None;
        Err(SinkError::Overtaken(format!(
            "another instance has taken over the lane in the stream {}, with message {sequence}",
            self.server.settings.stream
        )))
    }

    /// The last position message, and its sequence number.
    async fn last(&self) -> Result<Option<(u64, Position)>, SinkError> {
        let server = &self.server;
        let stored = match server.message(&json!({"last_by_subj": self.subject})).await {
            Err(failure) if failure.is(NO_STREAM) => None,
            stored => stored.map_err(|failure| server.error_in("reading", failure))?,
        };
        let Some(stored) = stored else { return Ok(None) };
        let position: Position = serde_json::from_slice(&stored.body).map_err(|error| {
            let (stream, sequence, subject) = (&server.settings.stream, stored.sequence, &self.subject);
            SinkError::unusable(format!(
                "reading the lane's position in the stream {stream}: message {sequence} is not a position ({error}): \
                 nats stream purge {stream} --subject={subject}"
            ))
        })?;
        Ok(Some((stored.sequence, position)))
    }

    /// Fails if the server has stored a message of this lane's subject under another subject. The lane would not find it after
    /// a restart.
    async fn check_subject(&self, sequence: u64) -> Result<(), SinkError> {
        let stored = self.server.message(&json!({"seq": sequence})).await;
        let stored = stored.map_err(|failure| self.server.error_in("reading", failure))?;
        let Some(other) = stored.map(|stored| stored.subject).filter(|subject| *subject != self.subject) else {
            return Ok(());
        };
        Err(SinkError::unusable(format!(
            "the server stores the lane's position under the subject {other} instead of {}, so that the lane would not find it \
             after a restart: exclude {}.> from the mappings of the account and the subject_transform of the stream {}",
            self.subject, self.server.settings.positions, self.server.settings.stream
        )))
    }

    fn missing(&self) -> String {
        format!("the stream {} has no position message on the subject {}", self.server.settings.stream, self.subject)
    }

    /// The unrecorded events of this lane in the stream after the message `sequence`, with their sequence numbers.
    async fn search_after(&self, sequence: u64, unrecorded: &Unrecorded) -> Result<Vec<(u64, EventKey)>, SinkError> {
        let server = &self.server;
        let mut found = Vec::new();
        for filter in &self.filters {
            let mut sequence = sequence;
            loop {
                let next = server.message(&json!({"seq": sequence + 1, "next_by_subj": filter})).await;
                let Some(message) = next.map_err(|failure| server.error_in("reading", failure))? else { break };
                let key = key_of(&message.headers, self.identity.channel.id, &self.identity.sink);
                found.extend(key.filter(|key| unrecorded.contains(key)).map(|key| (message.sequence, key)));
                sequence = message.sequence;
            }
        }
        Ok(found)
    }

    /// Publishes a position message with these headers, under the condition that the last message on its subject is the
    /// message `sequence`.
    async fn publish_position(
        &mut self,
        sequence: u64,
        lane: &stream::Position,
        since: Option<u64>,
        mut headers: HeaderMap,
    ) -> Result<(), RequestFailure> {
        let (instance, follow, filters) = (self.server.instance, !self.facts.batches, self.filters.clone());
        let position = Position { lane: lane.clone(), instance, follow, since, filters };
        headers.insert(NATS_EXPECTED_STREAM, &*self.server.settings.stream);
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, sequence.to_string());
        headers.insert("Content-Type", "application/json");
        if self.facts.rollups {
            headers.insert(NATS_ROLLUP, "sub");
        }
        let ack = self.server.publish(self.subject.clone(), headers, stream::json(&position)).await?;
        self.sequence = ack.seq;
        Ok(())
    }

    /// Publishes the events of a batch and then the position, all or nothing.
    async fn publish_batch(&mut self, events: Vec<Outgoing>, lane: &stream::Position) -> Result<(), RequestFailure> {
        if events.is_empty() {
            return self.publish_position(self.sequence, lane, None, HeaderMap::new()).await;
        }
        let id = lane.delivery.simple().to_string();
        let number_in_batch = |headers: &mut HeaderMap, number: usize| {
            headers.insert(NATS_BATCH_ID, &*id);
            headers.insert(NATS_BATCH_SEQUENCE, number.to_string());
        };
        let last = events.len() + 1;
        for (mut event, number) in events.into_iter().zip(1..) {
            number_in_batch(&mut event.headers, number);
            self.server.send(event.subject, event.headers, event.body).await?;
        }
        let mut headers = HeaderMap::new();
        number_in_batch(&mut headers, last);
        headers.insert(NATS_BATCH_COMMIT, "1");
        self.publish_position(self.sequence, lane, None, headers).await
    }

    /// Publishes one event under the condition that the lane's position message is still the last one on its subject.
    async fn publish_alone(&self, mut event: Outgoing) -> Result<(), RequestFailure> {
        let (server, sequence) = (&self.server, self.sequence);
        loop {
            let mut headers = event.headers.clone();
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, sequence.to_string());
            headers.insert(EXPECTED_SUBJECT, &*self.subject);
            let ack = server.publish(event.subject.clone(), headers, event.body.clone()).await?;
            if !ack.duplicate {
                return Ok(());
            }
            // The server knows the id from a stored message of this lane, or from another message.
            let known = if ack.seq > sequence { server.message(&json!({"seq": ack.seq})).await? } else { None };
            let key = known.and_then(|known| key_of(&known.headers, self.identity.channel.id, &self.identity.sink));
            if key == Some(event.key) {
                return Ok(());
            }
            event = event.again(sequence);
        }
    }

    /// The result of an append that was refused because the server already knows the id of an event of the batch.
    async fn duplicate(&mut self, keys: &BTreeSet<EventKey>, failure: RequestFailure) -> Result<Appended, SinkError> {
        let stored = self.search_after(self.sequence, &Unrecorded::default()).await?;
        let stored: BTreeSet<_> = stored.into_iter().map(|(_, key)| key).filter(|key| keys.contains(key)).collect();
        if !stored.is_empty() {
            // The server has stored only a part of a batch.
            self.again = None;
        } else if self.again.replace(self.sequence).is_some() {
            return Err(self.server.error_of_event(failure));
        }
        Ok(Appended::Held(stored))
    }
}

#[async_trait]
impl Log for LaneLog {
    type Event = Outgoing;

    const MOVED_BACK: &str = "the cursor was moved back: events that are in the stream are not published again";
    const HOLDS: &str = "stream already holds events that are not recorded as delivered";

    /// Publishes the lane's position again as a message of this process.
    async fn claim(&mut self, recorded: &Recorded) -> Result<ClaimedPosition, SinkError> {
        for _ in 0..CLAIMS {
            let Some(facts) = self.server.facts(recorded.confirmed.is_none()).await? else {
                return Ok(ClaimedPosition::Missing(self.missing()));
            };
            let (sequence, known) = self.last().await?.unzip();
            let sequence = sequence.unwrap_or_default();
            if let Some(known) = &known {
                self.check_ours(sequence, known, recorded.epoch)?;
            }
            self.since = known.as_ref().and_then(|known| known.since).unwrap_or(sequence);
            let filters = known.as_ref().map(|known| known.filters.clone()).unwrap_or_default();
            self.filters = Position::filters_with(filters, self.server.settings.subject.filter(&self.identity.channel));
            let lane = match (known.map(|known| known.lane), recorded.confirmed) {
                // Unless the limits have deleted the position, the stream was restored from a backup.
                (None, Some(confirmed)) if facts.has_dropped(self.sequence) => {
                    info!(channel = %self.identity.channel.name, sink = %self.identity.sink,
                        "the limits of the stream have deleted the lane's position: the recorded position is written again");
                    Some(stream::Position::rewritten(&self.identity, confirmed))
                }
                (known, _) => stream::Position::adopted(known, recorded, false),
            };
            let Some(mut lane) = lane else { return Ok(ClaimedPosition::Missing(self.missing())) };
            // `since` says where to search, also after a lost position.
            (lane.epoch, lane.is_unsearched) = (recorded.epoch, false);
            self.facts = facts;
            match self.publish_position(sequence, &lane, Some(self.since), HeaderMap::new()).await {
                Ok(()) => {
                    self.check_subject(self.sequence).await?;
                    if self.epoch.is_none() {
                        self.server.check_mapping(&self.identity.channel).await?;
                    }
                    self.epoch = Some(recorded.epoch);
                    return Ok(ClaimedPosition::At(lane));
                }
                Err(failure) if failure.is(WRONG_SEQUENCE) => {
                    if let Some(last) = failure.last_sequence() {
                        self.check_subject(last).await?;
                    }
                }
                Err(failure) => return Err(self.server.error_in("claiming a lane in", failure)),
            }
        }
        Err(SinkError::away(
            "other processes take over this lane repeatedly: does a second channeld use this sink?".to_owned(),
        ))
    }

    /// Always searches after the claimed position, because events that were published one by one, or a part of a batch, can
    /// be there.
    async fn search(&mut self, everywhere: bool, unrecorded: &Unrecorded) -> Result<UnrecordedEvents, SinkError> {
        let since = self.since;
        let found = self.search_after(if everywhere { 0 } else { since }, unrecorded).await?;
        let (last, earlier): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(sequence, _)| since > 0 && *sequence > since);
        let keys = |found: Vec<(u64, EventKey)>| found.into_iter().map(|(_, key)| key).collect();
        Ok(UnrecordedEvents { last: keys(last), earlier: keys(earlier) })
    }

    async fn ready(&mut self, _: &stream::Position) -> Result<(), SinkError> {
        (self.again, self.facts.max_payload) = (None, self.server.info().await?.1);
        Ok(())
    }

    async fn refresh(&mut self) -> Result<(), SinkError> {
        self.facts = self.server.facts(false).await?.ok_or_else(|| self.displaced())?;
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits { events: BATCH, bytes: BATCH_BYTES }
    }

    fn event(&self, message: &Message) -> Result<(Outgoing, usize), SinkError> {
        let (settings, facts) = (&self.server.settings, &self.facts);
        let event = Outgoing::new(&self.identity, message, settings);
        let event = if let Some(sequence) = self.again { event.again(sequence) } else { event };
        let (size, subject, stream, max_payload) = (event.size(), &event.subject, &settings.stream, facts.max_payload);
        let limit = facts.max_size.filter(|limit| *limit < max_payload);
        let problem = if !facts.takes(subject) {
            format!("the stream {stream} does not take the subject {subject}: add it to the stream's subjects")
        } else if let Some(limit) = limit.filter(|limit| size > *limit) {
            format!(
                "the event has {size} bytes with its headers, but the stream {stream} accepts {limit} (max_msg_size)"
            )
        } else if size > max_payload {
            format!("the event has {size} bytes with its headers, but the server accepts {max_payload} (max_payload)")
        } else {
            return Ok((event, size));
        };
        Err(SinkError::refused(problem))
    }

    fn takes_small(&self, message: &Message) -> bool {
        let settings = &self.server.settings;
        let event = Outgoing::new(&self.identity, message, settings);
        let size = event.size() - event.body.len() + stream::SMALL_BODY;
        let largest = self.facts.max_size.unwrap_or(usize::MAX).min(self.facts.max_payload);
        size <= largest && self.facts.takes_some(&settings.subject.filter(&self.identity.channel))
    }

    /// Appends in one atomic batch. If the stream does not allow batches, publishes one message after the other.
    async fn append(&mut self, events: Vec<Outgoing>, position: &stream::Position) -> Result<Appended, SinkError> {
        let (alone, batch) = if self.facts.batches { (Vec::new(), events) } else { (events, Vec::new()) };
        for (at, event) in alone.into_iter().enumerate() {
            match self.publish_alone(event).await {
                Ok(()) => {}
                Err(failure) if failure.is(WRONG_SEQUENCE) => return Err(self.displaced()),
                Err(failure @ RequestFailure::Unanswered(_)) => return Err(self.server.error_of_event(failure)),
                Err(failure) => {
                    return Ok(Appended::Refused { at: Some(at), error: self.server.error_of_event(failure) });
                }
            }
        }
        let keys: BTreeSet<_> = batch.iter().map(|event| event.key).collect();
        match self.publish_batch(batch, position).await {
            Ok(()) => {
                self.again = None;
                Ok(Appended::All)
            }
            Err(failure) if failure.is(WRONG_SEQUENCE) => Err(self.displaced()),
            Err(failure) if failure.is(DUPLICATE) => self.duplicate(&keys, failure).await,
            Err(failure) if keys.is_empty() => Err(self.server.error_in("publishing the lane's position to", failure)),
            Err(failure) => match self.server.error_of_event(failure) {
                error @ SinkError::Refused { .. } => Ok(Appended::Refused { at: None, error }),
                error => Err(error),
            },
        }
    }

    fn displaced(&self) -> SinkError {
        SinkError::Displaced(format!(
            "the lane's last position message in the stream {}, on the subject {}, was not written by this instance",
            self.server.settings.stream, self.subject
        ))
    }
}
