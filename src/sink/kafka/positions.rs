//! The positions and claims of lanes, read from the topic of positions.
//!
//! # Invariants
//!
//! * **In order.** Records are read in their order. A position replaces the previous position of the same lane.
//! * **Bounded.** For each lane of this sink, one position and the last eight claims are kept. Records of other sinks are not
//!   kept.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rdkafka::Offset as At;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message as _;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::brokers::{Brokers, ClientReports};
use super::error;
use super::producer::POSITIONS;
use crate::{Fault, SinkError, stream};

/// The suffix after a lane's transactional id in the key of its claims.
const CLAIM: &str = "/claim";

/// How many claims of a lane are kept. Several are needed, because several instances may claim a lane at the same time, and
/// each must find its own claim.
const CLAIMS: usize = 8;

/// How long the connection stays open after the last lane has read the topic.
pub(super) const KEPT_OPEN: Duration = Duration::from_secs(30);

/// A position, and the offsets of the lane's last records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    #[serde(flatten, deserialize_with = "stream::Position::read")]
    pub(super) lane: stream::Position,
    /// The offset of the last record that the lane had produced before the last delivery, for each partition of the topic of
    /// events. If a partition ends before this offset, the topic was deleted and created again, or truncated.
    #[serde(default)]
    pub(super) ends: Vec<(i32, i64)>,
}

/// A claim: the record that an instance has taken a lane over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Takeover {
    pub(super) id: Uuid,
    /// Identifies the run of the process.
    pub(super) instance: Uuid,
    /// The epoch of the lease. The instance compares this epoch with its current lease, to detect that it has already
    /// claimed the lane under this lease. Other instances do not use it.
    pub(super) epoch: u64,
}

pub(super) fn claim_key(id: &str) -> String {
    format!("{id}{CLAIM}")
}

/// The last position and the last claims of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneRecords {
    /// The position, or why its record cannot be read.
    pub(super) position: Option<Result<Position, String>>,
    claims: VecDeque<Takeover>,
}

impl LaneRecords {
    /// The first claim of another instance after `ours`. `None` if the topic does not contain `ours`: the topic was then
    /// restored to an earlier state, and this instance does not yield to the older claims there.
    pub(super) fn overtaker(&self, ours: &Takeover) -> Option<&Takeover> {
        let mut later = self.claims.iter().skip_while(|claim| claim.id != ours.id);
        later.find(|claim| claim.instance != ours.instance)
    }

    pub(super) fn has_claim_of_other(&self, instance: Uuid) -> bool {
        self.claims.iter().any(|claim| claim.instance != instance)
    }

    fn has_claim(&self, id: Uuid) -> bool {
        self.claims.iter().any(|claim| claim.id == id)
    }

    fn add(&mut self, claim: Takeover) {
        self.claims.push_back(claim);
        if self.claims.len() > CLAIMS {
            self.claims.pop_front();
        }
    }
}

/// The content of the topic, up to the last record that was read.
pub(super) struct Positions {
    /// The prefix of the keys of this sink.
    prefix: String,
    known: HashMap<String, LaneRecords>,
    /// The offset of the next record; `None` before the first one.
    next: Option<i64>,
    /// The client that reads, and when a lane used it last.
    reader: Option<(BaseConsumer<ClientReports>, Instant)>,
}

