//! Remembers recent events, to detect two things: a proof that is shown again at another location, and a location at which
//! other content is shown later. A location is an offset in a channel.
//!
//! The signatures cover only a text. The id, the offset and the channel of an event are not signed: the service only claims
//! them (spec/wire.md, "The decoded content"). A valid proof can therefore be an old proof at a new location.
//!
//! * **Duplicate proof**: the same signed report and context, at another offset or in another channel. The text alone does
//!   not identify a proof, because several events may legitimately have the same text with different reports.
//! * **Contradiction**: other content at an offset whose event was read before. The content of a verified event is its id and
//!   its signed text. A new proof, or an additional field outside the signed text, is therefore no contradiction. The content
//!   of a notice is its id, type, status and the members of its payload, in any order.
//!
//! The event that was read first is the original, with two exceptions:
//!
//! * If one channel shows the same proof at two offsets, the event at the lower offset is the original, even if it was read
//!   after the other event. This happens if its reader is behind, or if its proof arrived late.
//! * A notice may become a verified event with the same id when its proof arrives.
//!
//! If two channels show the same proof, the channel that was read first has the original. An operator can change this with
//! the [`expect`](super::expect) lists of both channels, if the lists show which channel the proof belongs to.
//!
//! # Invariants
//!
//! * **Reading an event again raises no alarm.** Events are read again for another lane, after a restart, after a rejection,
//!   or when an operator retries them.
//! * **Only admitted events are remembered.** A forged event cannot cause the rejection of the genuine one.
//! * **Bounded per channel.** In total, [`PROOFS`] proofs and the contents of [`PROOFS`] locations are remembered. The
//!   channels share this room equally, but each channel has room for at least
//!   [`PROOFS_OF_A_CHANNEL`](ledger::PROOFS_OF_A_CHANNEL). At a start, the delivered proofs are loaded from the ledger. The
//!   contents are not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
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

/// The recent events of all channels of the process. They are kept when the configuration is reloaded.
#[derive(Debug, Default)]
pub struct RecentEvents {
    /// Hashes contents with random keys that are new in each process, so that an attacker cannot prepare two contents with
    /// the same hash.
    prints: RandomState,
    index: Mutex<EventIndex>,
    /// The number of channels that share the room.
    channels: AtomicUsize,
    pub(crate) workflows: Workflows,
}

/// Why an event is not admitted, although the event is verified or is a notice.
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
    /// Another event, or other content of the event, was shown before at this location.
    #[error("a different event, or different content, was shown before at {0}")]
    Contradiction(EventLocation),
}

/// The result for an event that is neither a duplicate nor a contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// If the event's proof was already admitted at a higher offset, the location there. The event at that location is a
    /// duplicate of this event.
    pub(crate) duplicate_at: Option<EventLocation>,
    /// Whether the event is admitted with this content for the first time, as far as is remembered.
    pub(crate) is_news: bool,
}

/// The first bytes of a proof's digest, as the key of the proof in memory. Parts of a digest are as good as random, because a
/// digest is a hash.
type ProofKey = u64;

#[derive(Debug, Default)]
struct EventIndex {
    /// A `HashMap` would use three times the memory when it is full and its entries are constantly replaced.
    proofs: BTreeMap<ProofKey, CompactLocation>,
    /// Further locations at which an operator allowed the delivery of a proof. At most [`PROOFS`].
    shared: BTreeSet<(ProofKey, EventLocation)>,
    channels: IndexMap<ChannelId, ChannelEvents>,
}

/// An [`EventLocation`] in 12 bytes instead of 24, because many locations are stored.
#[derive(Clone, Copy, Debug)]
struct CompactLocation {
    /// The position of the location's channel in [`EventIndex::channels`]. Channels are never removed from it.
    channel: u32,
    offset: [u8; 8],
}

#[derive(Debug, Default)]
struct ChannelEvents {
    /// Sorted by offset. A `BTreeMap` would use twice the memory, and is not needed, because most events are read in
    /// ascending order.
    contents: VecDeque<(Offset, ContentHash)>,
    /// The remembered proofs that this channel showed, the oldest first.
    proofs: VecDeque<ProofKey>,
}

