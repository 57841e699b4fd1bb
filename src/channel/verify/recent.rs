//! Remembers recent events, to detect a proof that is shown again elsewhere, and a place whose content changes.
//!
//! The network signs a text and nothing else. The id, the offset and the channel of an event are only the service's claim
//! (spec/wire.md, "The decoded content"). So a valid proof may be an old proof in a new place.
//!
//! * **Duplicate proof**: the same signed report and context under another offset or in another channel. The text does not
//!   identify a proof: several events may legitimately have the same text with different reports.
//! * **Contradiction**: other content at an offset whose event was read before. The content of a verified event is its id
//!   and its signed text, so a new proof or an additional field in the record is no contradiction. The content of a notice
//!   is its id, type, status and the members of its payload, in any order.
//!
//! The event that was read first is the original, with two exceptions. If one channel shows the same proof at two offsets,
//! the lower offset is the original, even if it was read later: the reader may be behind, or the proof may have arrived
//! late. And a notice may become a verified event with the same id when its proof arrives. Between channels only the order
//! of reading decides, until an operator decides: the [`expect`](super::expect) lists of both channels may show which
//! channel has the proof.
//!
//! # Invariants
//!
//! * **Reading an event again raises no alarm,** whether for another lane, a restart, a second look or an operator's retry.
//! * **Only admitted events are remembered.** A forged event cannot cause the rejection of the genuine one.
//! * **Bounded per channel.** [`PROOFS`] proofs and the same number of places are shared among the channels. Each channel
//!   keeps at least its last [`PROOFS_OF_A_CHANNEL`](ledger::PROOFS_OF_A_CHANNEL). At a start, delivered proofs are loaded
//!   from the ledger, but places are not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::verify::expect::{Expect, ProofExpectation};
use crate::verify::workflows::Workflows;
use ledger::{self, Digest, EventLocation, PROOFS};
use net::tasks::lock;
use proof::event::{ChannelId, Event, Offset, RawEvent};
use proof::verify::{Hash as Hash256, Proof, Unsigned};

#[cfg(test)]
mod tests;

/// The recent events of every channel of the process. They survive a reload of the configuration.
#[derive(Debug, Default)]
pub struct RecentEvents {
    /// Has new random keys in each process, so that an attacker cannot prepare contents with the same hash.
    prints: RandomState,
    index: Mutex<EventIndex>,
    /// The number of channels that share the room.
    channels: AtomicUsize,
    pub(crate) workflows: Workflows,
}

/// Why an event is not admitted although its proof is valid or not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Alarm {
    /// Another event of the channel had the same proof.
    #[error("its proof was shown before, at {0}")]
    DuplicateProof(EventLocation),
    /// An event of another channel had the same proof.
    #[error("its proof {digest} was shown before in another channel, at {original}")]
    ProofOfChannel {
        /// The event of the other channel.
        original: EventLocation,
        /// The proof's digest.
        digest: Hash256,
    },
    /// The place had another event before, or the event had other content.
    #[error("a different event, or different content, was shown before at {0}")]
    Contradiction(EventLocation),
}

/// An event that is neither a duplicate nor a contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The later place at which its proof was already admitted. That event was a duplicate of this one.
    pub(crate) duplicate_at: Option<EventLocation>,
    /// Whether it was not admitted with this content before, as far as is remembered.
    pub(crate) is_news: bool,
}

/// The part of a proof's digest that is its key in memory. A digest is a hash, so its parts are as good as random.
type ProofKey = u64;

#[derive(Debug, Default)]
struct EventIndex {
    /// Not a `HashMap`: a full map whose entries are constantly replaced uses three times the memory.
    proofs: BTreeMap<ProofKey, CompactLocation>,
    /// Further places at which an operator allowed the delivery of a proof. At most [`PROOFS`].
    shared: BTreeSet<(ProofKey, EventLocation)>,
    channels: IndexMap<ChannelId, ChannelEvents>,
}

/// A [`EventLocation`] in 12 bytes instead of 24, because many are stored.
#[derive(Clone, Copy, Debug)]
struct CompactLocation {
    /// The position of its channel in the index's channels, which are never removed.
    channel: u32,
    offset: [u8; 8],
}

