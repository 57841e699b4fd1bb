//! One lane at its topic: its claim, its position, and the events that the topic has beyond the record.
//!
//! Everything here blocks.
//!
//! # Invariants
//!
//! * **Nothing is produced without a claim.** A claim is given up with a transaction whose outcome is not known. The lane then
//!   resumes: it claims again, and by then the transaction has ended one way or the other.
//! * **One position.** A delivery begins only if the position is the one that the lane expects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::{info, warn};
use uuid::Uuid;

use super::brokers::{Brokers, Taken};
use super::failure::Failure;
use super::positions::{Claim, Known, Position, Positions, body, claim_key};
use super::producer::{Outgoing, POSITIONS, Producer};
use super::search::{Search, ends};
use super::topics::{Facts, Seen};
use crate::event::{EventKey, Offset};
use crate::sink::stream::{self, Unrecorded};
use crate::sink::{LaneRef, Position as Place, Recorded};
use crate::tasks::lock;

mod deliver;

pub(super) use deliver::Offer;

/// A producer that was not used for so long is closed: it holds threads and connections.
const KEPT_OPEN: Duration = Duration::from_secs(5 * 60);

/// What the lanes of a sink share.
pub(super) struct Shared {
    pub(super) brokers: Brokers,
    seen: Seen,
    positions: Mutex<Option<Positions>>,
    /// The run of the process.
    instance: Uuid,
}

/// A lane at its topic.
pub(super) struct Lane {
    identity: LaneRef,
    /// Its transactional id, and the key of its position.
    id: String,
    /// The last claim of this process. Another instance that claims after it has taken the lane over.
    ours: Option<Claim>,
    claim: Option<Claimed>,
    /// As the topic has it, while there is a claim.
    position: Position,
    /// Events that are in the topic and not recorded. They are skipped when they are offered.
    held: BTreeSet<EventKey>,
    /// Why the topic of events has lost records of this lane, as a delivery noticed. It counts until an operator has chosen where
    /// the lane goes on.
    lost: Option<String>,
    /// Whether the position was missing when the lane was resumed. Events of the lane can be in the topic all the same.
    was_missing: bool,
    /// The most bytes that go into one transaction.
    bytes: usize,
    used: Instant,
}

/// The lane was resumed, so far.
pub(super) enum Begun {
    /// There is no position, although the record knows of one.
    Missing(String),
    /// The lane is claimed. The search, if there is one, finds further events in the topic.
    Claimed(Option<Search>),
}

/// The right to produce, as long as the coordinator knows of no later claim.
struct Claimed {
    producer: Producer,
    topic: Facts,
}

impl Shared {
    pub(super) fn new(brokers: Brokers, instance: Uuid) -> Self {
        Self { brokers, seen: Seen::default(), positions: Mutex::default(), instance }
    }

    /// What is open, to be closed where that may block. What is being used is closed by its user.
    pub(super) fn close(&self) -> Option<Positions> {
        self.positions.try_lock().ok().and_then(|mut positions| positions.take())
    }

    /// Closes what is not used.
    pub(super) fn rest(&self) {
        if let Some(positions) = &mut *lock(&self.positions) {
            positions.rest();
        }
    }
}

impl Lane {
    pub(super) fn new(identity: LaneRef, shared: &Shared) -> Self {
        let id = format!("{}{}", prefix(&identity, shared), identity.channel.id);
        Self {
            identity,
            id,
            ours: None,
            claim: None,
            position: Position::default(),
            held: BTreeSet::new(),
            lost: None,
            was_missing: false,
            bytes: deliver::BYTES,
            used: Instant::now(),
        }
    }

    /// The position, without a claim.
    pub(super) fn position(&self, shared: &Shared) -> Result<Place, Failure> {
        if shared.seen.facts(&shared.brokers, false)?.is_none() {
            return Ok(Place::Missing(missing_topic(shared)));
        }
        let position = self.read(shared, Positions::read_to_end)?.position;
        match self.readable(position, shared)? {
            None => Ok(Place::Missing(self.missing(shared))),
            Some(position) => Ok(Place::At(position.lane.through)),
        }
    }

    /// Claims the lane and reads its position.
    pub(super) fn take_over(&mut self, shared: &Shared, recorded: &Recorded) -> Result<Begun, Failure> {
        self.claim = None;
        let begun = self.try_to_take_over(shared, recorded);
        match &begun {
            Ok(Begun::Missing(_)) => (self.claim, self.was_missing) = (None, true),
            Ok(Begun::Claimed(_)) => (self.lost, self.was_missing) = (None, false),
            Err(Failure::Overtaken(_)) => self.ours = None,
            Err(Failure::Operator(_)) => shared.seen.forget(),
            Err(_) => {}
        }
        begun
    }

