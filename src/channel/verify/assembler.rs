//! The costly part of verifying, which needs no other event: an event's verdict, and its record.

use std::sync::Arc;

use crate::channel::settings::{Settings, UnsignedPolicy};
use crate::event::RawEvent;
use crate::record::{ChannelRef, Lines, Record};
use crate::verify::{Proof, Reason, Unsigned, Verdict, Verifier};

/// Checks one channel's events, and makes their records.
#[derive(Debug)]
pub(in crate::channel) struct Assembler {
    channel: ChannelRef,
    verifier: Arc<Verifier>,
    unsigned: UnsignedPolicy,
}

/// An event by its verdict, with the record of what may be delivered. The record is made once for all sinks.
#[derive(Debug)]
pub(in crate::channel) enum Checked {
    /// With as much of the event as is needed to read it again.
    Verified(RawEvent, Proof, Record),
    /// Without a record where the configuration leaves out notices.
    Unsigned(Unsigned, Option<Record>),
    Pending(RawEvent),
    Rejected(RawEvent, Reason),
}

impl Checked {
    /// The event and the reason, if it is rejected.
    pub(in crate::channel) fn rejected(&self) -> Option<(RawEvent, Reason)> {
        match self {
            Self::Rejected(raw, reason) => Some((raw.clone(), reason.clone())),
            _ => None,
        }
    }
}

impl Assembler {
    pub(in crate::channel) fn new(settings: &Settings) -> Self {
        let Settings { channel, verifier, unsigned, .. } = settings;
        Self { channel: channel.clone(), verifier: verifier.clone(), unsigned: *unsigned }
    }

    /// The channel's verifier.
    pub(in crate::channel) fn verifier(&self) -> &Arc<Verifier> {
        &self.verifier
    }

    /// Checks events that follow each other, in their order. Blocks while the signatures are checked.
    pub(in crate::channel) fn check(&self, events: Vec<RawEvent>) -> Vec<Checked> {
        let (mut verifier, mut lines) = (self.verifier.sitting(), Lines::of(events.len()));
        events.into_iter().map(|raw| self.assemble(verifier.judge(raw), &mut lines)).collect()
    }

    /// Adds the record to a verdict.
    pub(in crate::channel) fn assemble(&self, verdict: Verdict, lines: &mut Lines) -> Checked {
        match verdict {
            Verdict::Verified(verified) => {
                let record = Record::verified(&self.channel, &verified, lines);
                let (raw, proof) = verified.into_parts();
                Checked::Verified(raw, proof, record)
            }
            Verdict::Unsigned(notice) => {
                let record = || Record::unsigned(&self.channel, &notice, lines);
                let record = (self.unsigned == UnsignedPolicy::Deliver).then(record);
                Checked::Unsigned(notice, record)
            }
            Verdict::Pending(raw) => Checked::Pending(raw),
            Verdict::Rejected(raw, reason) => Checked::Rejected(raw, reason),
        }
    }
}