#[derive(Debug, Default)]
struct ChannelEvents {
    /// Sorted by offset. Not a `BTreeMap`, which uses twice the memory: events are read in ascending order.
    contents: VecDeque<(Offset, ContentHash)>,
    /// Oldest first.
    proofs: VecDeque<ProofKey>,
}

/// An event's id and content, each as 32 bits of a hash. That is enough to detect a change at one offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentHash {
    id: u32,
    /// The last bit is 1 if the text is signed.
    text: u32,
}

impl RecentEvents {
    /// Divides the room among this number of channels.
    pub fn share_among(&self, channels: usize) {
        self.channels.store(channels, Ordering::Relaxed);
    }

    /// Returns how many proofs, and how many places, are remembered per channel.
    pub fn proofs_each(&self) -> usize {
        ledger::proofs_each(self.channels.load(Ordering::Relaxed))
    }

    /// Remembers delivered proofs of a channel's ledger. For each proof that another channel has also shown, returns
    /// the proof's offset and its place in that channel.
    pub(crate) fn remember(&self, channel: ChannelId, proofs: &[ledger::Proof]) -> Vec<(Offset, EventLocation)> {
        let (mut index, capacity) = (self.lock(), self.proofs_each());
        let mut shown_elsewhere = Vec::new();
        for proof in proofs {
            let place = EventLocation { channel_id: channel, offset: proof.offset };
            let print = print_of(&proof.digest);
            match index.place_of(print) {
                Some(known) if known.channel_id != channel => {
                    shown_elsewhere.push((proof.offset, known));
                    index.share(print, place);
                }
                _ => index.add_proof(print, place, capacity),
            }
        }
        shown_elsewhere
    }

    /// Returns the proof of a verified event, unless the proof is known here or the event contradicts a known one.
    pub(crate) fn unknown(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) -> Option<ledger::Proof> {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        let (digest, index) = (digest_of(&proof.digest), self.lock());
        let is_contradiction =
            || index.channels.get(&channel).is_some_and(|recent| recent.contradicts(event.offset, content));
        (!index.proofs.contains_key(&print_of(&digest)) && !is_contradiction())
            .then_some(ledger::Proof { digest, offset: event.offset })
    }

    /// Returns where a proof was shown first, as far as is known.
    pub fn shown_in(&self, digest: &Digest) -> Option<EventLocation> {
        self.lock().place_of(print_of(digest))
    }

    /// Remembers the proofs that channels of other instances have shown, except the proofs that are known here.
    pub(crate) fn learn(&self, shown: &[(Digest, EventLocation)]) {
        let (mut index, capacity) = (self.lock(), self.proofs_each());
        for (digest, place) in shown {
            let print = print_of(digest);
            if !index.proofs.contains_key(&print) {
                index.add_proof(print, *place, capacity);
            }
        }
    }

    /// Admits and remembers a verified event, or returns an alarm.
    pub(crate) fn verified(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) -> Result<Admitted, Alarm> {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        let admitted =
            self.lock().admit(place(channel, event), content, Some(print_of(&proof.digest.0)), self.proofs_each());
        admitted.map_err(|alarm| alarm.seen_from(channel, proof))
    }

    /// Allows an event although another channel has shown its proof first, because an operator decided so.
    pub(crate) fn accept(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) {
        self.lock().share(print_of(&proof.digest.0), place(channel, event));
    }

    /// Remembers a verified event in addition to another one at its offset, because an operator decided that it is correct.
    pub(crate) fn accept_verified(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        self.lock().channels.entry(channel).or_default().accept(event.offset, content);
    }

    pub(crate) fn accept_notice(&self, channel: ChannelId, notice: &Unsigned) {
        let event = notice.event();
        let content = self.content(&event.raw, self.prints.hash_one(NoticeContent::of(event)), false);
        self.lock().channels.entry(channel).or_default().accept(event.raw.offset, content);
    }

    /// Forgets the contents above an offset, because an operator accepted the service's history.
    pub fn forget_above(&self, channel: ChannelId, offset: Option<Offset>) {
        if let Some(recent) = self.lock().channels.get_mut(&channel) {
            recent.contents.retain(|(known, _)| Some(*known) <= offset);
        }
    }