/// A proof that is admitted.
#[derive(Clone, Copy, Debug)]
struct ShownProof {
    print: ProofKey,
    /// Whether a replay shows the proof. It is then older than every other proof of its channel.
    replayed: bool,
}

impl ShownProof {
    fn new(print: ProofKey) -> Self {
        Self { print, replayed: false }
    }
}

/// An event's id and text, each as 32 bits of a hash. This is enough to detect a change at one offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentHash {
    id: u32,
    /// The last bit of `text` is 1 if the text is signed.
    text: u32,
}

impl RecentEvents {
    /// Sets the number of channels that share the room.
    pub fn share_among(&self, channels: usize) {
        self.channels.store(channels, Ordering::Relaxed);
    }

    /// Returns the maximum number of proofs that are remembered per channel. The same number of locations is remembered with
    /// their contents.
    pub fn proofs_each(&self) -> usize {
        ledger::proofs_each(self.channels.load(Ordering::Relaxed))
    }

    /// Remembers the delivered proofs from a channel's ledger. For each proof that another channel has shown too, returns the
    /// proof's offset in this channel and its location in the other channel.
    pub(crate) fn remember(&self, channel: ChannelId, proofs: &[ledger::Proof]) -> Vec<(Offset, EventLocation)> {
        let (mut index, capacity) = (self.lock(), self.proofs_each());
        let mut shown_elsewhere = Vec::new();
        for proof in proofs {
            let location = EventLocation { channel_id: channel, offset: proof.offset };
            let print = print_of(&proof.digest);
            match index.location_of(print) {
                Some(known) if known.channel_id != channel => {
                    shown_elsewhere.push((proof.offset, known));
                    index.share(print, location);
                }
                _ => index.add_proof(ShownProof::new(print), location, capacity),
            }
        }
        shown_elsewhere
    }

    /// Returns the proof of a verified event. Returns `None` if this process already knows the proof, or if the event
    /// contradicts a known event.
    pub(crate) fn unknown(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) -> Option<ledger::Proof> {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        let (digest, index) = (digest_of(&proof.digest), self.lock());
        let is_contradiction =
            || index.channels.get(&channel).is_some_and(|recent| recent.contradicts(event.offset, content));
        (!index.proofs.contains_key(&print_of(&digest)) && !is_contradiction())
            .then_some(ledger::Proof { digest, offset: event.offset })
    }

    /// Returns the location at which a proof was first shown, as far as is known.
    pub fn shown_in(&self, digest: &Digest) -> Option<EventLocation> {
        self.lock().location_of(print_of(digest))
    }

    /// Remembers proofs that channels of other instances have shown. A proof that this process already knows keeps its known
    /// location.
    pub(crate) fn learn(&self, shown: &[(Digest, EventLocation)]) {
        let (mut index, capacity) = (self.lock(), self.proofs_each());
        for (digest, location) in shown {
            let print = print_of(digest);
            if !index.proofs.contains_key(&print) {
                index.add_proof(ShownProof::new(print), *location, capacity);
            }
        }
    }

    /// Admits and remembers a verified event, or returns an alarm. A new proof of a replayed event counts as the oldest proof
    /// of the channel.
    pub(crate) fn verified(
        &self,
        channel: ChannelId,
        event: &RawEvent,
        proof: &Proof,
        replayed: bool,
    ) -> Result<Admitted, Alarm> {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        let shown = ShownProof { print: print_of(&proof.digest.0), replayed };
        let admitted = self.lock().admit(location(channel, event), content, Some(shown), self.proofs_each());
        admitted.map_err(|alarm| alarm.seen_from(channel, proof))
    }

    /// Allows an event whose proof another channel has shown first, because an operator decided that the event belongs to
    /// this channel.
    pub(crate) fn accept(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) {
        self.lock().share(print_of(&proof.digest.0), location(channel, event));
    }

    /// Remembers a verified event in addition to another event at the same offset, because an operator decided that the event
    /// is correct.
    pub(crate) fn accept_verified(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        self.lock().channels.entry(channel).or_default().accept(event.offset, content);
    }

    pub(crate) fn accept_notice(&self, channel: ChannelId, notice: &Unsigned) {
        let event = notice.event();
        let content = self.content(&event.raw, self.notice_text(event), false);
        self.lock().channels.entry(channel).or_default().accept(event.raw.offset, content);
    }

