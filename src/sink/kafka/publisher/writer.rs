//! The writer of one lane: its claim in the brokers, and its position in the topic of positions.
//!
//! Everything here blocks.
//!
//! # Invariants
//!
//! * **Nothing is produced without a claim.** If the outcome of a transaction is not known, the writer closes its producer.
//!   The next claim ends that transaction, committed or aborted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::brokers::{Brokers, Taken};
use super::event::Event;
use super::failure::is_too_large;
use super::positions::{Claim, Known, Position, Positions, body, claim_key};
use super::producer::{Broken, Outgoing, Producer};
use super::search::{Search, ends};
use super::shared::Shared;
use super::topics::Facts;
use crate::stream::{self, Appended, Unrecorded};
use crate::{Fault, LaneRef, Position as Place, Recorded, SinkError};
use net::tasks::lock;
use proof::event::Offset;

/// A producer that was not used for this long is closed, because it has threads and connections.
const KEPT_OPEN: Duration = Duration::from_secs(5 * 60);

/// The most bytes in one transaction, unless one event is larger. The library keeps a copy of them until the transaction
/// ends.
const BYTES: usize = 4 << 20;

/// The writer of a lane.
pub(super) struct Writer {
    identity: LaneRef,
    /// Its transactional id, and the key of its position.
    id: String,
    /// The last claim of this process. Another instance that claims after it has taken the lane over.
    ours: Option<Claim>,
    claim: Option<Claimed>,
    /// The offset of the lane's last record in each partition of the topic of events.
    ends: Vec<(i32, i64)>,
    /// Why the topic of events has lost records of this lane. Set by a delivery that detects it, until an operator has
    /// chosen the cursor at which the lane continues.
    lost: Option<String>,
    /// Whether the position was missing when the lane was resumed, and the topic was not searched since. The topic can still
    /// contain events of the lane.
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

/// The most that a transaction and an event may have, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) bytes: usize,
    /// `None` if the brokers do not say.
    pub(super) largest: Option<usize>,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { bytes: BYTES, largest: None }
    }
}

/// The writers of a sink's lanes.
#[derive(Default)]
pub(super) struct Writers(Mutex<Vec<Arc<Mutex<Writer>>>>);

impl Writers {
    /// Makes the writer of a lane.
    pub(super) fn writer(&self, identity: LaneRef, shared: &Shared) -> Arc<Mutex<Writer>> {
        let writer = Arc::new(Mutex::new(Writer::new(identity, shared)));
        lock(&self.0).push(writer.clone());
        writer
    }

    /// Empties the queues of the writers that are not in use, and closes producers that were not used for a long time.
    /// Called periodically.
    pub(super) fn rest(&self) {
        self.unused(Writer::rest);
    }

    /// Closes the producers that are not in use.
    pub(super) fn close(&self) {
        self.unused(|writer| writer.claim = None);
    }

    /// A locked writer is in use.
    fn unused(&self, work: impl Fn(&mut Writer)) {
        let writers = lock(&self.0).clone();
        writers.iter().filter_map(|writer| writer.try_lock().ok()).for_each(|mut writer| work(&mut writer));
    }
}

impl Writer {
    fn new(identity: LaneRef, shared: &Shared) -> Self {
        Self {
            id: shared.id(&identity),
            identity,
            ours: None,
            claim: None,
            ends: Vec::new(),
            lost: None,
            was_missing: false,
            bytes: BYTES,
            used: Instant::now(),
        }
    }

    pub(super) fn capacity(&self) -> Capacity {
        Capacity { bytes: self.bytes, largest: self.claim.as_ref().and_then(|claim| claim.topic.largest) }
    }

    /// Reads the position without claiming the lane.
    pub(super) fn position(&self, shared: &Shared) -> Result<Place, SinkError> {
        if shared.seen.facts(&shared.brokers, false)?.is_none() {
            return Ok(Place::Missing(shared.missing_topic()));
        }
        let position = self.read(shared, Positions::read_to_end)?.position;
        Ok(match self.readable(position, shared)? {
            None => Place::Missing(self.missing(shared)),
            Some(position) => Place::At(position.lane.through),
        })
    }

    /// Claims the lane and reads its position.
    pub(super) fn take_over(&mut self, shared: &Shared, recorded: &Recorded) -> Result<stream::Claim, SinkError> {
        self.claim = None;
        let taken = self.try_to_take_over(shared, recorded);
        match &taken {
            Ok(stream::Claim::Missing(_)) => (self.claim, self.was_missing) = (None, true),
            Ok(stream::Claim::At(_)) => self.lost = None,
            Err(SinkError::Overtaken(_)) => self.ours = None,
            Err(error) if error.fault() == Fault::Operator => shared.seen.forget(),
            Err(_) => {}
        }
        taken
    }

