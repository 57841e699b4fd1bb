//! What was let through lately: by it a proof that comes again elsewhere, and a place that changes its content, are
//! noticed.
//!
//! The network signs a text and nothing else: under which id, at which offset and in which channel an event stands is
//! the service's word (spec/wire.md, "The decoded content"). So a proof that holds may be an old one in a new place.
//!
//! * **Replayed**: the same proof under another offset or in another channel. What was signed, report and context, is
//!   the proof's identity. The text is not: several events may rightly carry the same text with reports of their own.
//! * **Contradiction**: other content under an offset whose event was let through before. Of a verified event the
//!   content is its id and its signed text, so that a proof made anew, or a field more in the record, is no alarm. Of a
//!   notice it is id, type, status and the members of its payload, in any order.
//!
//! The first one seen is right, with two exceptions. In one channel the lower of two offsets with the same proof is the
//! original whichever was seen first: a reader that is behind, or an event whose proof came late, must not suffer for
//! a replay that was faster. And a notice may become a verified event of the same id, because its proof came. Between
//! channels nothing but the order of reading says which was first.
//!
//! # Invariants
//!
//! * **The same thing again is no alarm.** A place that is judged again, by another lane, after a restart of its
//!   channel, by a second look or an operator's retry, finds itself.
//! * **Only what is let through is remembered.** A forgery leaves no trace that the honest event could trip over.
//! * **Bounded.** The last [`RECENT`] places and as many proofs, of all channels of the process together: less than
//!   16 MiB when full. What is older, and what an earlier process let through, is forgotten: this notices what it can
//!   and promises no more.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::event::{ChannelId, Event, Offset};
use crate::verify::{self, Unsigned, Verified};

/// How many places, and how many proofs, are remembered.
const RECENT: usize = 100_000;

/// The events that were let through lately, of every channel of the process. Shared by all, and kept where the
/// configuration is read again.
#[derive(Debug)]
pub struct RecentEvents {
    /// Keyed anew in each process: nobody outside can make two contents look the same.
    prints: RandomState,
    index: Mutex<Index>,
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) channel: ChannelId,
    pub(super) offset: Offset,
}

/// Why an event whose proof holds, or that needs none, is not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Alarm {
    #[error("its proof was let through before, at {0}")]
    Replayed(Place),
    #[error("another event, or another content of it, was let through before at {0}")]
    Contradiction(Place),
}

/// An event that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LetThrough {
    /// The later place at which its proof was let through already: that was a replay of this event.
    pub(super) replayed_at: Option<Place>,
    /// Whether nothing is known of its having been let through like this before.
    pub(super) is_news: bool,
}

#[derive(Debug)]
struct Index {
    places: Recent<Place, Content>,
    proofs: Recent<ProofPrint, Place>,
}

/// The first half of what was signed: as hard to meet by chance as anybody needs, at half the memory.
type ProofPrint = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    id: u64,
    text: Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Signed(u64),
    Notice(u64),
}

impl Default for RecentEvents {
    fn default() -> Self {
        Self { prints: RandomState::new(), index: Mutex::new(Index::of(RECENT)) }
    }
}

impl RecentEvents {
    /// With room for fewer.
    #[cfg(test)]
    pub(super) fn of(capacity: usize) -> Self {
        Self { prints: RandomState::new(), index: Mutex::new(Index::of(capacity)) }
    }

    /// Remembers a verified event, unless it gives alarm.
    pub(super) fn verified(&self, channel: ChannelId, verified: &Verified) -> Result<LetThrough, Alarm> {
        let (event, proof) = (verified.event(), verified.proof());
        let text = Text::Signed(self.prints.hash_one(proof.event_hash));
        self.let_through(channel, event, text, Some(print_of(&proof.digest)))
    }

    /// Remembers a notice, unless it gives alarm.
    pub(super) fn notice(&self, channel: ChannelId, notice: &Unsigned) -> Result<LetThrough, Alarm> {
        let event = notice.event();
        let text = Text::Notice(self.prints.hash_one(Told::by(event)));
        self.let_through(channel, event, text, None)
    }

