//! A rejection: the reason, and the facts about it that are recorded.

use crate::verify::expect::NotOfChannel;
use crate::verify::reason::RejectionReason;
use crate::verify::recent::Alarm;
use bytes::Bytes;
use ledger::{Contradiction, Place};
use proof::event::{Event, EventType};
use proof::verify::{Hash, Proof, Reason};

/// The reason for which an event is rejected, and the facts about it.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub(super) reason: RejectionReason,
    pub(super) detail: String,
    /// The place that showed its proof, or other content at its offset, before.
    pub(super) original: Option<Place>,
    /// The proof's digest, if another channel has shown the proof or may show it.
    pub(super) digest: Option<Hash>,
    /// The number of signatures by keys outside the signer set.
    pub(super) strangers: u32,
}

impl Rejection {
    pub(super) fn new(reason: RejectionReason, detail: &str) -> Self {
        Self { reason, detail: detail.to_owned(), original: None, digest: None, strangers: 0 }
    }

    /// Rejects an event because the service's history differs from the events read before.
    pub(crate) fn contradicted(Contradiction { offset, .. }: Contradiction) -> Self {
        let detail = format!("the service's history has changed: it has a different event at offset {offset}");
        Self::new(RejectionReason::Contradiction, &detail)
    }

    /// Rejects an event whose proof is valid, but whose content does not belong to the channel.
    pub(super) fn not_of_channel(not: &NotOfChannel, proof: &Proof) -> Self {
        Self { digest: Some(proof.digest), ..Self::new(not.into(), &not.to_string()) }
    }
}

impl From<&Reason> for Rejection {
    fn from(reason: &Reason) -> Self {
        Self { strangers: reason.strangers(), ..Self::new(reason.into(), &reason.to_string()) }
    }
}

impl From<Alarm> for Rejection {
    fn from(alarm: Alarm) -> Self {
        Self { original: Some(alarm.original()), digest: alarm.digest(), ..Self::new(alarm.into(), &alarm.to_string()) }
    }
}

/// Returns the type of an event, if the event can be parsed.
pub(super) fn kind_of(json: &Bytes) -> Option<EventType> {
    Event::parse(json.clone()).ok().map(|event| event.kind)
}