    fn try_to_take_over(&mut self, shared: &Shared, recorded: &Recorded) -> Result<stream::Claim, SinkError> {
        let (brokers, is_confirmed) = (&shared.brokers, recorded.confirmed.is_some());
        let Some(topic) = shared.seen.facts(brokers, !is_confirmed).inspect_err(|_| brokers.doubt())? else {
            return Ok(stream::Claim::Missing(shared.missing_topic()));
        };
        let partitions = topic.partitions;
        let known = self.take(shared, recorded.epoch, topic)?;
        let (lane, ends) = known.map(|known| (known.lane, known.ends)).unzip();
        self.ends = ends.unwrap_or_default();
        let Some(mut position) = stream::Position::adopted(lane.clone(), recorded) else {
            return Ok(stream::Claim::Missing(self.missing(shared)));
        };
        if is_confirmed {
            let lost =
                self.lost.clone().map_or_else(|| self.cut(shared, &position, partitions), |why| Ok(Some(why)))?;
            if let Some(why) = lost {
                return Ok(stream::Claim::Missing(why));
            }
        } else if lane.as_ref() != Some(&position) || !self.ends.is_empty() {
            // The topic may be a different one now.
            self.ends = Vec::new();
            position.epoch = recorded.epoch;
            let body = body(&Position { lane: position.clone(), ends: Vec::new() });
            if let Some(claim) = &self.claim {
                let record = shared.position_record(&self.id, &body);
                claim.producer.transact(brokers, &[record], |_| Ok(())).map_err(|broken| broken.error)?;
            }
        }
        Ok(stream::Claim::At(position))
    }

    /// Takes the lane over from any other producer, and returns its position. If this process had claimed the lane under
    /// the same lease and another instance has claimed it since, the lane is not taken back.
    fn take(&mut self, shared: &Shared, epoch: u64, topic: Facts) -> Result<Option<Position>, SinkError> {
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
        producer.transact(brokers, &[record], |_| Ok(())).map_err(|broken| broken.error)?;
        let known = self.read(shared, |positions, brokers| positions.read_to_claim(brokers, &self.id, claim.id))?;
        self.check(&known, &claim, shared)?;
        if let Some(ours) = &ours {
            self.check(&known, ours, shared)?;
        }
        self.ours = Some(claim);
        self.claim = Some(Claimed { producer, topic });
        self.used = Instant::now();
        self.readable(known.position, shared)
    }

    /// Reads new records of the topic of positions, and returns the position and the claims of the lane.
    fn read(
        &self,
        shared: &Shared,
        read: impl FnOnce(&mut Positions, &Brokers) -> Result<(), SinkError>,
    ) -> Result<Known, SinkError> {
        let mut positions = lock(&shared.positions);
        let positions = positions.get_or_insert_with(|| Positions::new(shared.prefix(&self.identity)));
        read(positions, &shared.brokers)?;
        Ok(positions.of(&self.id))
    }

    fn readable(
        &self,
        position: Option<Result<Position, String>>,
        shared: &Shared,
    ) -> Result<Option<Position>, SinkError> {
        position.transpose().map_err(|problem| {
            SinkError::unusable(format!(
                "reading the lane's position in {}: {problem}: produce a record without a value under the key {}",
                shared.brokers.settings.positions_topic, self.id
            ))
        })
    }

    /// Fails if another instance has claimed the lane after this instance's claim `ours`.
    fn check(&self, known: &Known, ours: &Claim, shared: &Shared) -> Result<(), SinkError> {
        let Some(other) = known.overtaker(ours) else { return Ok(()) };
        Err(SinkError::Overtaken(format!(
            "another instance, with epoch {}, has claimed the lane, as {} says under the key {}",
            other.epoch,
            shared.brokers.settings.positions_topic,
            claim_key(&self.id)
        )))
    }

    fn missing(&self, shared: &Shared) -> String {
        format!("the topic {} has no position under the key {}", shared.brokers.settings.positions_topic, self.id)
    }

    /// Checks whether the topic of events ends before records of this lane. If so, it was deleted and created again, or
    /// truncated, and the reason is returned.
    fn cut(
        &self,
        shared: &Shared,
        position: &stream::Position,
        partitions: usize,
    ) -> Result<Option<String>, SinkError> {
        let topic = shared.topic();
        let has_delivered = !position.delivery.is_nil();
        if !has_delivered {
            return Ok(None);
        }
        let ends = ends(&shared.brokers, (0..).take(partitions))?;
        let lost = self.ends.iter().find(|(partition, last)| ends.get(partition).is_none_or(|end| end <= last));
        if let Some((partition, last)) = lost {
            return Ok(Some(format!(
                "the topic {topic} ends before the record {last} of its partition {partition}, which this lane had produced"
            )));
        }
        let is_empty = ends.values().all(|end| *end == 0);
        Ok(is_empty.then(|| format!("the topic {topic} has never had a record, although this lane had produced some")))
    }

    /// Begins a search for events of the lane, if the position was missing or the caller asks for one.
    pub(super) fn search(
        &self,
        shared: &Shared,
        everywhere: bool,
        unrecorded: Unrecorded,
    ) -> Result<Option<Search>, SinkError> {
        let Some(claim) = self.claim.as_ref().filter(|_| everywhere || self.was_missing) else { return Ok(None) };
        Ok(Some(Search::begin(&shared.brokers, claim.topic.partitions, &self.identity, unrecorded)?))
    }

    pub(super) fn has_searched(&mut self) {
        self.was_missing = false;
    }

