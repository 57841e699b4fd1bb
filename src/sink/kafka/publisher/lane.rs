//! One lane at its topic: its claim, and what it knows to be there.
//!
//! Everything here blocks.
//!
//! # Invariants
//!
//! * **Nothing is produced without a claim,** and a claim is given up with a transaction whose outcome is not known. The next
//!   use claims anew, and then what was begun before has ended, one way or the other.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tracing::{info, warn};
use uuid::Uuid;

use super::brokers::Brokers;
use super::failure::Failure;
use super::positions::{Claim, Position, Positions, body, claim_key};
use super::producer::{Outgoing, POSITIONS, Producer};
use super::search::Search;
use super::topics::{Facts, Seen};
use crate::event::Offset;
use crate::sink::{LaneRef, Recorded};
use crate::tasks::lock;

mod deliver;

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
    claim: Option<Claimed>,
    /// As the topic has it, while there is a claim.
    position: Position,
    /// What is there though it is not recorded: passed over when it is offered.
    held: BTreeSet<Offset>,
    /// The delivery whose outcome nobody was told.
    in_doubt: Option<Uuid>,
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
            claim: None,
            position: Position::default(),
            held: BTreeSet::new(),
            in_doubt: None,
            bytes: deliver::BYTES,
            used: Instant::now(),
        }
    }

    /// Claims the lane. Where the topic has to be asked which of its events are there, the search that tells.
    pub(super) fn take_over(&mut self, shared: &Shared, recorded: &Recorded) -> Result<Option<Search>, Failure> {
        self.in_doubt = None;
        self.take(shared, recorded.epoch, true)?;
        if self.position.prior <= recorded.through {
            return Ok(None);
        }
        // More was delivered than the last delivery and the record know: the record was put back.
        let partitions = self.claim.as_ref().map_or(0, |claim| claim.topic.partitions);
        Search::begin(&shared.brokers, partitions, &self.identity, recorded.through).map(Some)
    }

    /// Says which events the topic has though they are not recorded; `found` are those that were searched for.
    pub(super) fn taken_over(&mut self, recorded: &Recorded, found: BTreeSet<Offset>) -> BTreeSet<Offset> {
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        if !found.is_empty() {
            warn!(%channel, %sink, events = found.len(),
                "the cursor was put back: events that are in the topic are not produced again");
        }
        let mut there = self.position.delivered();
        there.extend(found);
        there.retain(|offset| !recorded.covers_offset(*offset));
        if !there.is_empty() {
            info!(%channel, %sink, events = there.len(), "topic already holds events that are not recorded as delivered");
        }
        // What is owed is settled without being offered, and may be asked for again.
        self.held = there.iter().filter(|offset| !recorded.owes_offset(**offset)).copied().collect();
        there
    }

    /// Claims the lane again where the claim was given up, and settles what was in doubt.
    fn claimed(&mut self, shared: &Shared, epoch: u64) -> Result<(), Failure> {
        if self.claim.is_none() {
            self.take(shared, epoch, false)?;
        }
        if self.in_doubt.take().is_some_and(|doubt| doubt == self.position.delivery) {
            self.held.extend(self.position.delivered());
        }
        Ok(())
    }

    /// Takes the lane over from whichever producer has it. Only `anew` from one of another instance.
    fn take(&mut self, shared: &Shared, epoch: u64, anew: bool) -> Result<(), Failure> {
        self.claim = None;
        let brokers = &shared.brokers;
        let topic = shared.seen.facts(brokers).inspect_err(|_| brokers.doubt())?;
        let prefix = prefix(&self.identity, shared);
        let reading = || lock(&shared.positions);
        if !anew {
            let mut positions = reading();
            let positions = positions.get_or_insert_with(|| Positions::new(prefix.clone()));
            positions.read_to_end(brokers)?;
            self.check(positions.of(&self.id).claim(), shared)?;
        }
        let producer = Producer::claim(brokers, &self.id, topic.largest)?;
        let claim = Claim { id: Uuid::new_v4(), instance: shared.instance, epoch };
        let record = Outgoing {
            topic: &brokers.settings.positions_topic,
            partition: Some(POSITIONS),
            key: &claim_key(&self.id),
            headers: &[],
            body: &body(&claim),
        };
        producer.transact(brokers, &[record]).map_err(|broken| broken.failure)?;
        let mut positions = reading();
        let positions = positions.get_or_insert_with(|| Positions::new(prefix));
        let [before, last] = positions.read_to_claim(brokers, &self.id, claim.id)?;
        self.check(last.as_ref(), shared)?;
        if !anew {
            self.check(before.as_ref(), shared)?;
        }
        self.position = match positions.of(&self.id).position {
            None => Position { prior: self.position.highest(), ..Position::default() },
            Some(Ok(position)) => position,
            Some(Err(problem)) => {
                return Err(Failure::Operator(format!(
                    "reading the lane's position in {}: {problem}: produce a record without a value under the key {}",
                    brokers.settings.positions_topic, self.id
                )));
            }
        };
        self.claim = Some(Claimed { producer, topic });
        Ok(())
    }

    /// Whether a claim is ours.
    fn check(&self, claim: Option<&Claim>, shared: &Shared) -> Result<(), Failure> {
        let Some(other) = claim.filter(|claim| claim.instance != shared.instance) else { return Ok(()) };
        Err(Failure::Overtaken(format!(
            "another instance, with epoch {}, has claimed the lane, as {} says under the key {}",
            other.epoch,
            shared.brokers.settings.positions_topic,
            claim_key(&self.id)
        )))
    }

    /// What came of the last delivery was told.
    pub(super) fn answered(&mut self) {
        if self.claim.is_some() {
            self.in_doubt = None;
        }
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
