//! One lane at the stream: its claim, and what it knows to be there.
//!
//! # Invariants
//!
//! * **Nothing is sent without a claim,** and a claim is given up before anything is sent under it whose outcome may stay
//!   unknown: also where the future is dropped. The next use claims anew, and then what was sent before has no effect any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::HeaderMap;
use tracing::{info, warn};
use uuid::Uuid;

use super::message::{EXPECTED_SEQUENCE, EXPECTED_STREAM, ROLLUP, offset_of};
use super::position::Position;
use super::server::{Ack, Failure, Server, WRONG_SEQUENCE, misconfigured};
use super::settings::NatsSettings;
use super::stream::{self, Facts, Stream};
use crate::event::Offset;
use crate::sink::{LaneRef, Recorded, SinkError};

mod deliver;

/// How often a claim is tried where others claim the lane at the same time.
const CLAIMS: usize = 5;

const MISSING: &str = "it is missing: make it, or set create = true";

/// What the lanes of a sink share.
pub(super) struct Shared {
    pub(super) settings: Arc<NatsSettings>,
    pub(super) server: Server,
    /// The run of the process.
    pub(super) instance: Uuid,
    /// Whether the stream takes several messages as one, as far as was seen.
    pub(super) takes_batches: AtomicBool,
}

/// A lane at its stream.
pub(super) struct Lane {
    identity: LaneRef,
    /// The subject of its position.
    subject: String,
    claim: Option<Claim>,
    /// As the stream has it, while there is a claim.
    position: Position,
    /// What is there though it is not recorded: passed over when it is offered.
    held: BTreeSet<Offset>,
    /// The delivery whose outcome is not known.
    in_doubt: Option<Uuid>,
}

/// The right to publish: no longer than the lane's last position message is this one.
struct Claim {
    sequence: u64,
    stream: Facts,
}

impl Lane {
    pub(super) fn new(identity: LaneRef, settings: &NatsSettings) -> Self {
        let subject = format!("{}.{}.{}", settings.positions, identity.channel.id, identity.sink);
        Self { identity, subject, claim: None, position: Position::default(), held: BTreeSet::new(), in_doubt: None }
    }

    /// Takes the lane over, and says which events the stream has though they are not recorded.
    pub(super) async fn resume(&mut self, shared: &Shared, recorded: &Recorded) -> Result<BTreeSet<Offset>, SinkError> {
        self.claim = None;
        self.in_doubt = None;
        self.take(shared, recorded.epoch, true).await?;
        let mut there = self.position.delivered();
        if self.position.prior > recorded.through {
            // More was delivered than the last delivery and the record know: the record was put back.
            let found = self.search(shared, 1).await?;
            warn!(channel = %self.identity.channel.name, sink = %self.identity.sink, events = found.len(),
                "the cursor was put back: events that are in the stream are not published again");
            there.extend(found);
        }
        there.retain(|offset| !recorded.covers_offset(*offset));
        if !there.is_empty() {
            info!(channel = %self.identity.channel.name, sink = %self.identity.sink, events = there.len(),
                "stream already holds events that are not recorded as delivered");
        }
        // What is owed is settled without being offered, and may be asked for again.
        self.held = there.iter().filter(|offset| !recorded.owes_offset(**offset)).copied().collect();
        Ok(there)
    }

    /// Claims the lane again where the claim was given up, and settles what was in doubt.
    async fn claimed(&mut self, shared: &Shared, epoch: u64) -> Result<(), SinkError> {
        if self.claim.is_some() {
            return Ok(());
        }
        let doubt = self.in_doubt;
        self.take(shared, epoch, false).await?;
        if doubt == Some(self.position.delivery) {
            self.held.extend(self.position.delivered());
        }
        self.in_doubt = None;
        Ok(())
    }

    /// Puts a position message of ours behind the last one. From then on nothing that was sent under an earlier claim is
    /// taken. Only `anew` may it come behind one of another instance.
    async fn take(&mut self, shared: &Shared, epoch: u64, anew: bool) -> Result<(), SinkError> {
        let Shared { server, settings, instance, .. } = shared;
        for _ in 0..CLAIMS {
            let stream = stream(shared).await?;
            let last = server.last(&self.subject).await.map_err(|failure| server.error_in("reading", failure))?;
            let (sequence, position) = match last {
                None => (0, Position { prior: self.position.highest(), ..Position::default() }),
                Some(last) => {
                    let position = serde_json::from_slice::<Position>(&last.body).map_err(|error| {
                        let doing = format!("reading the lane's position in the stream {}", settings.stream);
                        let subject = &self.subject;
                        let message = format!(
                            "message {} is not one ({error}): nats stream purge {} --subject={subject}",
                            last.sequence, settings.stream
                        );
                        misconfigured(&doing, &message)
                    })?;
                    (last.sequence, position)
                }
            };
            if !anew && sequence > 0 && position.instance != *instance {
                return Err(SinkError::Overtaken(format!(
                    "another instance has claimed the lane in the stream {}, at its message {sequence}",
                    settings.stream
                )));
            }
            let since = position.since.or(position.follow.then_some(sequence));
            let claim = Position {
                channel: self.identity.channel.name.to_string(),
                channel_id: self.identity.channel.id,
                sink: self.identity.sink.to_string(),
                epoch,
                instance: *instance,
                follow: false,
                since,
                ..position
            };
            let headers = fenced(&stream, sequence, settings);
            match server.publish(self.subject.clone(), headers, claim.to_json()).await {
                Ok(Ack { seq, .. }) => {
                    self.position = claim;
                    if let Some(since) = since {
                        let mut there = self.search(shared, since + 1).await?;
                        there.extend(self.position.delivered());
                        self.position = Position { since: None, ..self.position.clone() }.with(&there);
                    }
                    self.claim = Some(Claim { sequence: seq, stream });
                    return Ok(());
                }
                Err(Failure::Refused(refusal)) if refusal.err_code == WRONG_SEQUENCE => {}
                Err(failure) => return Err(server.error_in("claiming a lane in", failure)),
            }
        }
        Err(SinkError::away("others claim this lane again and again: does a second channeld use this sink?".to_owned()))
    }

    /// The offsets of this lane's events in the stream, from the message `sequence` on.
    async fn search(&self, shared: &Shared, mut sequence: u64) -> Result<BTreeSet<Offset>, SinkError> {
        let filter = shared.settings.subject.filter(&self.identity.channel);
        let mut found = BTreeSet::new();
        loop {
            let next = shared.server.next(sequence, &filter).await;
            let Some(message) = next.map_err(|failure| shared.server.error_in("reading", failure))? else {
                return Ok(found);
            };
            found.extend(offset_of(&message.headers, self.identity.channel.id, &self.identity.sink));
            sequence = message.sequence + 1;
        }
    }
}

/// The headers of a position message that comes behind the message `sequence` on its subject, and behind no other.
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

/// What the stream is now. It is made where it is missing and that is allowed.
async fn stream(shared: &Shared) -> Result<Facts, SinkError> {
    let Shared { server, settings, .. } = shared;
    let version = version(shared).await?;
    let looked = |failure| server.error_in("looking at", failure);
    let mut found = server.stream::<Stream>().await.map_err(looked)?;
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
    shared.takes_batches.store(facts.batches, Ordering::Relaxed);
    Ok(facts)
}

/// Says whether the stream could be used, without making it.
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