    /// Checks that the brokers can be reached, and claims the lane again if its producer was closed because it was idle. The
    /// position must have this delivery and this cursor.
    pub(super) fn ready(&mut self, shared: &Shared, expected: (Uuid, Option<Offset>)) -> Result<(), SinkError> {
        shared.brokers.reach()?;
        self.used = Instant::now();
        let Some(epoch) = self.ours.as_ref().map(|ours| ours.epoch).filter(|_| self.claim.is_none()) else {
            return Ok(());
        };
        let topic = self.facts(shared)?;
        let known = self.take(shared, epoch, topic)?;
        if known.is_none_or(|known| (known.lane.delivery, known.lane.through) != expected) {
            self.claim = None;
            return Err(shared.displaced(&self.identity));
        }
        Ok(())
    }

    fn facts(&self, shared: &Shared) -> Result<Facts, SinkError> {
        let facts = shared.seen.facts(&shared.brokers, false)?;
        facts.ok_or_else(|| shared.displaced(&self.identity))
    }

    /// Reads the settings of the topics again.
    pub(super) fn refresh(&mut self, shared: &Shared) -> Result<(), SinkError> {
        shared.seen.forget();
        let topic = self.facts(shared)?;
        if let Some(claim) = &mut self.claim {
            claim.topic = topic;
        }
        Ok(())
    }

    /// Produces events and the lane's position in one transaction.
    pub(super) fn append(
        &mut self,
        shared: &Shared,
        events: &[Event],
        lane: stream::Position,
    ) -> Result<Appended, SinkError> {
        let topic = shared.topic();
        let Some(claim) = &self.claim else { return Err(shared.displaced(&self.identity)) };
        let mut position = Position { lane, ends: self.ends.clone() };
        let written = body(&position);
        let records = events.iter();
        let mut records: Vec<_> = records
            .map(|Event { key, headers, body }| Outgoing { topic, partition: None, key, headers, body })
            .collect();
        records.push(shared.position_record(&self.id, &written));
        let produced = claim.producer.transact(&shared.brokers, &records, |taken| {
            check_ends(&position.ends, taken, topic)?;
            raise(&mut position.ends, taken);
            Ok(())
        });
        let Err(Broken { error, code, is_aborted }) = produced else {
            self.ends = position.ends;
            return Ok(Appended::All);
        };
        match error {
            SinkError::Refused { message, .. } if events.is_empty() => Err(SinkError::unusable(format!(
                "producing the lane's position to {}: {message}",
                shared.brokers.settings.positions_topic
            ))),
            SinkError::Refused { message, .. } if is_aborted => {
                let error = self.refused(events, &message, code.is_some_and(is_too_large), shared);
                Ok(Appended::Refused { at: None, error })
            }
            error => {
                if let SinkError::Displaced(why) = &error {
                    self.lost = Some(why.clone());
                } else if error.fault() != Fault::Target {
                    shared.seen.forget();
                }
                self.claim = None;
                // It is not known which event is refused. The next claim ends the transaction.
                if let SinkError::Refused { message, .. } = error { Err(SinkError::away(message)) } else { Err(error) }
            }
        }
    }

    /// The error for events that a broker refused. If there are several, it is not known which one the broker refused.
    fn refused(&mut self, events: &[Event], said: &str, is_too_large: bool, shared: &Shared) -> SinkError {
        let topic = shared.topic();
        match events {
            [event] if is_too_large => {
                // The limit of the topic was not known, or has changed. If it cannot be read now, the message states the
                // old limit or none.
                let _ = self.refresh(shared);
                event.too_large(topic, self.capacity().largest, Some(said))
            }
            _ => {
                if is_too_large {
                    self.bytes = events.iter().map(Event::size).sum::<usize>().div_ceil(2);
                }
                SinkError::refused(format!("the topic {topic} refuses it: {said}"))
            }
        }
    }

    /// Called periodically while the lane is not in use.
    fn rest(&mut self) {
        if let Some(claim) = &self.claim {
            claim.producer.rest();
        }
        if self.used.elapsed() > KEPT_OPEN {
            self.claim = None;
        }
    }
}

/// Fails if the offsets of new records are not above the offsets of earlier records of the lane.
fn check_ends(ends: &[(i32, i64)], taken: &Taken, topic: &str) -> Result<(), SinkError> {
    let is_before = |(partition, last): &&(i32, i64)| taken.get(partition).is_some_and(|(first, _)| first <= last);
    ends.iter().find(is_before).map_or(Ok(()), |(partition, last)| {
        Err(SinkError::Displaced(format!(
            "the topic {topic} ended before the record {last} of its partition {partition}, which this lane had produced: it was                  deleted and made again"
        )))
    })
}

/// Raises the ends of a position by the records that were accepted.
fn raise(ends: &mut Vec<(i32, i64)>, taken: &Taken) {
    let mut raised: BTreeMap<_, _> = ends.iter().copied().collect();
    for (&partition, &(_, last)) in taken {
        let end = raised.entry(partition).or_insert(last);
        *end = last.max(*end);
    }
    *ends = raised.into_iter().collect();
}
