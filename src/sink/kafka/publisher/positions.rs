//! Where lanes are, as the topic of positions says, and who has claimed them.
//!
//! Everything here blocks.
//!
//! # Invariants
//!
//! * **In order.** Records are looked at in their order, and each replaces the one before it of the same key.
//! * **Bounded.** Of each lane of this sink one position and one claim are kept, of other sinks nothing.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use rdkafka::{Offset as At, TopicPartitionList};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::brokers::{Brokers, Heard};
use super::failure::Failure;
use super::producer::POSITIONS;
use crate::stream;

/// What follows a lane's transactional id in the key of its claims.
const CLAIM: &str = "/claim";

/// How many claims of a lane are kept: of lanes that claim at the same time one may read those of the others.
const CLAIMS: usize = 8;

/// So long the topic is read on after the last lane has asked.
pub(super) const KEPT_OPEN: Duration = Duration::from_secs(30);

/// A position, and where the records of the lane ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    #[serde(flatten)]
    pub(super) lane: stream::Position,
    /// For each partition of the topic of events, the offset of the last record there that the lane had produced before the
    /// last delivery. A topic that ends before it was deleted and made again, or truncated.
    #[serde(default)]
    pub(super) ends: Vec<(i32, i64)>,
}

/// That an instance has taken a lane over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// Names it.
    pub(super) id: Uuid,
    /// The run of the process.
    pub(super) instance: Uuid,
    /// The epoch of its lease, for a person who reads it.
    pub(super) epoch: u64,
}

impl Position {
    fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        let read: Self = serde_json::from_slice(body)?;
        Ok(Self { lane: read.lane.upgraded(), ..read })
    }
}

/// The body of a record.
pub(super) fn body(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("it has text keys and no value that can fail").into()
}

/// The key of a lane's claims.
pub(super) fn claim_key(id: &str) -> String {
    format!("{id}{CLAIM}")
}

/// What is known of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Its position, or why the record cannot be read.
    pub(super) position: Option<Result<Position, String>>,
    /// The last ones, in their order.
    claims: VecDeque<Claim>,
}

impl Known {
    /// The first claim of another instance after this one. None if this one is not known: the topic was restored to a state
    /// before it, which is not a reason to give way to the claims there.
    pub(super) fn overtaker(&self, ours: &Claim) -> Option<&Claim> {
        let mut later = self.claims.iter().skip_while(|claim| claim.id != ours.id);
        later.find(|claim| claim.instance != ours.instance)
    }

    fn has_claim(&self, id: Uuid) -> bool {
        self.claims.iter().any(|claim| claim.id == id)
    }

    fn add(&mut self, claim: Claim) {
        if self.claims.len() == CLAIMS {
            self.claims.pop_front();
        }
        self.claims.push_back(claim);
    }
}

/// The topic, as far as it was read.
pub(super) struct Positions {
    /// What the keys of this sink begin with.
    prefix: String,
    known: HashMap<String, Known>,
    /// The offset of the next record; `None` before the first one.
    next: Option<i64>,
    reader: Option<Reader>,
}

struct Reader {
    client: BaseConsumer<Heard>,
    heard: Heard,
    used: Instant,
}

impl Positions {
    /// Of the lanes whose transactional ids begin so.
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix, known: HashMap::new(), next: None, reader: None }
    }

    /// What is known of a lane.
    pub(super) fn of(&self, id: &str) -> Known {
        self.known.get(id).cloned().unwrap_or_default()
    }

    /// Reads up to the stable end.
    pub(super) fn read_to_end(&mut self, brokers: &Brokers) -> Result<(), Failure> {
        // One that has been at the end before does not say so again.
        self.reader = None;
        self.read(brokers, None)
    }

    /// Reads until this claim of a lane was read.
    pub(super) fn read_to_claim(&mut self, brokers: &Brokers, id: &str, claim: Uuid) -> Result<(), Failure> {
        // Another lane may have read it.
        if self.known.get(id).is_some_and(|known| known.has_claim(claim)) {
            return Ok(());
        }
        self.read(brokers, Some((id, claim)))
    }

    fn read(&mut self, brokers: &Brokers, until: Option<(&str, Uuid)>) -> Result<(), Failure> {
        let deadline = Instant::now() + brokers.settings.timeout;
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::begin(brokers, self.next.map_or(At::Beginning, At::Offset))?,
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let polled = reader.client.poll(left);
            let message = match polled {
                None if left.is_zero() => return Err(reader.late(brokers, until.is_some())),
                None => continue,
                Some(Err(KafkaError::PartitionEOF(_))) if until.is_none() => break,
                // That a group is refused is no matter: none is used. What cannot be reached now may be in a moment.
                Some(Err(error)) => match Failure::of(&error, None, &brokers.settings) {
                    _ if error.rdkafka_error_code() == Some(Code::GroupAuthorizationFailed) => continue,
                    Failure::Away(_) => continue,
                    failure => return Err(failure),
                },
                Some(Ok(message)) => message,
            };
            if self.next.is_some_and(|next| message.offset() < next) {
                // The topic was deleted and made again: it is read from its beginning.
                self.known.clear();
            }
            self.next = Some(message.offset() + 1);
            let key = message.key().and_then(|key| std::str::from_utf8(key).ok()).unwrap_or_default();
            if !key.starts_with(&self.prefix) {
                continue;
            }
            let value = message.payload().unwrap_or_default();
            let Some(id) = key.strip_suffix(CLAIM) else {
                let at = message.offset();
                let read = Position::read(value).map_err(|error| format!("record {at} is not a position ({error})"));
                // A record without a value deletes what was said.
                let position = message.payload().map(|_| read);
                self.known.entry(key.to_owned()).or_default().position = position;
                continue;
            };
            let Ok(claim) = serde_json::from_slice::<Claim>(value) else { continue };
            let is_awaited = until.is_some_and(|(awaited, by)| id == awaited && claim.id == by);
            self.known.entry(id.to_owned()).or_default().add(claim);
            if is_awaited {
                break;
            }
        }
        self.reader = Some(Reader { used: Instant::now(), ..reader });
        Ok(())
    }

    /// Closes the connection where no lane has asked for long. What is known stays known.
    pub(super) fn rest(&mut self) {
        if self.reader.as_ref().is_some_and(|reader| reader.used.elapsed() > KEPT_OPEN) {
            self.reader = None;
        }
    }
}

