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

    /// A record of the topic of positions.
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

    /// Continues to read the topic of positions, and returns the state of the lane.
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

/// The ends of a position, once these records were taken.
fn raised(ends: &[(i32, i64)], taken: &Taken) -> Vec<(i32, i64)> {
    let mut raised: BTreeMap<_, _> = ends.iter().copied().collect();
    for (&partition, &(_, last)) in taken {
        let end = raised.entry(partition).or_insert(last);
        *end = last.max(*end);
    }
    raised.into_iter().collect()
}