    fn try_to_take_over(&mut self, shared: &Shared, recorded: &Recorded) -> Result<Begun, Failure> {
        let brokers = &shared.brokers;
        let may_make = recorded.confirmed.is_none();
        let Some(topic) = shared.seen.facts(brokers, may_make).inspect_err(|_| brokers.doubt())? else {
            return Ok(Begun::Missing(missing_topic(shared)));
        };
        let partitions = topic.partitions;
        let known = self.take(shared, recorded.epoch, topic)?;
        let Some(position) = self.adopted(shared, known, recorded)? else {
            return Ok(Begun::Missing(self.missing(shared)));
        };
        self.position = position;
        if recorded.confirmed.is_some() {
            let lost = self.lost.clone().map_or_else(|| self.cut(shared, partitions), |why| Ok(Some(why)))?;
            if let Some(why) = lost {
                return Ok(Begun::Missing(why));
            }
        }
        // Events that earlier deliveries have put into the topic are not named any more.
        let unrecorded = Unrecorded::new(recorded, self.position.lane.through);
        let is_needed = self.position.lane.prior > recorded.through
            || self.was_missing
            || !unrecorded.doubted(&self.position.lane, recorded).is_empty();
        let search = is_needed.then(|| Search::begin(brokers, partitions, &self.identity, unrecorded));
        search.transpose().map(Begun::Claimed)
    }

    /// The position to continue. Without a confirmed one the recorded cursor is written as the position.
    fn adopted(
        &self,
        shared: &Shared,
        known: Option<Position>,
        recorded: &Recorded,
    ) -> Result<Option<Position>, Failure> {
        if recorded.confirmed.is_some() {
            return Ok(known);
        }
        let was_there = known.is_some();
        let mut position =
            known.unwrap_or_else(|| Position { lane: stream::Position::first(&self.identity, None), ends: Vec::new() });
        if was_there && position.ends.is_empty() && position.lane.through == recorded.through {
            return Ok(Some(position));
        }
        position.lane.through = recorded.through;
        position.lane.epoch = recorded.epoch;
        // The topic may be another one now.
        position.ends = Vec::new();
        if let Some(claim) = &self.claim {
            let (record, brokers) = (body(&position), &shared.brokers);
            let record = self.positions_record(&self.id, &record, shared);
            claim.producer.transact(brokers, &[record], |_| Ok(())).map_err(|broken| broken.failure)?;
        }
        Ok(Some(position))
    }

    /// Whether the topic of events ends before records of this lane: it was deleted and made again, or truncated.
    fn cut(&self, shared: &Shared, partitions: usize) -> Result<Option<String>, Failure> {
        let topic = &shared.brokers.settings.topic;
        let has_delivered = !self.position.lane.delivery.is_nil();
        if !has_delivered {
            return Ok(None);
        }
        let ends = ends(&shared.brokers, (0..).take(partitions))?;
        let lost =
            self.position.ends.iter().find(|(partition, last)| ends.get(partition).is_none_or(|end| end <= last));
        if let Some((partition, last)) = lost {
            return Ok(Some(format!(
                "the topic {topic} ends before the record {last} of its partition {partition}, which this lane had produced"
            )));
        }
        let is_empty = ends.values().all(|end| *end == 0);
        Ok(is_empty.then(|| format!("the topic {topic} has never had a record, although this lane had produced some")))
    }

    pub(super) fn through(&self) -> Option<Offset> {
        self.position.lane.through
    }

    /// Gives the events that the topic has and that are not recorded. `found` are those that were searched for.
    pub(super) fn taken_over(&mut self, recorded: &Recorded, found: &BTreeSet<EventKey>) -> BTreeSet<EventKey> {
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        let unrecorded = Unrecorded::new(recorded, self.position.lane.through);
        let doubted = unrecorded.doubted(&self.position.lane, recorded);
        let last = found.iter().filter(|key| doubted.contains(&key.offset)).copied().collect();
        let (position, there) = unrecorded.compare(&self.position.lane, &doubted, &last, found);
        if !found.is_empty() {
            warn!(%channel, %sink, events = found.len(),
                "the cursor was moved back: events that are in the topic are not produced again");
        } else if !there.is_empty() {
            info!(%channel, %sink, events = there.len(), "topic already holds events that are not recorded as delivered");
        }
        self.position.lane = position;
        self.held = unrecorded.offered(&there);
        there
    }

    /// Claims the lane again if its producer was closed because it was idle.
    fn claimed(&mut self, shared: &Shared, epoch: u64) -> Result<(), Failure> {
        if self.claim.is_some() {
            return Ok(());
        }
        let topic = shared.seen.facts(&shared.brokers, false)?.ok_or_else(|| self.displaced(shared))?;
        let known = self.take(shared, epoch, topic)?;
        let expected = (self.position.lane.delivery, self.position.lane.through);
        if known.is_none_or(|known| (known.lane.delivery, known.lane.through) != expected) {
            self.claim = None;
            return Err(self.displaced(shared));
        }
        Ok(())
    }

