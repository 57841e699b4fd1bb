//! Defines why an event is rejected.

use crate::verify::expect::NotOfChannel;
use crate::verify::recent::Alarm;
use bytes::Bytes;
use ledger::{Contradiction, Place};
use proof::event::{Event, EventType};
use proof::verify::{Hash, Proof, Reason};

/// The reason for an event whose proof has not arrived in time.
pub const PROOF_TIMEOUT: &str = "proof-timeout";

/// The reason for an event whose proof can never arrive.
pub(super) const PENDING_WITHOUT_ID: &str = "pending-without-id";

/// Why an event is rejected.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// A short constant name.
    pub(super) reason: &'static str,
    pub(super) detail: String,
    /// The place that showed its proof, or other content at its offset, before.
    pub(super) original: Option<Place>,
    /// The proof's digest, if another channel has shown the proof or may show it.
    pub(super) digest: Option<Hash>,
    /// The number of signatures by keys outside the signer set.
    pub(super) strangers: u32,
}

impl Rejection {
    pub(super) fn new(reason: &'static str, detail: &str) -> Self {
        Self { reason, detail: detail.to_owned(), original: None, digest: None, strangers: 0 }
    }

    /// Rejects an event because the service's history differs from the events read before.
    pub(crate) fn contradicted(Contradiction { offset, .. }: Contradiction) -> Self {
        let detail =
            format!("the service's history differs from what was read: it has another event at offset {offset}");
        Self::new(Alarm::CONTRADICTION, &detail)
    }

    /// Returns every possible reason.
    pub fn reasons() -> impl Iterator<Item = &'static str> {
        let alarms = [Alarm::DUPLICATE_PROOF, Alarm::PROOF_OF_CHANNEL, Alarm::CONTRADICTION];
        let others = [PROOF_TIMEOUT, PENDING_WITHOUT_ID].into_iter().chain(alarms);
        Reason::NAMES.iter().copied().chain(others).chain(NotOfChannel::reasons())
    }
}

impl From<&Reason> for Rejection {
    fn from(reason: &Reason) -> Self {
        Self { strangers: reason.strangers(), ..Self::new(reason.name(), &reason.to_string()) }
    }
}

impl Rejection {
    /// Rejects an event whose proof is valid, but whose content does not belong to the channel.
    pub(super) fn not_of_channel(not: &NotOfChannel, proof: &Proof) -> Self {
        Self { digest: Some(proof.digest), ..Self::new(not.reason(), &not.to_string()) }
    }
}

impl From<Alarm> for Rejection {
    fn from(alarm: Alarm) -> Self {
        Self { original: Some(alarm.original()), digest: alarm.digest(), ..Self::new(alarm.name(), &alarm.to_string()) }
    }
}

/// Returns the type of an event, if the event can be parsed.
pub(super) fn kind_of(json: &Bytes) -> Option<EventType> {
    Event::parse(json.clone()).ok().map(|event| event.kind)
}
