//! Counts each event's verdict and signers, once for each event as far as is remembered.

use std::sync::Arc;

use bytes::Bytes;

use crate::channel::deliver::batch::Outcome;
use crate::channel::reporter::StatusReporter;
use crate::channel::signers::SignerActivity;
use crate::channel::verify::recent::Alarm;
use crate::channel::verify::{PENDING_WITHOUT_ID, PROOF_TIMEOUT};
use crate::event::{Event, EventType};
use crate::ledger::Place;
use crate::metrics::{ChannelMetrics, Sort};
use crate::verify::{Proof, Reason, Unsigned};

/// Reasons beside those of [`Reason`].
const OTHER_REASONS: [&str; 4] = [PROOF_TIMEOUT, PENDING_WITHOUT_ID, Alarm::DUPLICATE_PROOF, Alarm::CONTRADICTION];

/// The counters of one channel's verify stage.
#[derive(Debug)]
pub(in crate::channel) struct Counters {
    metrics: Arc<ChannelMetrics>,
    signers: Arc<SignerActivity>,
}

/// Why an event is rejected.
pub(in crate::channel) struct Rejection {
    /// A short constant name.
    pub(in crate::channel) reason: &'static str,
    pub(in crate::channel) detail: String,
    /// Where its proof, or other content at its offset, was shown before.
    pub(in crate::channel) original: Option<Place>,
    /// Signatures by keys outside the signer set.
    strangers: u32,
}

impl Counters {
    pub(in crate::channel) fn new(metrics: Arc<ChannelMetrics>, signers: Arc<SignerActivity>) -> Self {
        metrics.may_reject(Reason::NAMES.into_iter().chain(OTHER_REASONS));
        Self { metrics, signers }
    }

    /// Counts pending events, and reports the newest confirmed offset and each unconfirmed one.
    pub(in crate::channel) fn page(&self, outcomes: &[Outcome], reporter: &StatusReporter) {
        if let Some(highest) = outcomes.iter().rfind(|outcome| !matches!(outcome, Outcome::Unconfirmed(_))) {
            reporter.placed(highest.offset());
        }
        for outcome in outcomes {
            match outcome {
                Outcome::Unconfirmed(event) => reporter.unconfirmed(event.facts.offset),
                Outcome::Pending(pending) if reporter.reads_first() => {
                    self.metrics.judged(kind_of(&pending.json).as_ref(), Sort::Pending);
                }
                _ => {}
            }
        }
    }

    pub(in crate::channel) fn verified(&self, kind: &EventType, proof: &Proof, now: i64) {
        self.metrics.judged(Some(kind), Sort::Verified);
        self.metrics.strangers(proof.strangers);
        self.signers.saw(&proof.signers, now);
    }

    pub(in crate::channel) fn unsigned(&self, unsigned: &Unsigned) {
        self.metrics.judged(Some(&unsigned.event().kind), Sort::Unsigned);
    }

    pub(in crate::channel) fn rejected(&self, json: &Bytes, rejection: &Rejection) {
        self.metrics.judged(kind_of(json).as_ref(), Sort::Rejected);
        self.metrics.rejected(rejection.reason);
        self.metrics.strangers(rejection.strangers);
    }
}

impl Rejection {
    pub(in crate::channel) fn new(reason: &'static str, detail: &str) -> Self {
        Self { reason, detail: detail.to_owned(), original: None, strangers: 0 }
    }
}

impl From<&Reason> for Rejection {
    fn from(reason: &Reason) -> Self {
        Self { reason: reason.name(), detail: reason.to_string(), original: None, strangers: reason.strangers() }
    }
}

impl From<Alarm> for Rejection {
    fn from(alarm: Alarm) -> Self {
        Self { original: Some(alarm.original()), ..Self::new(alarm.name(), &alarm.to_string()) }
    }
}

/// The type of an event, where it can be read.
fn kind_of(json: &Bytes) -> Option<EventType> {
    Event::parse(json.clone()).ok().map(|event| event.kind)
}
