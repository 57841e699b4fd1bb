//! One lane of a stream: its claim, its position, and the events in the stream that the state does not record as delivered.
//!
//! # Invariants
//!
//! * **Nothing is sent without a claim.** The lane drops its claim before it sends a message whose outcome may stay
//!   unknown, for example because the future is dropped. The lane then resumes and claims again, and earlier messages no
//!   longer have an effect.
//! * **One position.** A delivery begins only if the stream has the position that the lane expects, and each message has the
//!   condition that the position has not changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_nats::HeaderMap;
use tracing::{info, warn};
use uuid::Uuid;

use super::message::{EXPECTED_SEQUENCE, EXPECTED_STREAM, ROLLUP, key_of};
use super::position::Position;
use super::server::{Ack, Failure, NO_STREAM, Refusal, Server, WRONG_SEQUENCE, misconfigured};
use super::stream::{self, Facts, Stream};
use super::{AT_ONCE, AT_ONCE_ALONE};
use crate::settings::NatsSettings;
use crate::stream::{self as protocol, Unrecorded};
use crate::{LaneRef, Position as Place, Recorded, Resumed, SinkError};
use proof::event::EventKey;

mod deliver;

/// How often a claim is tried if other instances claim the lane at the same time.
const CLAIMS: usize = 5;

const MISSING: &str = "it is missing: make it, or set create = true";

/// The state that the lanes of a sink share.
pub(super) struct Shared {
    pub(super) settings: Arc<NatsSettings>,
    pub(super) server: Server,
    /// The run of the process.
    pub(super) instance: Uuid,
    /// The most events in one delivery. It depends on the settings of the stream.
    pub(super) at_once: AtomicUsize,
}

/// A lane of a stream.
pub(super) struct Lane {
    identity: LaneRef,
    /// The subject of its position.
    subject: String,
    /// The epoch of the lease under which this process claimed the lane last. If a newer position is from another process,
    /// that process has taken the lane over.
    epoch: Option<u64>,
    /// The sequence number of the last position message that this process has certainly written.
    sequence: u64,
    claim: Option<Claim>,
    /// The position in the stream. Valid only while the lane has a claim.
    position: Position,
    /// Events that are in the stream, but that the state does not record as delivered. They are skipped when they are
    /// offered.
    held: BTreeSet<EventKey>,
}

/// The right to publish. It is valid while the lane's last position message has this sequence number.
struct Claim {
    sequence: u64,
    stream: Facts,
}

/// The last position message.
struct Last {
    sequence: u64,
    position: Position,
}

impl Lane {
    pub(super) fn new(identity: LaneRef, settings: &NatsSettings) -> Self {
        let subject = format!("{}.{}.{}", settings.positions, identity.channel.id, identity.sink);
        Self {
            identity,
            subject,
            epoch: None,
            sequence: 0,
            claim: None,
            position: Position::default(),
            held: BTreeSet::new(),
        }
    }

    /// Reads the position without claiming the lane.
    pub(super) async fn position(&self, shared: &Shared) -> Result<Place, SinkError> {
        let last = self.last(shared).await?;
        Ok(last.map_or_else(|| self.missing(shared), |last| Place::At(last.position.lane.through)))
    }

