//! The expensive part of verification: finds the verdict on an event and builds the event's record. This needs no other
//! event.

use std::sync::Arc;

use jiff::Timestamp;

use crate::channel::settings::{Settings, UnsignedPolicy};
use crate::status::unknown::{FoundValues, UnknownReporter};
use crate::verify::reason::{Rejection, RejectionReason};
use net::memory::ChannelMemory;
use proof::event::{EventKey, RawEvent};
use proof::verify::{Proof, Unsigned, Verdict};
use record::{Lines, Record};

/// An event with its verdict. If the event may be delivered, its record is included. The record is built once for all sinks.
#[derive(Debug)]
pub(crate) enum Checked {
    /// The raw event is included, so that the event can be read again by its id.
    Verified(RawEvent, Proof, Record),
    /// A notice. It has no record if the configuration drops notices.
    Unsigned(Unsigned, Option<Record>),
    Pending(RawEvent),
    Rejected(RawEvent, Rejection),
    /// The event was rejected, and the service did not confirm that it exists at its offset.
    Unconfirmed(RawEvent, Rejection),
}

/// The parameters of a check, which are the same for all events of a range.
#[derive(Clone, Debug)]
pub(crate) struct CheckParameters {
    pub(crate) settings: Arc<Settings>,
    /// When the events were first read.
    pub(crate) received: Timestamp,
    /// The memory account that the records are charged to.
    pub(crate) memory: Arc<ChannelMemory>,
    /// Reports the values that this version does not know. `None` if the events are reported elsewhere.
    pub(crate) unknown: Option<UnknownReporter>,
}

impl Checked {
    /// Checks consecutive events, and returns the results in the same order. Blocks the thread.
    pub(crate) fn all(parameters: &CheckParameters, events: Vec<RawEvent>) -> Vec<Self> {
        let CheckParameters { settings, received, memory, unknown } = parameters;
        let mut lines = Lines::of(events.len()).received(*received).counted_by(memory.clone());
        let mut found = FoundValues::default();
        let verdicts = settings.verification.verifier.verify_noting(events, |offset, value| found.note(offset, value));
        if let Some(unknown) = unknown {
            unknown.report(found);
        }
        verdicts.into_iter().map(|verdict| Self::new(settings, verdict, &mut lines)).collect()
    }

    pub(crate) fn event_key(&self) -> EventKey {
        match self {
            Self::Verified(raw, ..) | Self::Pending(raw) | Self::Rejected(raw, _) | Self::Unconfirmed(raw, _) => {
                raw.event_key()
            }
            Self::Unsigned(unsigned, _) => unsigned.event().raw.event_key(),
        }
    }

    pub(crate) fn rejected_for(&self) -> Option<RejectionReason> {
        match self {
            Self::Rejected(_, rejection) | Self::Unconfirmed(_, rejection) => Some(rejection.reason),
            _ => None,
        }
    }

    /// Builds the record of an event, and checks a verified event against the `expect` lists.
    pub(crate) fn new(settings: &Settings, verdict: Verdict, lines: &mut Lines) -> Self {
        let Settings { channel, verification, .. } = settings;
        match verdict {
            Verdict::Verified(verified) => {
                let record = Record::verified(channel, &verified, lines);
                let is_ours = verification.expect.check(channel.id, verified.proof(), record.decoded());
                let (raw, proof) = verified.into_parts();
                match is_ours {
                    Ok(()) => Self::Verified(raw, proof, record),
                    Err(not) => Self::Rejected(raw, Rejection::not_of_channel(&not, &proof)),
                }
            }
            Verdict::Unsigned(notice) => {
                let record = (verification.unsigned == UnsignedPolicy::Deliver)
                    .then(|| Record::unsigned(channel, &notice, lines));
                Self::Unsigned(notice, record)
            }
            Verdict::Pending(raw) => Self::Pending(raw),
            Verdict::Rejected(raw, reason) => Self::Rejected(raw, (&reason).into()),
        }
    }
}
