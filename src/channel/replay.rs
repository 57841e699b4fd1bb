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
//!   8 MiB, all of it taken at the start. What is older, and what an earlier process let through, is forgotten: this
//!   notices what it can and promises no more.
//! * **Prints stand for what they are of.** Places, proofs and contents are remembered by 64 bits. In a billion events
//!   the odds are a hundred thousand to one against a false alarm; it would end in the quarantine, and not be lost.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::event::{ChannelId, Event, Offset, RawEvent};
use crate::verify::{Proof, Unsigned};

mod recent;

use recent::{Print, Recent};

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
    places: Recent<Content>,
    proofs: Recent<Place>,
}

/// What is let through, and where.
#[derive(Clone, Copy, Debug)]
struct Seen {
    place: Place,
    at: Print,
    content: Content,
    /// Of what was signed: report and context.
    proof: Option<Print>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    id: Print,
    text: Text,
}

/// A print whose last bit says whether it is of a signed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Text(Print);

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
    pub(super) fn verified(&self, channel: ChannelId, event: &RawEvent, proof: &Proof) -> Result<LetThrough, Alarm> {
        let text = Text::signed(self.prints.hash_one(proof.event_hash));
        self.let_through(channel, event, text, Some(self.prints.hash_one(proof.digest)))
    }

    /// Remembers a notice, unless it gives alarm.
    pub(super) fn notice(&self, channel: ChannelId, notice: &Unsigned) -> Result<LetThrough, Alarm> {
        let event = notice.event();
        let text = Text::notice(self.prints.hash_one(Told::by(event)));
        self.let_through(channel, event.raw(), text, None)
    }

    fn let_through(
        &self,
        channel: ChannelId,
        event: &RawEvent,
        text: Text,
        proof: Option<Print>,
    ) -> Result<LetThrough, Alarm> {
        let place = Place { channel, offset: event.offset };
        let content = Content { id: self.prints.hash_one(event.id), text };
        let seen = Seen { place, at: self.prints.hash_one(place), content, proof };
        self.index.lock().unwrap_or_else(PoisonError::into_inner).let_through(seen)
    }
}

impl Index {
    fn of(capacity: usize) -> Self {
        let nowhere = Place { channel: ChannelId(Uuid::max()), offset: Offset::ZERO };
        let nothing = Content { id: Print::MAX, text: Text(Print::MAX) };
        Self { places: Recent::of(capacity, nothing), proofs: Recent::of(capacity, nowhere) }
    }

    fn let_through(&mut self, Seen { place, at, content, proof }: Seen) -> Result<LetThrough, Alarm> {
        let elsewhere = proof.and_then(|proof| self.proofs.get(proof)).filter(|known| *known != place);
        if let Some(known) = elsewhere
            && !place.is_before(known)
        {
            return Err(Alarm::Replayed(known));
        }
        let known = self.places.get(at);
        if known.is_some_and(|known| !known.may_become(content)) {
            return Err(Alarm::Contradiction(place));
        }
        self.places.set(at, content);
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
        let proved = !self.text.is_signed() && later.text.is_signed();
        self == later || (self.id == later.id && proved)
    }
}

impl Text {
    fn signed(print: Print) -> Self {
        Self(print << 1 | 1)
    }

    fn notice(print: Print) -> Self {
        Self(print << 1)
    }

    fn is_signed(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Alarm {
    pub(super) const REPLAYED: &str = "replayed";
    pub(super) const CONTRADICTION: &str = "contradiction";

    /// A short constant name, beside those of [`Reason`](crate::verify::Reason).
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

#[cfg(test)]
mod tests;