    fn let_through(
        &self,
        channel: ChannelId,
        event: &Event,
        text: Text,
        proof: Option<ProofPrint>,
    ) -> Result<LetThrough, Alarm> {
        let place = Place { channel, offset: event.offset() };
        let content = Content { id: self.prints.hash_one(event.id()), text };
        self.index.lock().unwrap_or_else(PoisonError::into_inner).let_through(place, content, proof)
    }
}

impl Index {
    fn of(capacity: usize) -> Self {
        Self { places: Recent::of(capacity), proofs: Recent::of(capacity) }
    }

    fn let_through(&mut self, place: Place, content: Content, proof: Option<ProofPrint>) -> Result<LetThrough, Alarm> {
        let elsewhere = proof.and_then(|proof| self.proofs.get(&proof)).filter(|known| **known != place).copied();
        if let Some(known) = elsewhere
            && !place.is_before(known)
        {
            return Err(Alarm::Replayed(known));
        }
        let known = self.places.get(&place).copied();
        if known.is_some_and(|known| !known.may_become(content)) {
            return Err(Alarm::Contradiction(place));
        }
        self.places.set(place, content);
        if let Some(proof) = proof {
            self.proofs.set(proof, place);
        }
        Ok(LetThrough { replayed_at: elsewhere, is_news: known != Some(content) })
    }
}

impl Place {
    fn is_before(self, other: Self) -> bool {
        self.channel == other.channel && self.offset < other.offset
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} of channel {}", self.offset, self.channel)
    }
}

impl Content {
    fn may_become(self, later: Self) -> bool {
        let proved = matches!((self.text, later.text), (Text::Notice(_), Text::Signed(_)));
        self == later || (self.id == later.id && proved)
    }
}

impl Alarm {
    pub(super) const REPLAYED: &str = "replayed";
    pub(super) const CONTRADICTION: &str = "contradiction";

    /// A short constant name, beside those of [`verify::Reason`].
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Replayed(_) => Self::REPLAYED,
            Self::Contradiction(_) => Self::CONTRADICTION,
        }
    }
}

/// What a notice tells.
#[derive(Hash)]
struct Told<'a> {
    kind: &'a str,
    status: Option<&'a str>,
    /// Each member as it is written, so that no number is rounded.
    payload: BTreeMap<String, &'a str>,
    /// The whole record, where its payload is no object.
    otherwise: Option<&'a [u8]>,
}

impl<'a> Told<'a> {
    fn by(event: &'a Event) -> Self {
        #[derive(Deserialize)]
        struct Notice<'n> {
            #[serde(borrow)]
            payload: BTreeMap<String, &'n RawValue>,
        }
        let json = &event.raw().json;
        let payload = serde_json::from_slice::<Notice<'_>>(json).map(|notice| notice.payload);
        let otherwise = payload.is_err().then_some(&json[..]);
        let members = payload.into_iter().flatten().map(|(name, value)| (name, value.get()));
        Self { kind: event.kind().as_str(), status: event.status(), payload: members.collect(), otherwise }
    }
}

fn print_of(digest: &verify::Hash) -> ProofPrint {
    *digest.0.first_chunk().expect("a hash is longer than its first half")
}

/// A map that forgets what was put in first.
#[derive(Debug)]
struct Recent<K, V> {
    capacity: usize,
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    /// Takes its room at once, which costs nothing until it is used: growing would take it one and a half times.
    fn of(capacity: usize) -> Self {
        Self { capacity, entries: HashMap::with_capacity(capacity), order: VecDeque::with_capacity(capacity) }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// Puts in or changes. What is changed keeps its turn to be forgotten.
    fn set(&mut self, key: K, value: V) {
        if !self.entries.contains_key(&key) {
            if self.order.len() >= self.capacity
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
            self.order.push_back(key);
        }
        self.entries.insert(key, value);
    }
}

#[cfg(test)]
mod tests;
