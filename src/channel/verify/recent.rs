//! The events that were read lately. They show a proof that comes again elsewhere, and a place whose content changes.
//!
//! The network signs a text and nothing else: under which id, at which offset and in which channel an event stands is
//! the service's claim (spec/wire.md, "The decoded content"). So a proof that holds may be an old proof in a new place.
//!
//! * **Duplicate proof**: the same proof under another offset or in another channel. What was signed, report and context,
//!   is the proof's identity. The text is not: several events may rightly carry the same text with reports of their own.
//! * **Contradiction**: other content under an offset whose event was read before. Of a verified event the content is its
//!   id and its signed text, so that a proof made anew, or a field more in the record, is no contradiction. Of a notice it
//!   is id, type, status and the members of its payload, in any order.
//!
//! The event that was read first is the original, with two exceptions. In one channel the lower of two offsets with the same
//! proof is the original, whichever was read first: the reader may be behind, or the proof may have come late. And a notice
//! may become a verified event of the same id, when its proof comes. Between channels only the order of reading decides, until
//! an operator has: what is expected of both may say whose the proof is (see [`expect`](super::expect)).
//!
//! # Invariants
//!
//! * **Reading an event again is no alarm,** whether another lane reads it, a restart, a second look or an operator's retry.
//! * **Only admitted events are remembered.** A forgery leaves nothing behind that could reject the genuine event.
//! * **Bounded, each channel for itself.** [`PROOFS`] proofs and as many places are shared among the channels, and none has
//!   fewer than its last [`PROOFS_OF_A_CHANNEL`]. Proofs that were delivered are read back from the ledger at a start;
//!   places are not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::verify::expect::{Claim, Expect};
use crate::verify::workflows::Workflows;
#[cfg(doc)]
use ledger::PROOFS_OF_A_CHANNEL;
use ledger::{self, Digest, PROOFS, Place};
use net::tasks::lock;
use proof::event::{ChannelId, Event, Offset, RawEvent};
use proof::verify::{Hash as Hash256, Proof, Unsigned};

#[cfg(test)]
mod tests;

/// The recent events of every channel of the process. They stay when the configuration is read again.
#[derive(Debug)]
pub struct RecentEvents {
    /// Keyed anew in each process: contents with the same hash cannot be prepared.
    prints: RandomState,
    index: Mutex<Index>,
    each: AtomicUsize,
    pub(crate) workflows: Workflows,
}

/// Where the proof of an event that [belongs](RecentEvents::belongs) to its channel is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nowhere else.
    Here,
    /// Another channel has shown it first, and what both expect says that it is this channel's.
    Elsewhere,
}

/// Why an event whose proof holds, or that needs none, is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Alarm {
    /// Another event of the channel had the same proof.
    #[error("its proof was shown before, at {0}")]
    DuplicateProof(Place),
    /// An event of another channel had the same proof.
    #[error("its proof {digest} was shown before in another channel, at {original}")]
    ProofOfChannel {
        /// The event of the other channel.
        original: Place,
        /// The proof's digest.
        digest: Hash256,
    },
    /// The place had another event, or the event other content.
    #[error("another event, or other content of it, was shown before at {0}")]
    Contradiction(Place),
}

/// An event that is neither a duplicate nor a contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The later place at which its proof was admitted already: that was a duplicate of this event.
    pub(crate) duplicate_at: Option<Place>,
    /// Whether it is not known to have been admitted with this content before.
    pub(crate) is_news: bool,
}

/// The part of a proof's digest by which it is found in memory. A digest is a hash: its parts are as good as chance.
type Print = u64;

#[derive(Debug, Default)]
struct Index {
    /// Not a `HashMap`: one that is full and whose entries come and go takes three times the memory.
    proofs: BTreeMap<Print, Shown>,
    /// Further places at which a proof was delivered: an operator has decided so. At most [`PROOFS`].
    shared: BTreeSet<(Print, Place)>,
    channels: IndexMap<ChannelId, Recent>,
}