    /// Takes the lane over from whichever producer has it, and gives its position. A lane that this process had claimed under the
    /// same lease is not taken from another instance.
    fn take(&mut self, shared: &Shared, epoch: u64, topic: Facts) -> Result<Option<Position>, Failure> {
        self.claim = None;
        let brokers = &shared.brokers;
        let ours = self.ours.clone().filter(|ours| ours.epoch == epoch);
        if let Some(ours) = &ours {
            self.check(&self.read(shared, Positions::read_to_end)?, ours, shared)?;
        }
        let producer = Producer::claim(brokers, &self.id, topic.largest)?;
        let claim = Claim { id: Uuid::new_v4(), instance: shared.instance, epoch };
        let (key, written) = (claim_key(&self.id), body(&claim));
        let record = self.positions_record(&key, &written, shared);
        producer.transact(brokers, &[record], |_| Ok(())).map_err(|broken| broken.failure)?;
        let known = self.read(shared, |positions, brokers| positions.read_to_claim(brokers, &self.id, claim.id))?;
        self.check(&known, &claim, shared)?;
        if let Some(ours) = &ours {
            self.check(&known, ours, shared)?;
        }
        self.ours = Some(claim);
        self.claim = Some(Claimed { producer, topic });
        self.readable(known.position, shared)
    }

    /// Reads the topic of positions on, and gives what is known of the lane then.
    fn read(
        &self,
        shared: &Shared,
        read: impl FnOnce(&mut Positions, &Brokers) -> Result<(), Failure>,
    ) -> Result<Known, Failure> {
        let mut positions = lock(&shared.positions);
        let positions = positions.get_or_insert_with(|| Positions::new(prefix(&self.identity, shared)));
        read(positions, &shared.brokers)?;
        Ok(positions.of(&self.id))
    }

    fn readable(
        &self,
        position: Option<Result<Position, String>>,
        shared: &Shared,
    ) -> Result<Option<Position>, Failure> {
        position.transpose().map_err(|problem| {
            Failure::Operator(format!(
                "reading the lane's position in {}: {problem}: produce a record without a value under the key {}",
                shared.brokers.settings.positions_topic, self.id
            ))
        })
    }

    /// Refuses if another instance has claimed the lane after this claim of ours.
    fn check(&self, known: &Known, ours: &Claim, shared: &Shared) -> Result<(), Failure> {
        let Some(other) = known.overtaker(ours) else { return Ok(()) };
        Err(Failure::Overtaken(format!(
            "another instance, with epoch {}, has claimed the lane, as {} says under the key {}",
            other.epoch,
            shared.brokers.settings.positions_topic,
            claim_key(&self.id)
        )))
    }

    fn positions_record<'a>(&self, key: &'a str, body: &'a bytes::Bytes, shared: &'a Shared) -> Outgoing<'a> {
        let topic = &shared.brokers.settings.positions_topic;
        Outgoing { topic, partition: Some(POSITIONS), key, headers: &[], body }
    }

    fn missing(&self, shared: &Shared) -> String {
        format!("the topic {} has no position under the key {}", shared.brokers.settings.positions_topic, self.id)
    }

    fn displaced(&self, shared: &Shared) -> Failure {
        Failure::Displaced(format!(
            "the lane's position in the topic {}, under the key {}, is not the one that this instance wrote last",
            shared.brokers.settings.positions_topic, self.id
        ))
    }

    /// Refuses records that the topic of events has put before earlier ones of this lane.
    fn check_ends(position: &Position, taken: &Taken, topic: &str) -> Result<(), Failure> {
        let is_before = |(partition, last): &&(i32, i64)| taken.get(partition).is_some_and(|(first, _)| first <= last);
        position.ends.iter().find(is_before).map_or(Ok(()), |(partition, last)| {
            Err(Failure::Displaced(format!(
                "the topic {topic} ended before the record {last} of its partition {partition}, which this lane had produced: it was                  deleted and made again"
            )))
        })
    }

    /// Is called now and then while the lane is not in use.
    pub(super) fn rest(&mut self) {
        if let Some(claim) = &self.claim {
            claim.producer.rest();
        }
        if self.used.elapsed() > KEPT_OPEN {
            self.claim = None;
        }
    }
}

/// What the transactional ids of a sink's lanes begin with. A sink's name has no dot.
fn prefix(identity: &LaneRef, shared: &Shared) -> String {
    format!("{}.{}.", shared.brokers.settings.transactional_id, identity.sink)
}

fn missing_topic(shared: &Shared) -> String {
    let settings = &shared.brokers.settings;
    format!("one of the topics {} and {} does not exist", settings.topic, settings.positions_topic)
}

/// The ends of a position, once these records were taken.
fn raised(ends: &[(i32, i64)], taken: &Taken) -> Vec<(i32, i64)> {
    let mut raised: BTreeMap<_, _> = ends.iter().copied().collect();
    for (&partition, &(_, last)) in taken {
        let end = raised.entry(partition).or_insert(last);
        *end = last.max(*end);
    }
    raised.into_iter().collect()
}