impl Positions {
    /// Makes a reader of the lanes whose transactional ids have this prefix.
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix, known: HashMap::new(), next: None, reader: None }
    }

    pub(super) fn of(&self, id: &str) -> LaneRecords {
        self.known.get(id).cloned().unwrap_or_default()
    }

    /// Reads up to the claim `until` of a lane. If `until` is `None`, reads up to the stable end.
    pub(super) fn read(&mut self, brokers: &Brokers, until: Option<(&str, Uuid)>) -> Result<(), SinkError> {
        match until {
            // A reader that has reached the end before does not report the end again, so a new one is made.
            None => self.reader = None,
            // The positions are shared, so another lane may already have read the claim.
            Some((id, claim)) if self.known.get(id).is_some_and(|known| known.has_claim(claim)) => return Ok(()),
            Some(_) => {}
        }
        let deadline = Instant::now() + brokers.settings.timeout;
        let client = if let Some((client, _)) = self.reader.take() {
            client
        } else {
            let (client, topic) = (brokers.reader()?, &brokers.settings.positions_topic);
            brokers.assign(&client, topic, [POSITIONS], self.next.map_or(At::Beginning, At::Offset))?;
            client
        };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = match client.poll(left) {
                None if left.is_zero() => return Err(late(brokers, &client, until.is_some())),
                None => continue,
                Some(Err(KafkaError::PartitionEOF(_))) if until.is_none() => break,
                // A refused consumer group is ignored, because no group is used. A temporary error is ignored because the
                // brokers may be reachable again before the deadline.
                Some(Err(error)) => match brokers.error(&error) {
                    _ if error.rdkafka_error_code() == Some(Code::GroupAuthorizationFailed) => continue,
                    error if error.fault() == Fault::Target => continue,
                    error => return Err(error),
                },
                Some(Ok(message)) => message,
            };
            if self.next.is_some_and(|next| message.offset() < next) {
                // The topic was deleted and created again, and is now read from its beginning.
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
                let read =
                    serde_json::from_slice(value).map_err(|error| format!("record {at} is not a position ({error})"));
                // A record without a value deletes the position.
                let position = message.payload().map(|_| read);
                self.known.entry(key.to_owned()).or_default().position = position;
                continue;
            };
            let Ok(claim) = serde_json::from_slice::<Takeover>(value) else { continue };
            let is_awaited = until.is_some_and(|(awaited, by)| id == awaited && claim.id == by);
            self.known.entry(id.to_owned()).or_default().add(claim);
            if is_awaited {
                break;
            }
        }
        self.reader = Some((client, Instant::now()));
        Ok(())
    }

    /// Closes the connection if no lane has used it for [`KEPT_OPEN`]. The positions and claims that were read are kept.
    pub(super) fn rest(&mut self) {
        self.reader.take_if(|(_, used)| used.elapsed() > KEPT_OPEN);
    }
}

/// The failure if no further record arrives before the deadline.
fn late(brokers: &Brokers, client: &BaseConsumer<ClientReports>, is_claimed: bool) -> SinkError {
    let topic = &brokers.settings.positions_topic;
    if let Some((code, said)) = client.context().read().trouble {
        return error::of_code(code, &said, &brokers.settings);
    }
    let message = if is_claimed {
        format!(
            "the lease number of this lane cannot be read in {topic} yet: another lane's transaction is open there, for at most {:?}",
            3 * brokers.settings.timeout
        )
    } else {
        format!("the end of {topic} was not reached within {:?}", brokers.settings.timeout)
    };
    SinkError::away(message)
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_foreign_claim_counts_only_if_ours_is_known() {
        let claim = |number| Takeover { id: Uuid::from_u128(number), instance: Uuid::from_u128(number % 2), epoch: 1 };
        let mut known = LaneRecords::default();
        assert_eq!(known.overtaker(&claim(1)), None);
        (1..=20).for_each(|number| known.add(claim(number)));
        assert_eq!(known.overtaker(&claim(19)), Some(&claim(20)));
        assert_eq!(known.overtaker(&claim(13)), Some(&claim(14)));
        assert_eq!(known.overtaker(&claim(20)), None);
        assert_eq!(known.overtaker(&claim(12)), None);
        assert!(known.has_claim(Uuid::from_u128(13)) && !known.has_claim(Uuid::from_u128(12)));
        assert!(known.has_claim_of_other(Uuid::from_u128(0)));
        let mut known = LaneRecords::default();
        known.add(claim(2));
        assert!(!known.has_claim_of_other(Uuid::from_u128(0)) && known.has_claim_of_other(Uuid::from_u128(1)));
    }

    #[test]
    fn a_position_contains_the_end_of_the_lanes_records() {
        let position = Position { ends: vec![(0, 12), (5, 3)], ..Position::default() };
        assert_eq!(serde_json::from_slice::<Position>(&stream::json(&position)).unwrap().ends, position.ends);
    }

    #[test]
    fn claims_and_positions_have_different_keys() {
        let id = "channeld.log.7c9e6679-7425-40de-944b-e07fc1f90ae7";
        assert_eq!(claim_key(id).strip_suffix(CLAIM), Some(id));
        assert_eq!(id.strip_suffix(CLAIM), None);
    }
}
