//! The line of an event that this command has verified itself.

use std::borrow::Cow;

use crate::cli::terminal::event_line::EventLine;
use crate::cli::verdict_line::printable;
use proof::event::{Event, RawEvent};
use proof::verify::Verdict;
use record::{ChannelRef, Lines, Readable, Record};

/// The line of an event with any verdict.
pub(crate) fn event_line(channel: &ChannelRef, verdict: &Verdict) -> EventLine {
    let parts = match (record_of(channel, verdict), verdict) {
        (Some(record), _) => Readable::of(&record),
        (None, Verdict::Rejected(_, reason)) => unproved(channel, verdict, reason.name().to_owned()),
        (None, _) => {
            let (_, event) = verdict.parts();
            let status = event.and_then(|event| event.payload.status.as_deref().map(printable)).unwrap_or_default();
            Readable { proof: "no proof yet".to_owned(), ..unproved(channel, verdict, status) }
        }
    };
    EventLine { parts, position: None, is_late: false }
}

/// The line of an event that is rejected for a reason that is not in its verdict.
pub(super) fn rejected_line(channel: &ChannelRef, verdict: &Verdict, reason: &str) -> EventLine {
    let rejected = unproved(channel, verdict, reason.to_owned());
    let parts = Readable { verdict: Cow::Borrowed("rejected"), ..rejected };
    EventLine { parts, position: None, is_late: false }
}

/// The record of an event that is verified or unsigned.
pub(super) fn record_of(channel: &ChannelRef, verdict: &Verdict) -> Option<Record> {
    let lines = &mut Lines::of(1);
    match verdict {
        Verdict::Verified(verified) => Some(Record::verified(channel, verified, lines)),
        Verdict::Unsigned(unsigned) => Some(Record::unsigned(channel, unsigned, lines)),
        Verdict::Pending(_) | Verdict::Rejected(..) => None,
    }
}

/// The parts of a line that are shown for an unproved event: offset, time and type.
fn unproved(channel: &ChannelRef, verdict: &Verdict, what: String) -> Readable {
    let (RawEvent { offset, .. }, event) = verdict.parts();
    let event = event.as_ref();
    let time = |event: &Event| record::rfc3339(event.payload.timestamp?);
    Readable {
        verdict: Cow::Borrowed(verdict.name()),
        channel: channel.name.to_string(),
        offset: *offset,
        time: event.and_then(time).unwrap_or_default(),
        kind: event.map(|event| printable(event.kind.as_ref())).unwrap_or_default(),
        what,
        proof: String::new(),
        confidence: String::new(),
    }
}