    /// Forgets the contents above an offset. Used when an operator has accepted the service's changed history.
    pub fn forget_above(&self, channel: ChannelId, offset: Option<Offset>) {
        if let Some(recent) = self.lock().channels.get_mut(&channel) {
            recent.contents.retain(|(known, _)| Some(*known) <= offset);
        }
    }

    /// Admits and remembers a notice, or returns an alarm.
    pub(crate) fn notice(&self, channel: ChannelId, notice: &Unsigned) -> Result<Admitted, Alarm> {
        let event = notice.event();
        let content = self.content(&event.raw, self.notice_text(event), false);
        self.lock().admit(location(channel, &event.raw), content, None, self.proofs_each())
    }

    /// Checks whether a verified event that an operator released may be delivered. Usually returns `None`. Returns the
    /// location in another channel if that channel has shown the proof first, but the lists of both channels assign the proof
    /// to this channel.
    ///
    /// `signed` is the JSON in the event's signed text. `expect` contains the lists of the event's channel, and `of_other`
    /// returns the lists of another channel.
    ///
    /// # Errors
    /// The alarm that keeps the event in the quarantine, because the event's proof belongs to another event or to another
    /// channel.
    pub fn belongs(
        &self,
        channel: ChannelId,
        event: &RawEvent,
        proof: &Proof,
        signed: Option<&[u8]>,
        expect: &Expect,
        of_other: impl FnOnce(ChannelId) -> Option<Arc<Expect>>,
    ) -> Result<Option<EventLocation>, Alarm> {
        let location = location(channel, event);
        let known = self.lock().elsewhere(print_of(&proof.digest.0), location);
        let Some(known) = known.filter(|known| is_duplicate(location, *known)) else { return Ok(None) };
        let alarm = Alarm::DuplicateProof(known).seen_from(channel, proof);
        let Alarm::ProofOfChannel { original, .. } = alarm else { return Err(alarm) };
        let other = of_other(original.channel_id);
        let expectation =
            other.map_or(ProofExpectation::Open, |other| other.expectation(original.channel_id, proof, signed));
        if expect.expectation(channel, proof, signed) > expectation { Ok(Some(original)) } else { Err(alarm) }
    }

    fn content(&self, event: &RawEvent, text: u64, is_signed: bool) -> ContentHash {
        let half = |hash: u64| (hash >> 32) as u32;
        ContentHash { id: half(self.prints.hash_one(event.id)), text: half(text) << 1 | u32::from(is_signed) }
    }

    /// Returns a hash of a notice's type, status, and payload. Each member of the payload is hashed as it is written, so that
    /// no number is rounded. If the payload is not an object, the whole record is hashed.
    fn notice_text(&self, event: &Event) -> u64 {
        #[derive(Deserialize)]
        struct Notice<'n> {
            #[serde(borrow)]
            payload: BTreeMap<String, &'n RawValue>,
        }
        let kind: &str = event.kind.as_ref();
        let json = &event.raw.json[..];
        let payload = serde_json::from_slice::<Notice<'_>>(json).ok().map(|notice| notice.payload);
        let otherwise = payload.is_none().then_some(json);
        let members: Vec<_> = payload.into_iter().flatten().map(|(name, value)| (name, value.get())).collect();
        self.prints.hash_one((kind, event.payload.status.as_deref(), members, otherwise))
    }

    fn lock(&self) -> MutexGuard<'_, EventIndex> {
        lock(&self.index)
    }
}

fn print_of(digest: &[u8]) -> ProofKey {
    ProofKey::from_be_bytes(*digest.first_chunk().expect("a digest is longer"))
}

/// Returns the first part of a proof's digest. A ledger stores only this part.
pub(crate) fn digest_of(digest: &Hash256) -> Digest {
    *digest.0.first_chunk().expect("a hash is longer")
}

fn location(channel: ChannelId, event: &RawEvent) -> EventLocation {
    EventLocation { channel_id: channel, offset: event.offset }
}

/// Returns whether the proof at `location` is a duplicate, if the same proof was already shown at `known`.
fn is_duplicate(location: EventLocation, known: EventLocation) -> bool {
    known != location && !(location.channel_id == known.channel_id && location.offset < known.offset)
}

