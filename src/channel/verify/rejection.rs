//! Rejects an event: counts, logs and quarantines it.

use bytes::Bytes;
use tracing::error;
use tracing::field::display;

use crate::context::ReadPlan;
use crate::verify::StageContext;
use crate::verify::expect::NotOfChannel;
use crate::verify::reason::RejectionReason;
use crate::verify::recent::Alarm;
use ledger::{Contradiction, Place, Quarantined, QuarantinedEvent};
use net::tasks::lock;
use proof::event::{Event, EventType, RawEvent};
use proof::verify::{Hash, Proof, Reason};
use telemetry::metrics::Sort;

/// The number of rejected events that are remembered as logged.
const MAX_LOGGED: usize = 10_000;

/// Why an event is rejected, with what is known about it.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub(super) reason: RejectionReason,
    detail: String,
    /// The place that showed its proof, or other content at its offset, before.
    original: Option<Place>,
    /// The proof's digest, if another channel has shown the proof or may show it.
    digest: Option<Hash>,
    /// The number of signatures by keys outside the signer set.
    strangers: u32,
}

impl Rejection {
    pub(super) fn new(reason: RejectionReason, detail: &str) -> Self {
        Self { reason, detail: detail.to_owned(), original: None, digest: None, strangers: 0 }
    }

    /// Rejects an event because the service's history differs from the events read before.
    pub(crate) fn contradicted(Contradiction { offset, .. }: Contradiction) -> Self {
        let detail =
            format!("the service's history differs from what was read: it has another event at offset {offset}");
        Self::new(RejectionReason::Contradiction, &detail)
    }
}

impl From<&Reason> for Rejection {
    fn from(reason: &Reason) -> Self {
        Self { strangers: reason.strangers(), ..Self::new(reason.into(), &reason.to_string()) }
    }
}

impl Rejection {
    /// Rejects an event whose proof is valid, but whose content does not belong to the channel.
    pub(super) fn not_of_channel(not: &NotOfChannel, proof: &Proof) -> Self {
        Self { digest: Some(proof.digest), ..Self::new(not.into(), &not.to_string()) }
    }
}

impl From<Alarm> for Rejection {
    fn from(alarm: Alarm) -> Self {
        Self { original: Some(alarm.original()), digest: alarm.digest(), ..Self::new(alarm.into(), &alarm.to_string()) }
    }
}

impl ReadPlan {
    pub(crate) fn quarantine(
        &self,
        raw: RawEvent,
        rejection: Rejection,
        context: StageContext<'_>,
    ) -> QuarantinedEvent {
        let RawEvent { offset, id, json } = raw;
        let Rejection { reason, detail, original, digest, strangers } = rejection;
        let mut logged = lock(&self.logged);
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        if logged.insert(offset) {
            self.channel.metrics.verdict(kind_of(&json).as_ref(), Sort::Rejected);
            self.channel.metrics.rejected(reason.name());
            // The proof is valid, but belongs to another channel's event. The board does not count it.
            if reason != RejectionReason::ProofOfChannel {
                self.channel.handle.board().rejected(reason);
            }
            self.channel.metrics.unknown_signers(strangers);
            let (event_id, trace_id) = (id.map(display), context.trace.map(display));
            error!(channel = %self.settings.channel.name, trace_id, offset = offset.get(), event_id, reason = reason.name(), detail, "event rejected: not delivered");
        }
        if let Some(original) = original.filter(|original| original.channel_id != self.settings.channel.id) {
            error!(channel_id = %original.channel_id, offset = original.offset.get(), other = %self.settings.channel.name, other_offset = offset.get(), "a proof of this channel was shown in another one too: one of them was shown an event that is not its own");
        }
        let (reason, at, bytes) = (reason.name().to_owned(), self.channel.parts.machine.now(), json.len() as u64);
        // The bytes are copied, as for an event that is set aside.
        let json = self.channel.handle.memory.copy(&json);
        let digest = digest.map(|digest| digest.to_string());
        let received = Some(context.received);
        let facts = Quarantined { offset, event_id: id, reason, detail, at, received, original, digest, bytes };
        QuarantinedEvent { facts, json }
    }
}

/// Returns the type of an event, if the event can be parsed.
pub(super) fn kind_of(json: &Bytes) -> Option<EventType> {
    Event::parse(json.clone()).ok().map(|event| event.kind)
}
