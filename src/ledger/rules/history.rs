//! The newest events that a channel has read, and the proofs that it delivered recently. Both are remembered across
//! restarts.
//!
//! The service can be restored from a backup. The service then returns other events at offsets that were read before,
//! and its answers contain no sign of the restoration. The newest events are therefore remembered by offset, id and
//! proof, and compared with the service's history.
//!
//! The proofs of a commit are stored as one entry. If the number of proofs exceeds the capacity, the oldest entries are
//! removed.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::entry::UnreadableValue;
use super::key::{Changes, Key};
use proof::event::{EventId, EventKey, Offset};

/// The number of remembered events of a channel.
pub const HISTORY: usize = 64;

/// The packed length of an event: its offset, the offset that was read before it, its id and its digest.
const LENGTH: usize = 8 + 8 + 16 + 16;

/// Represents an absent offset. A real offset is never negative.
const NO_OFFSET: i64 = -1;

/// An event that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownEvent {
    /// The key of the event.
    pub key: EventKey,
    /// The offset that was read before this one. No event was visible between the two. `None` if this was the channel's
    /// first event.
    pub previous: Option<Offset>,
    /// The proof of a verified event.
    pub digest: Option<Digest>,
}

/// The service's history differs from the events that were read. New events are quarantined until an operator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contradiction {
    /// The offset at which the service's history and the events that were read differ.
    pub offset: Offset,
    /// The event that was read at this offset.
    pub known: Option<EventId>,
    /// The event that the service returns at this offset now. `None` if the service returns no event there.
    pub found: Option<EventId>,
    /// The highest remembered offset at which the service still has the same event. `None` if the service has none of
    /// the remembered events.
    pub agrees_through: Option<Offset>,
    /// When the difference was found, in Unix seconds.
    pub since: i64,
}

/// The newest [`HISTORY`] events, by offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(BTreeMap<EventKey, KnownEvent>);

impl History {
    /// The remembered events in ascending order.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &KnownEvent> + Clone {
        self.0.values()
    }

    /// The last offset that was read.
    pub fn last(&self) -> Option<Offset> {
        self.0.last_key_value().map(|(key, _)| key.offset)
    }

    /// The remembered events at an offset. Two events are possible only if an operator has accepted both.
    pub fn at(&self, offset: Offset) -> impl Iterator<Item = &KnownEvent> {
        self.0.range(EventKey::first_at(offset)..=EventKey::last_at(offset)).map(|(_, event)| event)
    }

    /// Adds events. If more than [`HISTORY`] events are then remembered, forgets the events with the lowest offsets.
    pub fn add(&mut self, events: impl IntoIterator<Item = KnownEvent>) {
        self.0.extend(events.into_iter().map(|event| (event.key, event)));
        while self.0.len() > HISTORY {
            self.0.pop_first();
        }
    }

    /// Forgets the events above an offset, because an operator accepted the service's events there.
    pub(super) fn forget_above(&mut self, offset: Option<Offset>) {
        self.0.retain(|key, _| Some(key.offset) <= offset);
    }

    pub(super) fn pack(&self) -> Bytes {
        let number = |offset: Option<Offset>| offset.map_or(NO_OFFSET, Offset::get).to_be_bytes();
        let event = |KnownEvent { key, previous, digest }: &KnownEvent| {
            let id = key.id.map_or(Uuid::nil(), |id| id.0);
            [&number(Some(key.offset))[..], &number(*previous), id.as_bytes(), &digest.unwrap_or_default()].concat()
        };
        self.events().flat_map(event).collect()
    }

    pub(super) fn unpack(packed: &[u8]) -> Result<Self, UnreadableValue> {
        let (events, rest) = packed.as_chunks::<LENGTH>();
        let events = events.iter().map(unpack_event).collect::<Option<BTreeMap<_, _>>>();
        let events = events.filter(|_| rest.is_empty());
        events.map(Self).ok_or(UnreadableValue)
    }
}