impl Reader {
    fn begin(brokers: &Brokers, next: At) -> Result<Self, Failure> {
        let (client, heard): (BaseConsumer<Heard>, _) = brokers.client(&reading(&brokers.settings.transactional_id))?;
        let mut partitions = TopicPartitionList::new();
        let assigned = partitions
            .add_partition_offset(&brokers.settings.positions_topic, POSITIONS, next)
            .and_then(|()| client.assign(&partitions));
        assigned.map_err(|error| Failure::of(&error, None, &brokers.settings))?;
        Ok(Self { client, heard, used: Instant::now() })
    }

    /// Why nothing more has come.
    fn late(&self, brokers: &Brokers, is_claimed: bool) -> Failure {
        let topic = &brokers.settings.positions_topic;
        if let Some((code, said)) = self.heard.trouble() {
            return Failure::of_code(code, &said, &brokers.settings);
        }
        let message = if is_claimed {
            format!(
                "the claim of this lane cannot be read in {topic} yet: another lane's transaction is open there, until it ends or \
                 has been open for {:?}",
                3 * brokers.settings.timeout
            )
        } else {
            format!("the end of {topic} was not reached within {:?}", brokers.settings.timeout)
        };
        Failure::Away(message)
    }
}

/// The settings of a reader. No group is joined, and no offset is kept in one: the library asks for a name all the same.
pub(super) fn reading(group: &str) -> [(&'static str, &str); 9] {
    [
        ("group.id", group),
        ("isolation.level", "read_committed"),
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("auto.offset.reset", "earliest"),
        ("fetch.wait.max.ms", "100"),
        ("fetch.error.backoff.ms", "50"),
        // It keeps that much in hand.
        ("queued.max.messages.kbytes", "2048"),
        ("queued.min.messages", "1000"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_claim_of_another_instance_counts_only_if_ours_is_known() {
        let claim = |number| Claim { id: Uuid::from_u128(number), instance: Uuid::from_u128(number % 2), epoch: 1 };
        let mut known = Known::default();
        assert_eq!(known.overtaker(&claim(1)), None);
        (1..=20).for_each(|number| known.add(claim(number)));
        assert_eq!(known.overtaker(&claim(19)), Some(&claim(20)));
        assert_eq!(known.overtaker(&claim(13)), Some(&claim(14)));
        assert_eq!(known.overtaker(&claim(20)), None);
        assert_eq!(known.overtaker(&claim(12)), None);
        assert!(known.has_claim(Uuid::from_u128(13)) && !known.has_claim(Uuid::from_u128(12)));
    }

    #[test]
    fn a_position_tells_where_the_records_of_the_lane_ended() {
        let position = Position { ends: vec![(0, 12), (5, 3)], ..Position::default() };
        assert_eq!(Position::read(&body(&position)).unwrap().ends, position.ends);
    }

    #[test]
    fn a_claim_is_told_from_a_position_by_its_key() {
        let id = "channeld.log.7c9e6679-7425-40de-944b-e07fc1f90ae7";
        assert_eq!(claim_key(id).strip_suffix(CLAIM), Some(id));
        assert_eq!(id.strip_suffix(CLAIM), None);
    }
}