/// A [`Place`] in 12 bytes in place of 24: there are many.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// The place of its channel among those of the index. None is ever removed.
    channel: u32,
    offset: [u8; 8],
}

/// The recent events of one channel.
#[derive(Debug, Default)]
struct Recent {
    /// By offset. Not a `BTreeMap`, which takes twice the memory: events are read upwards.
    contents: VecDeque<(Offset, Content)>,
    /// Oldest first.
    proofs: VecDeque<Print>,
}

/// An event's id and content, by 32 bits of a hash each: enough to tell, at one offset, that something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    id: u32,
    /// The last bit says whether it is of a signed text.
    text: u32,
}

impl Default for RecentEvents {
    fn default() -> Self {
        Self {
            prints: RandomState::new(),
            index: Mutex::default(),
            each: AtomicUsize::new(PROOFS),
            workflows: Workflows::default(),
        }
    }
}

impl RecentEvents {
    /// Shares the room among that many channels.
    pub fn share_among(&self, channels: usize) {
        self.each.store(ledger::proofs_each(channels), Ordering::Relaxed);
    }

    /// How many proofs, and places, of each channel are remembered.
    pub fn proofs_each(&self) -> usize {
        self.each.load(Ordering::Relaxed)
    }

    /// Remembers proofs that a channel's ledger knows as delivered. Returns those that another channel has shown too, each
    /// with its offset and the other place.
    pub(crate) fn remember(&self, channel: ChannelId, proofs: &[ledger::Proof]) -> Vec<(Offset, Place)> {
        let (mut index, capacity) = (self.lock(), self.proofs_each());
        let mut shown_elsewhere = Vec::new();
        for proof in proofs {
            let place = Place { channel_id: channel, offset: proof.offset };
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

    /// The proof of a verified event that is to be admitted, where nothing is known of it here.
    pub(crate) fn unknown(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) -> Option<ledger::Proof> {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        let (digest, index) = (digest_of(&proof.digest), self.lock());
        let is_contradiction =
            || index.channels.get(&channel).is_some_and(|recent| recent.contradicts(event.offset, content));
        (!index.proofs.contains_key(&print_of(&digest)) && !is_contradiction())
            .then_some(ledger::Proof { digest, offset: event.offset })
    }

    /// Where a proof was shown first, as far as is known.
    pub fn shown_in(&self, digest: &Digest) -> Option<Place> {
        self.lock().place_of(print_of(digest))
    }

    /// Remembers what another instance's channel has shown, where nothing is known of it here.
    pub(crate) fn learn(&self, shown: &[(Digest, Place)]) {
        let (mut index, capacity) = (self.lock(), self.proofs_each());
        for (digest, place) in shown {
            let print = print_of(digest);
            if !index.proofs.contains_key(&print) {
                index.add_proof(print, *place, capacity);
            }
        }
    }

    /// Admits and remembers a verified event, or gives an alarm.
    pub(crate) fn verified(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) -> Result<Admitted, Alarm> {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        let admitted =
            self.lock().admit(place(channel, event), content, Some(print_of(&proof.digest.0)), self.proofs_each());
        admitted.map_err(|alarm| alarm.seen_from(channel, proof))
    }

    /// Lets an event pass though another channel has shown its proof first: an operator has decided so.
    pub(crate) fn accept(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) {
        self.lock().share(print_of(&proof.digest.0), place(channel, event));
    }

    /// Remembers a verified event beside another one at its offset: an operator has decided that this one is right.
    pub(crate) fn accept_verified(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) {
        let content = self.content(event, self.prints.hash_one(proof.event_hash), true);
        self.lock().channels.entry(channel).or_default().accept(event.offset, content);
    }

    /// Remembers a notice beside another event at its offset: an operator has decided that this one is right.
    pub(crate) fn accept_notice(&self, channel: ChannelId, notice: &Unsigned) {
        let event = notice.event();
        let content = self.content(&event.raw, self.prints.hash_one(NoticeContent::of(event)), false);
        self.lock().channels.entry(channel).or_default().accept(event.raw.offset, content);
    }

    /// Forgets the contents above an offset: an operator has accepted the service's history.
    pub fn forget_above(&self, channel: ChannelId, offset: Option<Offset>) {
        if let Some(recent) = self.lock().channels.get_mut(&channel) {
            recent.contents.retain(|(known, _)| Some(*known) <= offset);
        }
    }

    /// Admits and remembers a notice, or gives an alarm.
    pub(crate) fn notice(&self, channel: ChannelId, notice: &Unsigned) -> Result<Admitted, Alarm> {
        let event = notice.event();
        let content = self.content(&event.raw, self.prints.hash_one(NoticeContent::of(event)), false);
        self.lock().admit(place(channel, &event.raw), content, None, self.proofs_each())
    }

    /// Whether a verified event that an operator has released may be delivered although its proof is known. `signed` is its
    /// signed text, `expect` what its channel expects, and `of_other` what another channel expects.
    ///
    /// # Errors
    /// The alarm that keeps it in the quarantine: its proof is another event's of the channel or, as far as is expected of both,
    /// another channel's.
    pub fn belongs(
        &self,
        channel: ChannelId,
        event: &RawEvent,
        proof: &Proof,
        signed: Option<&[u8]>,
        expect: &Expect,
        of_other: impl FnOnce(ChannelId) -> Option<Arc<Expect>>,
    ) -> Result<Known, Alarm> {
        let place = place(channel, event);
        let known = self.lock().elsewhere(print_of(&proof.digest.0), place);
        let Some(known) = known.filter(|known| is_duplicate(place, *known)) else { return Ok(Known::Here) };
        let alarm = Alarm::DuplicateProof(known).seen_from(channel, proof);
        let Alarm::ProofOfChannel { original, .. } = alarm else { return Err(alarm) };
        let other = of_other(original.channel_id);
        let claim = other.map_or(Claim::Open, |other| other.claim(original.channel_id, proof, signed));
        if expect.claim(channel, proof, signed) > claim { Ok(Known::Elsewhere) } else { Err(alarm) }
    }

    fn content(&self, event: &RawEvent, text: u64, is_signed: bool) -> Content {
        Content { id: half(self.prints.hash_one(event.id)), text: half(text) << 1 | u32::from(is_signed) }
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }
}

fn print_of(digest: &[u8]) -> Print {
    Print::from_be_bytes(*digest.first_chunk().expect("a digest is longer"))
}

/// The part of a proof's digest that a ledger keeps.
pub(crate) fn digest_of(digest: &Hash256) -> Digest {
    *digest.0.first_chunk().expect("a hash is longer")
}

fn place(channel: ChannelId, event: &RawEvent) -> Place {
    Place { channel_id: channel, offset: event.offset }
}

/// Whether a proof at `place` is a duplicate of the same proof at `known`.
fn is_duplicate(place: Place, known: Place) -> bool {
    known != place && !(place.channel_id == known.channel_id && place.offset < known.offset)
}

fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Index {
    fn admit(
        &mut self,
        place: Place,
        content: Content,
        proof: Option<Print>,
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

    fn place_of(&self, print: Print) -> Option<Place> {
        let Shown { channel, offset } = self.proofs.get(&print)?;
        let (channel_id, _) = self.channels.get_index(*channel as usize)?;
        Some(Place { channel_id: *channel_id, offset: Offset::new(i64::from_ne_bytes(*offset))? })
    }

    /// Where a proof is known from, unless that is `place`, or it may be at `place` too.
    fn elsewhere(&self, proof: Print, place: Place) -> Option<Place> {
        let known = self.place_of(proof).filter(|known| *known != place);
        known.filter(|_| !self.shared.contains(&(proof, place)))
    }

    fn share(&mut self, proof: Print, place: Place) {
        self.shared.insert((proof, place));
        if self.shared.len() > PROOFS {
            self.shared.pop_first();
        }
    }

    fn add_proof(&mut self, print: Print, place: Place, capacity: usize) {
        let entry = self.channels.entry(place.channel_id);
        let channel = u32::try_from(entry.index()).expect("so many channels are not configured");
        let recent = entry.or_default();
        let shown = Shown { channel, offset: place.offset.get().to_ne_bytes() };
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

impl Recent {
    /// Where the contents of an offset are: none, one, or several if an operator has accepted them.
    fn at(&self, offset: Offset) -> Range<usize> {
        let begin = self.contents.partition_point(|(known, _)| *known < offset);
        let count = self.contents.range(begin..).take_while(|(known, _)| *known == offset).count();
        begin..begin + count
    }

    /// The content of an offset that can have become this one.
    fn known(&mut self, offset: Offset, content: Content) -> Option<&mut Content> {
        let at = self.at(offset);
        self.contents.range_mut(at).map(|(_, known)| known).find(|known| known.may_become(content))
    }

    /// Whether there was only other content than that at an offset.
    fn contradicts(&self, offset: Offset, content: Content) -> bool {
        let at = self.at(offset);
        !at.is_empty() && !self.contents.range(at).any(|(_, known)| known.may_become(content))
    }

    /// Remembers the content of an offset, and gives what was known of it. Refuses other content than that.
    fn remember(&mut self, offset: Offset, content: Content) -> Result<Option<Content>, ()> {
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

    /// Remembers the content of an offset beside what is known of it.
    fn accept(&mut self, offset: Offset, content: Content) {
        if self.remember(offset, content).is_err() {
            let at = self.at(offset);
            self.contents.insert(at.end, (offset, content));
        }
    }
}

impl Content {
    fn is_signed(self) -> bool {
        self.text & 1 == 1
    }

    fn may_become(self, later: Self) -> bool {
        let proved = !self.is_signed() && later.is_signed();
        self == later || (self.id == later.id && proved)
    }
}

impl Alarm {
    /// The reason of [`Alarm::DuplicateProof`].
    pub const DUPLICATE_PROOF: &str = "duplicate-proof";
    /// The reason of [`Alarm::ProofOfChannel`].
    pub const PROOF_OF_CHANNEL: &str = "proof-of-channel";
    /// The reason of [`Alarm::Contradiction`].
    pub const CONTRADICTION: &str = "contradiction";

    /// Of a proof of another channel it says so.
    fn seen_from(self, channel: ChannelId, proof: &Proof) -> Self {
        match self {
            Self::DuplicateProof(original) if original.channel_id != channel => {
                Self::ProofOfChannel { original, digest: proof.digest }
            }
            other => other,
        }
    }

    /// A short constant name, beside those of [`Reason`](proof::verify::Reason).
    pub fn name(self) -> &'static str {
        match self {
            Self::DuplicateProof(_) => Self::DUPLICATE_PROOF,
            Self::ProofOfChannel { .. } => Self::PROOF_OF_CHANNEL,
            Self::Contradiction(_) => Self::CONTRADICTION,
        }
    }

    /// The place that was admitted.
    pub(crate) fn original(self) -> Place {
        match self {
            Self::DuplicateProof(original) | Self::Contradiction(original) | Self::ProofOfChannel { original, .. } => {
                original
            }
        }
    }

    /// The proof that two channels have shown.
    pub(crate) fn digest(self) -> Option<Hash256> {
        if let Self::ProofOfChannel { digest, .. } = self { Some(digest) } else { None }
    }
}

/// The content of a notice.
#[derive(Hash)]
struct NoticeContent<'a> {
    kind: &'a str,
    status: Option<&'a str>,
    /// Each member as it is written, so that no number is rounded.
    payload: BTreeMap<String, &'a str>,
    /// The whole record, where its payload is no object.
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
