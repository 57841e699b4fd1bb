//! The writer of one lane: its claim in the brokers, and its position in the topic of positions. The writers of a sink share
//! some state.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use uuid::Uuid;

use super::brokers::{Brokers, Facts, OffsetRanges};
use super::error::is_too_large;
use super::positions::{LaneRecords, Position, Positions, Takeover, claim_key};
use super::producer::{Outgoing, Producer, TransactionError};
use super::search::{Search, ends};
use crate::narrowing::OtherContent;
use crate::settings::KafkaSettings;
use crate::stream::{self, Appended, Unrecorded};
use crate::{Fault, LaneRef, Position as LanePosition, Recorded, SinkError};
use net::tasks::lock;
use proof::event::Offset;

/// The maximum number of lanes of a sink that work at the same time. Each such lane occupies a thread.
const AT_A_TIME: usize = 16;

/// A producer that was not used for this long is closed, because it has threads and connections.
const KEPT_OPEN: Duration = Duration::from_secs(5 * 60);

/// The maximum number of bytes in one transaction, unless one event is larger. The library keeps a copy of these bytes
/// until the transaction ends.
const BYTES: usize = 4 << 20;

/// The state that the lanes of a sink share.
pub(super) struct Shared {
    pub(super) brokers: Brokers,
    pub(super) positions: Mutex<Option<Positions>>,
    /// Identifies this run of the process.
    pub(super) instance: Uuid,
    /// A lane that works occupies one of these threads.
    pub(super) threads: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(settings: KafkaSettings) -> Self {
        Self {
            brokers: Brokers::new(settings),
            positions: Mutex::default(),
            instance: Uuid::new_v4(),
            threads: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }

    pub(super) fn topic(&self) -> &str {
        &self.brokers.settings.topic
    }

    /// The prefix of the transactional ids of a sink's lanes. A sink's name contains no dot.
    pub(super) fn prefix(&self, identity: &LaneRef) -> String {
        format!("{}.{}.", self.brokers.settings.transactional_id, identity.sink)
    }

    pub(super) fn id(&self, identity: &LaneRef) -> String {
        format!("{}{}", self.prefix(identity), identity.channel.id)
    }

    pub(super) fn displaced(&self, identity: &LaneRef) -> SinkError {
        SinkError::Displaced(format!(
            "the lane's position in the topic {}, under the key {}, differs from the last one that this instance wrote",
            self.brokers.settings.positions_topic,
            self.id(identity)
        ))
    }

    pub(super) fn missing_topic(&self) -> String {
        let settings = &self.brokers.settings;
        format!("one of the topics {} and {} does not exist", settings.topic, settings.positions_topic)
    }
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    identity: LaneRef,
    /// The lane's transactional id, which is also the key of the lane's position.
    id: String,
    /// The last claim of this process. If the topic has a claim of another instance after this claim, the other instance
    /// has taken the lane over.
    ours: Option<Takeover>,
    /// The right to produce. It is valid until another producer claims the lane. If the outcome of a transaction is not known,
    /// the producer is closed, and the next claim ends that transaction, committed or aborted.
    claim: Option<Producer>,
    /// The offset of the lane's last record in each partition of the topic of events.
    ends: Vec<(i32, i64)>,
    /// Why the topic of events has lost records of this lane. A delivery that detects the loss sets this field. The lane
    /// then has no position until an operator has set the cursor.
    lost: Option<String>,
    /// Whether the lane has lost its position, and has not written another one since. The topic can still contain events of the
    /// lane.
    was_missing: bool,
    /// The maximum number of bytes in one transaction.
    bytes: usize,
    /// Whether the brokers have refused the last events without a known reason, such as their size.
    is_unexplained: bool,
    used: Instant,
}

/// The maximum sizes of a transaction and of an event, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) bytes: usize,
    /// `None` if the brokers do not say.
    pub(super) largest: Option<usize>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, identity: LaneRef) -> Self {
        Self {
            id: shared.id(&identity),
            shared,
            identity,
            ours: None,
            claim: None,
            ends: Vec::new(),
            lost: None,
            was_missing: false,
            bytes: BYTES,
            is_unexplained: false,
            used: Instant::now(),
        }
    }

    pub(super) fn capacity(&self) -> Capacity {
        Capacity { bytes: self.bytes, largest: self.claim.as_ref().and_then(|claim| claim.topic.largest) }
    }

    /// Reads the position without claiming the lane.
    pub(super) fn position(&self) -> Result<LanePosition, SinkError> {
        if self.shared.brokers.facts(false)?.is_none() {
            return Ok(LanePosition::Missing(self.shared.missing_topic()));
        }
        let position = self.read(None)?.position;
        Ok(match self.readable(position)? {
            None => LanePosition::Missing(self.missing()),
            Some(position) => LanePosition::At(position.lane.through),
        })
    }

    pub(super) fn take_over(&mut self, recorded: &Recorded) -> Result<stream::ClaimedPosition, SinkError> {
        self.claim = None;
        let taken = self.try_to_take_over(recorded);
        match &taken {
            Ok(stream::ClaimedPosition::Missing(_)) => (self.claim, self.was_missing) = (None, true),
            Ok(stream::ClaimedPosition::At(_)) => (self.lost, self.was_missing) = (None, false),
            Err(SinkError::Overtaken(_)) => self.ours = None,
            Err(error) if error.fault() == Fault::Operator => self.shared.brokers.forget(),
            Err(_) => {}
        }
        taken
    }

    fn try_to_take_over(&mut self, recorded: &Recorded) -> Result<stream::ClaimedPosition, SinkError> {
        let shared = self.shared.clone();
        let (brokers, is_confirmed) = (&shared.brokers, recorded.confirmed.is_some());
        let Some(topic) = brokers.facts(!is_confirmed).inspect_err(|_| brokers.doubt())? else {
            return Ok(stream::ClaimedPosition::Missing(shared.missing_topic()));
        };
        let partitions = topic.partitions;
        let known = self.take(recorded.epoch, topic)?;
        let (lane, ends) = known.map(|known| (known.lane, known.ends)).unzip();
        self.ends = ends.unwrap_or_default();
        let Some(mut position) = stream::Position::adopted(lane.clone(), recorded, self.was_missing) else {
            return Ok(stream::ClaimedPosition::Missing(self.missing()));
        };
        let mut is_changed = lane.as_ref() != Some(&position);
        if is_confirmed {
            let lost = if self.lost.is_some() { self.lost.clone() } else { self.cut(&position, partitions)? };
            if let Some(why) = lost {
                return Ok(stream::ClaimedPosition::Missing(why));
            }
        } else {
            // The topic may have been created again, and these offsets do not apply to the new topic.
            is_changed |= !mem::take(&mut self.ends).is_empty();
        }
        if let Some(claim) = self.claim.as_ref().filter(|_| is_changed) {
            position.epoch = recorded.epoch;
            let written = Position { lane: position.clone(), ends: self.ends.clone() };
            let record = Outgoing::position(self.id.clone(), &written);
            claim.transact(brokers, &[], &record, |_| Ok(())).map_err(|broken| broken.error)?;
        }
        Ok(stream::ClaimedPosition::At(position))
    }

    /// Takes the lane over from any other producer, and returns its position. If this process had claimed the lane under
    /// the same lease and another instance has claimed the lane since, this method fails and does not take the lane back.
    fn take(&mut self, epoch: u64, topic: Facts) -> Result<Option<Position>, SinkError> {
        let brokers = &self.shared.brokers;
        let ours = self.ours.clone().filter(|ours| ours.epoch == epoch);
        if let Some(ours) = &ours {
            self.check(&self.read(None)?, ours)?;
        }
        let producer = Producer::claim(brokers, &self.id, topic)?;
        let claim = Takeover { id: Uuid::new_v4(), instance: self.shared.instance, epoch };
        let record = Outgoing::position(claim_key(&self.id), &claim);
        producer.transact(brokers, &[], &record, |_| Ok(())).map_err(|broken| broken.error)?;
        let known = self.read(Some(claim.id))?;
        self.check(&known, &claim)?;
        if let Some(ours) = &ours {
            self.check(&known, ours)?;
        }
        self.ours = Some(claim);
        self.claim = Some(producer);
        self.used = Instant::now();
        // An earlier instance had claimed the lane, so it probably had a position, which was deleted.
        self.was_missing |= known.position.is_none() && known.has_claim_of_other(self.shared.instance);
        self.readable(known.position)
    }

    /// Reads new records of the topic of positions, up to the claim `until`. If `until` is `None`, reads up to the end.
    /// Returns the position and the claims of the lane.
    fn read(&self, until: Option<Uuid>) -> Result<LaneRecords, SinkError> {
        let mut positions = lock(&self.shared.positions);
        let positions = positions.get_or_insert_with(|| Positions::new(self.shared.prefix(&self.identity)));
        positions.read(&self.shared.brokers, until.map(|claim| (&*self.id, claim)))?;
        Ok(positions.of(&self.id))
    }

    fn readable(&self, position: Option<Result<Position, String>>) -> Result<Option<Position>, SinkError> {
        position.transpose().map_err(|problem| {
            SinkError::unusable(format!(
                "reading the lane's position in {}: {problem}: produce a record without a value under the key {}",
                self.shared.brokers.settings.positions_topic, self.id
            ))
        })
    }

    /// Fails if another instance has taken over the lane after this instance's claim `ours`.
    fn check(&self, known: &LaneRecords, ours: &Takeover) -> Result<(), SinkError> {
        let Some(other) = known.overtaker(ours) else { return Ok(()) };
        Err(SinkError::Overtaken(format!(
            "another instance, with epoch {}, has taken over the lane, according to the topic {} under the key {}",
            other.epoch,
            self.shared.brokers.settings.positions_topic,
            claim_key(&self.id)
        )))
    }

    fn missing(&self) -> String {
        format!("the topic {} has no position under the key {}", self.shared.brokers.settings.positions_topic, self.id)
    }

    /// Checks whether the topic of events ends before records of this lane, because it was deleted and created again, or
    /// truncated. Returns a description of the loss.
    fn cut(&self, position: &stream::Position, partitions: usize) -> Result<Option<String>, SinkError> {
        let topic = self.shared.topic();
        // The lane has not delivered anything yet.
        if position.delivery.is_nil() {
            return Ok(None);
        }
        let ends = ends(&self.shared.brokers, partitions)?;
        let lost = self.ends.iter().find(|(partition, last)| ends.get(partition).is_none_or(|end| end <= last));
        if let Some((partition, last)) = lost {
            return Ok(Some(format!(
                "the topic {topic} ends before the record {last} of its partition {partition}, which this lane had produced"
            )));
        }
        let is_empty = ends.values().all(|end| *end == 0);
        Ok(is_empty.then(|| format!("the topic {topic} has never had a record, although this lane had produced some")))
    }

    pub(super) fn search(&self, unrecorded: Unrecorded) -> Result<Search, SinkError> {
        let claim = self.claim.as_ref().ok_or_else(|| self.shared.displaced(&self.identity))?;
        Search::begin(&self.shared.brokers, claim.topic.partitions, self.identity.clone(), unrecorded)
    }

    /// Checks that the brokers can be reached. If the producer was closed because it was idle, claims the lane again. The
    /// position must then still have the expected delivery and cursor.
    pub(super) fn ready(&mut self, expected: (Uuid, Option<Offset>)) -> Result<(), SinkError> {
        self.shared.brokers.reach()?;
        self.used = Instant::now();
        let Some(epoch) = self.ours.as_ref().map(|ours| ours.epoch).filter(|_| self.claim.is_none()) else {
            return Ok(());
        };
        let topic = self.facts()?;
        let known = self.take(epoch, topic)?;
        if known.is_none_or(|known| (known.lane.delivery, known.lane.through) != expected) {
            self.claim = None;
            return Err(self.shared.displaced(&self.identity));
        }
        Ok(())
    }

    fn facts(&self) -> Result<Facts, SinkError> {
        let facts = self.shared.brokers.facts(false)?;
        facts.ok_or_else(|| self.shared.displaced(&self.identity))
    }

    pub(super) fn refresh(&mut self) -> Result<(), SinkError> {
        self.shared.brokers.forget();
        let topic = self.facts()?;
        if let Some(claim) = &mut self.claim {
            claim.topic = topic;
        }
        Ok(())
    }

    /// Produces events and the lane's position in one transaction.
    pub(super) fn append(&mut self, events: &[Outgoing], lane: stream::Position) -> Result<Appended, SinkError> {
        let Some(claim) = &self.claim else { return Err(self.shared.displaced(&self.identity)) };
        let mut ends = self.ends.clone();
        let record = Outgoing::position(self.id.clone(), &Position { lane, ends: ends.clone() });
        let produced =
            claim.transact(&self.shared.brokers, events, &record, |taken| raise(&mut ends, taken, self.shared.topic()));
        let Err(TransactionError { error, code, is_aborted }) = produced else {
            self.ends = ends;
            return Ok(Appended::All);
        };
        match error {
            SinkError::Refused { message, .. } if events.is_empty() => Err(SinkError::unusable(format!(
                "producing the lane's position to {}: {message}",
                self.shared.brokers.settings.positions_topic
            ))),
            SinkError::Refused { message, .. } if is_aborted => {
                let error = self.refused(events, &message, code.is_some_and(is_too_large));
                Ok(Appended::Refused { at: None, error })
            }
            error => {
                if let SinkError::Displaced(why) = &error {
                    self.lost = Some(why.clone());
                } else if error.fault() != Fault::Target {
                    self.shared.brokers.forget();
                }
                self.claim = None;
                // The transaction was not aborted, so its outcome is not known.
                if let SinkError::Refused { message, .. } = error { Err(SinkError::away(message)) } else { Err(error) }
            }
        }
    }

    /// The error for events that a broker refused. With several events, it is not known which one the broker refused.
    fn refused(&mut self, events: &[Outgoing], said: &str, is_too_large: bool) -> SinkError {
        self.is_unexplained = !is_too_large;
        if let [event] = events
            && is_too_large
        {
            // The limit of the topic was not known, or has changed. If it cannot be read now, the message states the old
            // limit or none.
            let _ = self.refresh();
            return event.too_large(self.shared.topic(), self.capacity().largest, Some(said));
        }
        if is_too_large {
            self.bytes = events.iter().map(Outgoing::size).sum::<usize>().div_ceil(2);
        }
        SinkError::refused(format!("the topic {} refuses it: {said}", self.shared.topic()))
    }

    /// Produces other events than the refused one, in transactions that are aborted, until the brokers accept one.
    pub(super) fn offer_others(&mut self, events: &[Outgoing], lane: stream::Position) -> OtherContent {
        let mut tried = OtherContent::Untried;
        let position = Outgoing::position(self.id.clone(), &Position { lane, ends: self.ends.clone() });
        if !self.is_unexplained {
            return tried;
        }
        for event in events {
            let Some(claim) = self.claim.take_if(|_| tried != OtherContent::Accepted) else { break };
            let (other, is_ready) = claim.offer(&self.shared.brokers, event, &position);
            tried = tried.max(other);
            self.claim = Some(claim).filter(|_| is_ready);
        }
        tried
    }

    /// Serves the producer, and closes it if it was not used for a long time. Called periodically while the lane is not in
    /// use.
    pub(super) fn rest(&mut self) {
        if let Some(claim) = &self.claim {
            claim.rest();
        }
        if self.used.elapsed() > KEPT_OPEN {
            self.close();
        }
    }

    pub(super) fn close(&mut self) {
        self.claim = None;
    }
}

/// Raises the end offsets of a position to the offsets of the records that were accepted. Fails if the offsets of these records
/// are not above the offsets of earlier records of the lane.
fn raise(ends: &mut Vec<(i32, i64)>, taken: &OffsetRanges, topic: &str) -> Result<(), SinkError> {
    let is_before = |(partition, last): &&(i32, i64)| taken.get(partition).is_some_and(|(first, _)| first <= last);
    if let Some((partition, last)) = ends.iter().find(is_before) {
        return Err(SinkError::Displaced(format!(
            "the topic {topic} ended before the record {last} of its partition {partition}, which this lane had produced: the \
             topic was deleted and created again"
        )));
    }
    let mut raised: BTreeMap<_, _> = ends.iter().copied().collect();
    raised.extend(taken.iter().map(|(&partition, &(_, last))| (partition, last)));
    *ends = raised.into_iter().collect();
    Ok(())
}
