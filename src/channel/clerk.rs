//! The part of judging that needs nobody else, and costs the most: an event's verdict, and its record.

use std::sync::Arc;

use crate::config::UnsignedPolicy;
use crate::event::RawEvent;
use crate::record::{ChannelRef, Lines, Record};
use crate::verify::{Proof, Reason, Unsigned, Verdict, Verifier};

use super::plan::Settings;

/// Prepares one channel's events for their judge.
#[derive(Debug)]
pub(super) struct Clerk {
    channel: ChannelRef,
    verifier: Arc<Verifier>,
    unsigned: UnsignedPolicy,
}

/// An event by its verdict, with the record of what may be delivered: assembled once, for however many sinks.
#[derive(Debug)]
pub(super) enum Heard {
    /// With no more of the event than may still be asked for.
    Verified(RawEvent, Proof, Record),
    /// Without a record where the configuration leaves notices out.
    Unsigned(Unsigned, Option<Record>),
    Pending(RawEvent),
    Rejected(RawEvent, Reason),
}

impl Heard {
    /// What is rejected, and why.
    pub(super) fn rejected(&self) -> Option<(RawEvent, Reason)> {
        match self {
            Self::Rejected(raw, reason) => Some((raw.clone(), reason.clone())),
            _ => None,
        }
    }
}

impl Clerk {
    pub(super) fn new(settings: &Settings) -> Self {
        let Settings { channel, verifier, unsigned, .. } = settings;
        Self { channel: channel.clone(), verifier: verifier.clone(), unsigned: *unsigned }
    }

    /// What proves the events.
    pub(super) fn verifier(&self) -> &Arc<Verifier> {
        &self.verifier
    }

    /// Hears events that follow each other, in their order. Blocks for as long as the signatures take.
    pub(super) fn hear(&self, events: Vec<RawEvent>) -> Vec<Heard> {
        let (mut sitting, mut lines) = (self.verifier.sitting(), Lines::of(events.len()));
        events.into_iter().map(|raw| self.assemble(sitting.judge(raw), &mut lines)).collect()
    }

    /// Adds the record to a verdict.
    pub(super) fn assemble(&self, verdict: Verdict, lines: &mut Lines) -> Heard {
        match verdict {
            Verdict::Verified(verified) => {
                let record = Record::verified(&self.channel, &verified, lines);
                let (raw, proof) = verified.into_parts();
                Heard::Verified(raw, proof, record)
            }
            Verdict::Unsigned(notice) => {
                let record = || Record::unsigned(&self.channel, &notice, lines);
                let record = (self.unsigned == UnsignedPolicy::Deliver).then(record);
                Heard::Unsigned(notice, record)
            }
            Verdict::Pending(raw) => Heard::Pending(raw),
            Verdict::Rejected(raw, reason) => Heard::Rejected(raw, reason),
        }
    }
}