    /// Admits and remembers a notice, or returns an alarm.
    pub(crate) fn notice(&self, channel: ChannelId, notice: &Unsigned) -> Result<Admitted, Alarm> {
        let event = notice.event();
        let content = self.content(&event.raw, self.prints.hash_one(NoticeContent::of(event)), false);
        self.lock().admit(place(channel, &event.raw), content, None, self.proofs_each())
    }

    /// Checks that a verified event that an operator released may be delivered. Returns the place of another channel that has
    /// shown its proof first, if the lists of both channels assign it to this channel. `signed` is its signed text, `expect`
    /// contains its channel's lists, and `of_other` returns the lists of another channel.
    ///
    /// # Errors
    /// The alarm that keeps the event in the quarantine: its proof belongs to another event, or to another channel.
    pub fn belongs(
        &self,
        channel: ChannelId,
        event: &RawEvent,
        proof: &Proof,
        signed: Option<&[u8]>,
        expect: &Expect,
        of_other: impl FnOnce(ChannelId) -> Option<Arc<Expect>>,
    ) -> Result<Option<EventLocation>, Alarm> {
        let place = place(channel, event);
        let known = self.lock().elsewhere(print_of(&proof.digest.0), place);
        let Some(known) = known.filter(|known| is_duplicate(place, *known)) else { return Ok(None) };
        let alarm = Alarm::DuplicateProof(known).seen_from(channel, proof);
        let Alarm::ProofOfChannel { original, .. } = alarm else { return Err(alarm) };
        let other = of_other(original.channel_id);
        let expectation =
            other.map_or(ProofExpectation::Open, |other| other.expectation(original.channel_id, proof, signed));
        if expect.expectation(channel, proof, signed) > expectation { Ok(Some(original)) } else { Err(alarm) }
    }

    fn content(&self, event: &RawEvent, text: u64, is_signed: bool) -> ContentHash {
        ContentHash { id: half(self.prints.hash_one(event.id)), text: half(text) << 1 | u32::from(is_signed) }
    }

    fn lock(&self) -> MutexGuard<'_, EventIndex> {
        lock(&self.index)
    }
}

fn print_of(digest: &[u8]) -> ProofKey {
    ProofKey::from_be_bytes(*digest.first_chunk().expect("a digest is longer"))
}

/// Returns the part of a proof's digest that a ledger stores.
pub(crate) fn digest_of(digest: &Hash256) -> Digest {
    *digest.0.first_chunk().expect("a hash is longer")
}

fn place(channel: ChannelId, event: &RawEvent) -> EventLocation {
    EventLocation { channel_id: channel, offset: event.offset }
}

/// Returns whether a proof at `place` is a duplicate of the same proof at `known`.
fn is_duplicate(place: EventLocation, known: EventLocation) -> bool {
    known != place && !(place.channel_id == known.channel_id && place.offset < known.offset)
}

fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl EventIndex {
    fn admit(
        &mut self,
        place: EventLocation,
        content: ContentHash,
        proof: Option<ProofKey>,
        capacity: usize,
    ) -> Result<Admitted, Alarm> {
        let elsewhere = proof.and_then(|proof| self.elsewhere(proof, place));
        if let Some(known) = elsewhere.filter(|known| is_duplicate(place, *known)) {
            return Err(Alarm::DuplicateProof(known));
        }
        let recent = self.channels.entry(place.channel_id).or_default();
        let known = recent.remember(place.offset, content).map_err(|()| Alarm::Contradiction(place))?;
        while recent.contents.len() > capacity {
            recent.contents.pop_front();
        }
        if let Some(proof) = proof.filter(|proof| !self.shared.contains(&(*proof, place))) {
            self.add_proof(proof, place, capacity);
        }
        Ok(Admitted { duplicate_at: elsewhere, is_news: known != Some(content) })
    }

    fn place_of(&self, print: ProofKey) -> Option<EventLocation> {
        let CompactLocation { channel, offset } = self.proofs.get(&print)?;
        let (channel_id, _) = self.channels.get_index(*channel as usize)?;
        Some(EventLocation { channel_id: *channel_id, offset: Offset::new(i64::from_ne_bytes(*offset))? })
    }

    /// Returns the place where a proof is known, unless the proof is known or allowed at `place`.
    fn elsewhere(&self, proof: ProofKey, place: EventLocation) -> Option<EventLocation> {
        let known = self.place_of(proof).filter(|known| *known != place);
        known.filter(|_| !self.shared.contains(&(proof, place)))
    }

    fn share(&mut self, proof: ProofKey, place: EventLocation) {
        self.shared.insert((proof, place));
        if self.shared.len() > PROOFS {
            self.shared.pop_first();
        }
    }

    fn add_proof(&mut self, print: ProofKey, place: EventLocation, capacity: usize) {
        let entry = self.channels.entry(place.channel_id);
        let channel = u32::try_from(entry.index()).expect("fewer than 2^32 channels are configured");
        let recent = entry.or_default();
        let shown = CompactLocation { channel, offset: place.offset.get().to_ne_bytes() };
        if self.proofs.insert(print, shown).is_none() {
            recent.proofs.push_back(print);
        }
        while recent.proofs.len() > capacity
            && let Some(oldest) = recent.proofs.pop_front()
        {
            self.proofs.remove(&oldest);
        }
    }
}