impl EventIndex {
    fn admit(
        &mut self,
        location: EventLocation,
        content: ContentHash,
        proof: Option<ShownProof>,
        capacity: usize,
    ) -> Result<Admitted, Alarm> {
        let elsewhere = proof.and_then(|proof| self.elsewhere(proof.print, location));
        if let Some(known) = elsewhere.filter(|known| is_duplicate(location, *known)) {
            return Err(Alarm::DuplicateProof(known));
        }
        let recent = self.channels.entry(location.channel_id).or_default();
        let known = recent.remember(location.offset, content).map_err(|()| Alarm::Contradiction(location))?;
        while recent.contents.len() > capacity {
            recent.contents.pop_front();
        }
        if let Some(proof) = proof.filter(|proof| !self.shared.contains(&(proof.print, location))) {
            self.add_proof(proof, location, capacity);
        }
        Ok(Admitted { duplicate_at: elsewhere, is_news: known != Some(content) })
    }

    fn location_of(&self, print: ProofKey) -> Option<EventLocation> {
        let CompactLocation { channel, offset } = self.proofs.get(&print)?;
        let (channel_id, _) = self.channels.get_index(*channel as usize)?;
        Some(EventLocation { channel_id: *channel_id, offset: Offset::new(i64::from_ne_bytes(*offset))? })
    }

    /// Returns the known location of a proof. Returns `None` if the proof is unknown, known at `location` itself, or allowed
    /// at `location`.
    fn elsewhere(&self, proof: ProofKey, location: EventLocation) -> Option<EventLocation> {
        let known = self.location_of(proof).filter(|known| *known != location);
        known.filter(|_| !self.shared.contains(&(proof, location)))
    }

    fn share(&mut self, proof: ProofKey, location: EventLocation) {
        self.shared.insert((proof, location));
        if self.shared.len() > PROOFS {
            self.shared.pop_first();
        }
    }

    fn add_proof(&mut self, proof: ShownProof, location: EventLocation, capacity: usize) {
        let ShownProof { print, replayed } = proof;
        let entry = self.channels.entry(location.channel_id);
        let channel = u32::try_from(entry.index()).expect("fewer than 2^32 channels are configured");
        let recent = entry.or_default();
        let shown = CompactLocation { channel, offset: location.offset.get().to_ne_bytes() };
        if self.proofs.insert(print, shown).is_none() {
            if replayed {
                // The proof is old. If the room is full, this proof is evicted below, and no newer one.
                recent.proofs.push_front(print);
            } else {
                recent.proofs.push_back(print);
            }
        }
        while recent.proofs.len() > capacity
            && let Some(oldest) = recent.proofs.pop_front()
        {
            self.proofs.remove(&oldest);
        }
    }
}

impl ChannelEvents {
    /// Returns the range of indexes at which the contents of an offset are stored. An offset has several contents only if an
    /// operator accepted them.
    fn at(&self, offset: Offset) -> Range<usize> {
        let begin = self.contents.partition_point(|(known, _)| *known < offset);
        let count = self.contents.range(begin..).take_while(|(known, _)| *known == offset).count();
        begin..begin + count
    }

    /// Returns whether contents of the offset are known, but none of them may become the given content.
    fn contradicts(&self, offset: Offset, content: ContentHash) -> bool {
        let at = self.at(offset);
        !at.is_empty() && !self.contents.range(at).any(|(_, known)| known.may_become(content))
    }

    /// Remembers the content of an offset. If it replaces a known content, returns the known content. Fails if it contradicts
    /// the known contents.
    fn remember(&mut self, offset: Offset, content: ContentHash) -> Result<Option<ContentHash>, ()> {
        let at = self.at(offset);
        let mut contents = self.contents.range_mut(at.clone()).map(|(_, known)| known);
        if let Some(known) = contents.find(|known| known.may_become(content)) {
            return Ok(Some(std::mem::replace(known, content)));
        }
        if !at.is_empty() {
            return Err(());
        }
        self.contents.insert(at.start, (offset, content));
        Ok(None)
    }

    /// Remembers the content of an offset, in addition to the known contents if it contradicts them.
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