fn unpack_event(packed: &[u8; LENGTH]) -> Option<(EventKey, KnownEvent)> {
    let (offset, rest) = packed.split_first_chunk::<8>()?;
    let (previous, rest) = rest.split_first_chunk::<8>()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let digest: Digest = rest.try_into().ok()?;
    let key = EventKey {
        offset: Offset::new(i64::from_be_bytes(*offset))?,
        id: Some(Uuid::from_bytes(*id)).filter(|id| !id.is_nil()).map(EventId),
    };
    let digest = Some(digest).filter(|digest| *digest != Digest::default());
    Some((key, KnownEvent { key, previous: Offset::new(i64::from_be_bytes(*previous)), digest }))
}

/// The packed length of a proof: a digest and an offset.
const PROOF_LENGTH: usize = 16 + 8;

/// Identifies a proof: the first 16 bytes of the signed digest. A collision by chance is practically impossible.
pub type Digest = [u8; 16];

/// Parses the hexadecimal digest of a proof and returns the bytes that identify it.
pub(super) fn digest_from(text: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    hex::decode_to_slice(text.strip_prefix("0x")?.get(..2 * digest.len())?, &mut digest).ok()?;
    Some(digest)
}

/// A proof that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Its digest.
    pub digest: Digest,
    /// The offset of the event that it proved.
    pub offset: Offset,
}

/// The stored entries of delivered proofs: one entry for each commit that delivered any.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// For each entry, oldest first: the number in its key, and how many proofs it contains.
    numbers: VecDeque<(u64, usize)>,
    proofs: usize,
    pub(super) capacity: usize,
}

impl Chunks {
    pub(super) fn remembering(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.proofs == 0
    }

    /// Adds an entry from the store. Must be called in the order of the entry numbers.
    pub(super) fn load(&mut self, number: u64, value: &[u8]) -> Result<Vec<Proof>, UnreadableValue> {
        let proofs = unpack(value).ok_or(UnreadableValue)?;
        self.numbers.push_back((number, proofs.len()));
        self.proofs += proofs.len();
        Ok(proofs)
    }

    pub(super) fn add(&mut self, proofs: &[Proof], changes: &mut Changes) {
        if proofs.is_empty() {
            return;
        }
        let number = self.numbers.back().map_or(0, |(last, _)| last + 1);
        changes.push((Key::Proofs(number), Some(pack(proofs))));
        self.numbers.push_back((number, proofs.len()));
        self.proofs += proofs.len();
        while let Some((oldest, count)) = self.numbers.front().copied()
            && self.proofs - count >= self.capacity
        {
            self.numbers.pop_front();
            self.proofs -= count;
            changes.push((Key::Proofs(oldest), None));
        }
    }
}

fn pack(proofs: &[Proof]) -> Bytes {
    proofs
        .iter()
        .flat_map(|Proof { digest, offset }| digest.iter().copied().chain(offset.get().to_be_bytes()))
        .collect()
}

fn unpack(packed: &[u8]) -> Option<Vec<Proof>> {
    let (proofs, rest) = packed.as_chunks::<PROOF_LENGTH>();
    let proof = |packed: &[u8; PROOF_LENGTH]| {
        let (digest, offset) = packed.split_first_chunk()?;
        Some(Proof { digest: *digest, offset: Offset::new(i64::from_be_bytes(offset.try_into().ok()?))? })
    };
    if rest.is_empty() { proofs.iter().map(proof).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(offset: i64) -> KnownEvent {
        let offset = Offset::new(offset).unwrap();
        let id = (offset.get() % 3 > 0).then(|| EventId(Uuid::from_u128(offset.get().unsigned_abs().into())));
        let digest = (offset.get() % 2 > 0).then_some([7; 16]);
        KnownEvent { key: EventKey { offset, id }, previous: offset.before(), digest }
    }

    #[test]
    fn the_newest_events_are_remembered_and_read_back() {
        let mut history = History::default();
        history.add((0..100).map(known));
        assert!(history.events().copied().eq((36..100).map(known)));
        assert_eq!(History::unpack(&history.pack()).unwrap(), history);
        assert!(History::unpack(&history.pack()[1..]).is_err());

        history.forget_above(Offset::new(40));
        assert!(history.events().copied().eq((36..=40).map(known)));
        history.forget_above(None);
        assert_eq!(history, History::default());
    }
}
