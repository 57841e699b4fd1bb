//! One lane of a topic: its claim, its position, and the events in the topic that the state does not record as delivered.
//!
//! Everything here blocks.
//!
//! # Invariants
//!
//! * **Nothing is produced without a claim.** If the outcome of a transaction is not known, the lane drops its claim. It then
//!   resumes and claims again, and the new claim ends that transaction, committed or aborted.
//! * **One position.** A delivery begins only if the topic has the position that the lane expects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uuid::Uuid;

use super::brokers::{Brokers, Taken};
use super::failure::Failure;
use super::positions::{Claim, Known, Position, Positions, body, claim_key};
use super::producer::{Outgoing, POSITIONS, Producer};
use super::topics::{Facts, Seen};
use crate::LaneRef;
use net::tasks::lock;
use proof::event::{EventKey, Offset};

mod deliver;
mod resume;

pub(super) use deliver::Offer;
pub(super) use resume::Begun;

/// A producer that was not used for this long is closed, because it has threads and connections.
const KEPT_OPEN: Duration = Duration::from_secs(5 * 60);

/// The state that the lanes of a sink share.
pub(super) struct Shared {
    pub(super) brokers: Brokers,
    seen: Seen,
    positions: Mutex<Option<Positions>>,
    /// The run of the process.
    instance: Uuid,
}

/// A lane of a topic.
pub(super) struct Lane {
    identity: LaneRef,
    /// Its transactional id, and the key of its position.
    id: String,
    /// The last claim of this process. Another instance that claims after it has taken the lane over.
    ours: Option<Claim>,
    claim: Option<Claimed>,
    /// The position in the topic. Valid only while the lane has a claim.
    position: Position,
    /// Events that are in the topic, but that the state does not record as delivered. They are skipped when they are offered.
    held: BTreeSet<EventKey>,
    /// Why the topic of events has lost records of this lane. Set by a delivery that detects it, until an operator has
    /// chosen the cursor at which the lane continues.
    lost: Option<String>,
    /// Whether the position was missing when the lane was resumed. The topic can still contain events of the lane.
    was_missing: bool,
    /// The most bytes in one transaction.
    bytes: usize,
    used: Instant,
}

/// The right to produce. It is valid until another producer claims the lane.
struct Claimed {
    producer: Producer,
    topic: Facts,
}

impl Shared {
    pub(super) fn new(brokers: Brokers, instance: Uuid) -> Self {
        Self { brokers, seen: Seen::default(), positions: Mutex::default(), instance }
    }

    /// Takes out the reader of positions, so that the caller can drop it on a thread that may block. `None` if the reader
    /// is in use: its user then closes it.
    pub(super) fn close(&self) -> Option<Positions> {
        self.positions.try_lock().ok().and_then(|mut positions| positions.take())
    }

    /// A record for the topic of positions.
    fn position_record<'a>(&'a self, key: &'a str, body: &'a Bytes) -> Outgoing<'a> {
        let topic = &self.brokers.settings.positions_topic;
        Outgoing { topic, partition: Some(POSITIONS), key, headers: &[], body }
    }

    /// Closes the reader of positions if it is not used.
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

    pub(super) fn through(&self) -> Option<Offset> {
        self.position.lane.through
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

    /// Takes the lane over from any other producer, and returns its position. If this process had claimed the lane under
    /// the same lease and another instance has claimed it since, the lane is not taken back.
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
        let record = shared.position_record(&key, &written);
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

    /// Reads new records of the topic of positions, and returns the position and the claims of the lane.
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

    /// Fails if another instance has claimed the lane after this instance's claim `ours`.
    fn check(&self, known: &Known, ours: &Claim, shared: &Shared) -> Result<(), Failure> {
        let Some(other) = known.overtaker(ours) else { return Ok(()) };
        Err(Failure::Overtaken(format!(
            "another instance, with epoch {}, has claimed the lane, as {} says under the key {}",
            other.epoch,
            shared.brokers.settings.positions_topic,
            claim_key(&self.id)
        )))
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

    /// Fails if the offsets of new records are not above the offsets of earlier records of this lane.
    fn check_ends(position: &Position, taken: &Taken, topic: &str) -> Result<(), Failure> {
        let is_before = |(partition, last): &&(i32, i64)| taken.get(partition).is_some_and(|(first, _)| first <= last);
        position.ends.iter().find(is_before).map_or(Ok(()), |(partition, last)| {
            Err(Failure::Displaced(format!(
                "the topic {topic} ended before the record {last} of its partition {partition}, which this lane had produced: it was                  deleted and made again"
            )))
        })
    }

    /// Called periodically while the lane is not in use.
    pub(super) fn rest(&mut self) {
        if let Some(claim) = &self.claim {
            claim.producer.rest();
        }
        if self.used.elapsed() > KEPT_OPEN {
            self.claim = None;
        }
    }
}

/// The prefix of the transactional ids of a sink's lanes. A sink's name contains no dot.
fn prefix(identity: &LaneRef, shared: &Shared) -> String {
    format!("{}.{}.", shared.brokers.settings.transactional_id, identity.sink)
}

/// The ends of a position after these records were accepted.
fn raised(ends: &[(i32, i64)], taken: &Taken) -> Vec<(i32, i64)> {
    let mut raised: BTreeMap<_, _> = ends.iter().copied().collect();
    for (&partition, &(_, last)) in taken {
        let end = raised.entry(partition).or_insert(last);
        *end = last.max(*end);
    }
    raised.into_iter().collect()
}