impl ChannelEvents {
    /// Returns the index range of an offset's contents: none, one, or several if an operator has accepted them.
    fn at(&self, offset: Offset) -> Range<usize> {
        let begin = self.contents.partition_point(|(known, _)| *known < offset);
        let count = self.contents.range(begin..).take_while(|(known, _)| *known == offset).count();
        begin..begin + count
    }

    /// Returns the known content of an offset that can have become this content.
    fn known(&mut self, offset: Offset, content: ContentHash) -> Option<&mut ContentHash> {
        let at = self.at(offset);
        self.contents.range_mut(at).map(|(_, known)| known).find(|known| known.may_become(content))
    }

    /// Returns whether an offset has only contents that cannot have become this content.
    fn contradicts(&self, offset: Offset, content: ContentHash) -> bool {
        let at = self.at(offset);
        !at.is_empty() && !self.contents.range(at).any(|(_, known)| known.may_become(content))
    }

    /// Remembers the content of an offset, and returns its known content. Refuses a contradicting content.
    fn remember(&mut self, offset: Offset, content: ContentHash) -> Result<Option<ContentHash>, ()> {
        if let Some(known) = self.known(offset, content) {
            return Ok(Some(std::mem::replace(known, content)));
        }
        let at = self.at(offset);
        if !at.is_empty() {
            return Err(());
        }
        self.contents.insert(at.start, (offset, content));
        Ok(None)
    }

    /// Remembers the content of an offset in addition to the known contents.
    fn accept(&mut self, offset: Offset, content: ContentHash) {
        if self.remember(offset, content).is_err() {
            let at = self.at(offset);
            self.contents.insert(at.end, (offset, content));
        }
    }
}

impl ContentHash {
    fn is_signed(self) -> bool {
        self.text & 1 == 1
    }

    fn may_become(self, later: Self) -> bool {
        let proved = !self.is_signed() && later.is_signed();
        self == later || (self.id == later.id && proved)
    }
}

impl Alarm {
    /// Converts the alarm to [`Alarm::ProofOfChannel`] if the original is in another channel.
    fn seen_from(self, channel: ChannelId, proof: &Proof) -> Self {
        match self {
            Self::DuplicateProof(original) if original.channel_id != channel => {
                Self::ProofOfChannel { original, digest: proof.digest }
            }
            other => other,
        }
    }
}

#[derive(Hash)]
struct NoticeContent<'a> {
    kind: &'a str,
    status: Option<&'a str>,
    /// Each member as written, so that no number is rounded.
    payload: BTreeMap<String, &'a str>,
    /// The whole record, if its payload is not an object.
    otherwise: Option<&'a [u8]>,
}

impl<'a> NoticeContent<'a> {
    fn of(event: &'a Event) -> Self {
        #[derive(Deserialize)]
        struct Notice<'n> {
            #[serde(borrow)]
            payload: BTreeMap<String, &'n RawValue>,
        }
        let json = &event.raw.json;
        let payload = serde_json::from_slice::<Notice<'_>>(json).map(|notice| notice.payload);
        let otherwise = payload.is_err().then_some(&json[..]);
        let members = payload.into_iter().flatten().map(|(name, value)| (name, value.get()));
        Self {
            kind: event.kind.as_ref(),
            status: event.payload.status.as_deref(),
            payload: members.collect(),
            otherwise,
        }
    }
}
