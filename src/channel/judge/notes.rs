//! What is noted of each event: how it was judged and by whom it was signed, once for each event as far as is remembered.

use std::sync::Arc;

use bytes::Bytes;

use crate::channel::batch::Outcome;
use crate::channel::replay::Alarm;
use crate::channel::sightings::Sightings;
use crate::channel::teller::Teller;
use crate::event::{Event, EventType};
use crate::metrics::{ChannelMetrics, Sort};
use crate::verify::{Proof, Reason, Unsigned};

use super::{PENDING_WITHOUT_ID, PROOF_TIMEOUT};

/// Reasons beside those of [`Reason`].
const OTHER_REASONS: [&str; 4] = [PROOF_TIMEOUT, PENDING_WITHOUT_ID, Alarm::REPLAYED, Alarm::CONTRADICTION];

/// Where it is noted what was found.
#[derive(Debug)]
pub(in crate::channel) struct Notes {
    metrics: Arc<ChannelMetrics>,
    signers: Arc<Sightings>,
}

/// What an event is condemned for.
pub(super) struct Grounds {
    /// A short constant name.
    pub(super) reason: &'static str,
    pub(super) detail: String,
    /// Signatures by keys outside the signer set.
    strangers: u32,
}

impl Notes {
    pub(in crate::channel) fn new(metrics: Arc<ChannelMetrics>, signers: Arc<Sightings>) -> Self {
        metrics.may_reject(Reason::NAMES.into_iter().chain(OTHER_REASONS));
        Self { metrics, signers }
    }

    /// How far a page goes, which of it does not count for that, and of which the proof is missing.
    pub(super) fn page(&self, outcomes: &[Outcome], teller: &Teller) {
        if let Some(highest) = outcomes.iter().rfind(|outcome| !matches!(outcome, Outcome::Unplaced(_))) {
            teller.placed(highest.offset());
        }
        for outcome in outcomes {
            match outcome {
                Outcome::Unplaced(evidence) => teller.disbelieves(evidence.facts.offset),
                Outcome::Pending(pending) if teller.reads_first() => {
                    self.metrics.judged(kind_of(&pending.json).as_ref(), Sort::Pending);
                }
                _ => {}
            }
        }
    }

    pub(super) fn verified(&self, kind: &EventType, proof: &Proof, now: i64) {
        self.metrics.judged(Some(kind), Sort::Verified);
        self.metrics.strangers(proof.strangers);
        self.signers.saw(&proof.signers, now);
    }

    pub(super) fn unsigned(&self, unsigned: &Unsigned) {
        self.metrics.judged(Some(unsigned.event().kind()), Sort::Unsigned);
    }

    pub(super) fn rejected(&self, json: &Bytes, grounds: &Grounds) {
        self.metrics.judged(kind_of(json).as_ref(), Sort::Rejected);
        self.metrics.rejected(grounds.reason);
        self.metrics.strangers(grounds.strangers);
    }
}

impl Grounds {
    pub(super) fn new(reason: &'static str, detail: &str) -> Self {
        Self { reason, detail: detail.to_owned(), strangers: 0 }
    }
}

impl From<&Reason> for Grounds {
    fn from(reason: &Reason) -> Self {
        Self { reason: reason.name(), detail: reason.to_string(), strangers: reason.strangers() }
    }
}

impl From<Alarm> for Grounds {
    fn from(alarm: Alarm) -> Self {
        Self::new(alarm.name(), &alarm.to_string())
    }
}

/// The type of an event that is set aside or condemned, where it can be read.
fn kind_of(json: &Bytes) -> Option<EventType> {
    Event::parse(json.clone()).ok().map(|event| event.kind().clone())
}