    /// Claims the lane, and compares its position in the stream with the recorded cursor. If the stream has no position
    /// although one is confirmed, the lane is not claimed.
    pub(super) async fn resume(&mut self, shared: &Shared, recorded: &Recorded) -> Result<Resumed, SinkError> {
        let Shared { server, instance, .. } = shared;
        let was_claimed = self.epoch == Some(recorded.epoch);
        self.claim = None;
        for _ in 0..CLAIMS {
            let Some(stream) = stream(shared, recorded.confirmed.is_none()).await? else {
                return Ok(Resumed { position: self.missing(shared), ..Resumed::default() });
            };
            let last = self.last(shared).await?;
            if let Some(last) = &last
                && was_claimed
                && last.position.instance != *instance
                && last.sequence > self.sequence
            {
                self.epoch = None;
                return Err(SinkError::Overtaken(format!(
                    "another instance has claimed the lane in the stream {}, at its message {}",
                    shared.settings.stream, last.sequence
                )));
            }
            let Some(Last { sequence, position }) = self.position_to_claim(last, &stream, recorded) else {
                return Ok(Resumed { position: self.missing(shared), ..Resumed::default() });
            };
            let mut claim = Position { instance: *instance, follow: !stream.batches, ..position };
            claim.lane.epoch = recorded.epoch;
            claim.since = claim.since.or(Some(sequence));
            let headers = fenced(&stream, sequence, &shared.settings);
            match server.publish(self.subject.clone(), headers, claim.to_json()).await {
                Ok(Ack { seq, .. }) => {
                    (self.epoch, self.sequence) = (Some(recorded.epoch), seq);
                    let place = Place::At(claim.lane.through);
                    let held = self.compare(shared, claim, recorded).await?;
                    self.claim = Some(Claim { sequence: seq, stream });
                    return Ok(Resumed { position: place, held });
                }
                Err(Failure::Refused(refusal)) if refusal.err_code == WRONG_SEQUENCE => {}
                Err(failure) => return Err(server.error_in("claiming a lane in", failure)),
            }
        }
        Err(SinkError::away("others claim this lane again and again: does a second channeld use this sink?".to_owned()))
    }

    /// The position that a claim repeats. `None` if the stream has no position although one is confirmed.
    fn position_to_claim(&self, last: Option<Last>, stream: &Facts, recorded: &Recorded) -> Option<Last> {
        match (last, recorded.confirmed) {
            (Some(last), Some(_)) => Some(last),
            (Some(Last { sequence, mut position }), None) => {
                position.lane.through = recorded.through;
                Some(Last { sequence, position })
            }
            (None, confirmed) => {
                let through = match confirmed {
                    None => recorded.through,
                    Some(confirmed) if stream.has_dropped => {
                        info!(channel = %self.identity.channel.name, sink = %self.identity.sink,
                            "the limits of the stream have deleted the lane's position: it starts again at the recorded one");
                        confirmed.position
                    }
                    Some(_) => return None,
                };
                let lane = protocol::Position::first(&self.identity, through);
                Some(Last { sequence: 0, position: Position { lane, ..Position::default() } })
            }
        }
    }

    /// Finds the events that are in the stream, but that the state does not record as delivered. `claim` is the position
    /// with which the lane was claimed.
    async fn compare(
        &mut self,
        shared: &Shared,
        claim: Position,
        recorded: &Recorded,
    ) -> Result<BTreeSet<EventKey>, SinkError> {
        let unrecorded = Unrecorded::new(recorded, claim.lane.through);
        let since = claim.since.unwrap_or_default();
        let doubted = unrecorded.doubted(&claim.lane, recorded);
        // The position no longer names events of earlier deliveries. Only a search of the whole stream finds them.
        let is_put_back = claim.lane.prior > recorded.through;
        let from = if is_put_back || !doubted.is_empty() { 0 } else { since };
        let found = self.search(shared, from + 1, &unrecorded).await?;
        let is_last =
            |(sequence, key): &&(u64, EventKey)| (since > 0 && *sequence > since) || doubted.contains(&key.offset);
        let last = found.iter().filter(is_last).map(|(_, key)| *key).collect();
        let found = found.iter().map(|(_, key)| *key).collect();
        let (lane, there) = unrecorded.compare(&claim.lane, &doubted, &last, &found);
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        if is_put_back && !there.is_empty() {
            warn!(%channel, %sink, events = there.len(),
                "the cursor was moved back: events that are in the stream are not published again");
        } else if !there.is_empty() {
            info!(%channel, %sink, events = there.len(),
                "stream already holds events that are not recorded as delivered");
        }
        self.position = Position { lane, since: None, ..claim };
        self.held = unrecorded.offered(&there);
        Ok(there)
    }

    /// The last position message.
    async fn last(&self, shared: &Shared) -> Result<Option<Last>, SinkError> {
        let Shared { server, settings, .. } = shared;
        let stored = match server.last(&self.subject).await {
            Err(Failure::Refused(Refusal { err_code: NO_STREAM, .. })) => None,
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

    fn missing(&self, shared: &Shared) -> Place {
        Place::Missing(format!(
            "the stream {} has no position message on the subject {}",
            shared.settings.stream, self.subject
        ))
    }

    /// The unrecorded events of this lane in the stream, with their sequence numbers, from the message `sequence` on.
    async fn search(
        &self,
        shared: &Shared,
        mut sequence: u64,
        unrecorded: &Unrecorded,
    ) -> Result<Vec<(u64, EventKey)>, SinkError> {
        let filter = shared.settings.subject.filter(&self.identity.channel);
        let mut found = Vec::new();
        loop {
            let next = shared.server.next(sequence, &filter).await;
            let Some(message) = next.map_err(|failure| shared.server.error_in("reading", failure))? else {
                return Ok(found);
            };
            let key = key_of(&message.headers, self.identity.channel.id, &self.identity.sink);
            found.extend(key.filter(|key| unrecorded.contains(key)).map(|key| (message.sequence, key)));
            sequence = message.sequence + 1;
        }
    }
}

/// The headers of a position message that is stored only if the last message on its subject is the message `sequence`.
fn fenced(stream: &Facts, sequence: u64, settings: &NatsSettings) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED_STREAM, &*settings.stream);
    headers.insert(EXPECTED_SEQUENCE, &*sequence.to_string());
    headers.insert("Content-Type", "application/json");
    if stream.rollups {
        headers.insert(ROLLUP, "sub");
    }
    headers
}

/// The facts about the stream. Creates a missing stream if the configuration and the caller allow it. Returns `None` if the
/// stream is missing and the caller does not allow to create it.
async fn stream(shared: &Shared, may_make: bool) -> Result<Option<Facts>, SinkError> {
    let Shared { server, settings, .. } = shared;
    let version = version(shared).await?;
    let looked = |failure| server.error_in("looking at", failure);
    let mut found = server.stream::<Stream>().await.map_err(looked)?;
    if found.is_none() && !may_make {
        return Ok(None);
    }
    if found.is_none() && settings.create {
        server
            .create(&stream::wanted(settings, &version))
            .await
            .map_err(|failure| server.error_in("making", failure))?;
        info!(stream = %settings.stream, "stream made");
        found = server.stream::<Stream>().await.map_err(looked)?;
    }
    let using = || format!("using the stream {}", settings.stream);
    let found = found.ok_or_else(|| misconfigured(&using(), MISSING))?;
    let facts = stream::facts(found, settings, &version).map_err(|message| misconfigured(&using(), &message))?;
    let most = if facts.batches { AT_ONCE } else { AT_ONCE_ALONE };
    let largest = facts.max_size.unwrap_or(usize::MAX).min(max_payload(shared).await?);
    shared.at_once.store(most.min(Position::most_events(largest)), Ordering::Relaxed);
    Ok(Some(facts))
}

/// Says whether the stream can be used, without creating it.
pub(super) async fn probe(shared: &Shared) -> Result<String, SinkError> {
    let Shared { server, settings, .. } = shared;
    let version = version(shared).await?;
    let using = || format!("using the stream {}", settings.stream);
    match server.stream::<Stream>().await.map_err(|failure| server.error_in("looking at", failure))? {
        None if settings.create => {
            let name = &settings.stream;
            Ok(format!(
                "NATS {version} can be reached; the stream {name} will be made: it has no limits until you set some"
            ))
        }
        None => Err(misconfigured(&using(), MISSING)),
        Some(found) => {
            let facts =
                stream::facts(found, settings, &version).map_err(|message| misconfigured(&using(), &message))?;
            Ok(stream::summary(&facts, settings, &version))
        }
    }
}

/// The version of the server.
pub(super) async fn version(shared: &Shared) -> Result<String, SinkError> {
    let client = shared.server.client().await?;
    Ok(client.try_server_info().map(|info| info.version).unwrap_or_default())
}

/// The largest message with its headers, in bytes, that the server accepts.
async fn max_payload(shared: &Shared) -> Result<usize, SinkError> {
    let client = shared.server.client().await?;
    Ok(client.try_server_info().map_or(usize::MAX, |info| info.max_payload))
}
