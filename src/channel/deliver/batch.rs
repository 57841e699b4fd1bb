//! A range of events, sorted by the consequences of the verdicts.

use std::sync::Arc;

use bytes::Bytes;

use crate::settings::{Ordering, Settings};
use crate::verify::recent::digest_of;
use ledger::{Digest, HISTORY, KnownEvent, Pending, QuarantinedEvent};
use proof::event::{EventKey, Offset};
use record::Record;
use telemetry::trace::Trace;

/// The consequence of the verdict on an event.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The event is delivered to the sinks.
    Deliver(Record),
    /// The event is a notice, and the configuration drops notices.
    Dropped(EventKey),
    /// The event is set aside until its proof arrives.
    Pending(Pending),
    /// The event is quarantined.
    Rejected(QuarantinedEvent),
    /// The event is quarantined too, but the service did not confirm that such an event exists at that offset. The offset
    /// itself may be wrong, so reading does not continue above it without a confirmed event.
    Unconfirmed(QuarantinedEvent),
}

/// A lane's input.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// The next range.
    Batch(Arc<Batch>),
    /// An event whose proof arrived after the lane had passed it.
    Late(LateRecord),
    /// The lane has fallen behind, and reads for itself. Never in a queue.
    CatchUp,
}

/// An event that is delivered after later events.
#[derive(Clone, Debug)]
pub(crate) struct LateRecord {
    pub(crate) record: Arc<Record>,
    pub(crate) cause: Cause,
    pub(crate) trace: Trace,
}

/// Why an event is delivered late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its proof was late.
    Proof,
    /// It became visible after events with higher offsets.
    Appeared,
    /// An operator released it, or replays it.
    Operator,
}

/// A range, with all data that its commit needs.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The records to deliver, ascending.
    pub(crate) records: Vec<Arc<Record>>,
    /// The pending events to set aside.
    pub(crate) pending: Vec<Pending>,
    /// The events to quarantine.
    pub(crate) rejected: Vec<QuarantinedEvent>,
    /// The newest of its events, as far as they are remembered.
    pub(crate) known: Vec<KnownEvent>,
    /// The last offset of the range.
    pub(crate) through: Offset,
    /// The last offset and the trace of each of the joined ranges.
    pub(crate) parts: Vec<(Offset, Trace)>,
}

/// A range, divided into the batch to pass on now and the rest.
#[derive(Debug)]
pub(crate) struct Sorted {
    /// The batch to pass on.
    pub(crate) batch: Option<Batch>,
    /// Unconfirmed events above everything that is passed on now.
    pub(crate) unconfirmed: Vec<QuarantinedEvent>,
    /// In strict ordering, the first pending event.
    pub(crate) held: Option<Pending>,
    /// The outcomes that wait behind the held event.
    pub(crate) rest: Vec<Outcome>,
}

impl Batch {
    /// Sorts an ascending range that begins above `previous`.
    pub(crate) fn sort(
        settings: &Settings,
        trace: &Trace,
        mut previous: Option<Offset>,
        outcomes: Vec<Outcome>,
    ) -> Sorted {
        let (mut batch, mut unconfirmed): (Option<Self>, _) = (None, Vec::new());
        let mut outcomes = outcomes.into_iter();
        while let Some(outcome) = outcomes.next() {
            match outcome {
                Outcome::Pending(pending) if settings.verification.ordering == Ordering::Strict => {
                    return Sorted { batch, unconfirmed, held: Some(pending), rest: outcomes.collect() };
                }
                Outcome::Unconfirmed(event) => unconfirmed.push(event),
                placed => {
                    let batch = batch.get_or_insert_with(|| Self::through(placed.offset(), trace.clone()));
                    batch.rejected.append(&mut unconfirmed);
                    let offset = placed.offset();
                    batch.push(placed, previous);
                    previous = Some(offset);
                }
            }
        }
        Sorted { batch, unconfirmed, held: None, rest: Vec::new() }
    }

    /// Appends the batch that follows this one.
    pub(crate) fn join(&mut self, next: &Self) {
        self.records.extend_from_slice(&next.records);
        self.pending.extend_from_slice(&next.pending);
        self.rejected.extend_from_slice(&next.rejected);
        self.parts.extend_from_slice(&next.parts);
        self.known.extend_from_slice(&next.known);
        self.known.drain(..self.known.len().saturating_sub(HISTORY));
        self.through = next.through;
    }

    /// Removes the events above an offset. Returns whether the batch reached above it.
    pub(crate) fn end_at(&mut self, end: Offset) -> bool {
        if self.through <= end {
            return false;
        }
        self.records.retain(|record| record.offset <= end);
        self.pending.retain(|pending| pending.offset <= end);
        self.rejected.retain(|event| event.facts.offset <= end);
        self.known.retain(|event| event.key.offset <= end);
        let last = self.parts.iter().position(|(through, _)| *through >= end).unwrap_or_default();
        self.parts.truncate(last + 1);
        self.parts[last].0 = end;
        self.through = end;
        true
    }

    /// Returns the trace of the event at an offset.
    pub(crate) fn trace_at(&self, offset: Offset) -> &Trace {
        let part = self.parts.iter().find(|(through, _)| offset <= *through);
        &part.unwrap_or(&self.parts[self.parts.len() - 1]).1
    }

    /// Returns the size in bytes of its events that are set aside or quarantined.
    pub(crate) fn kept_bytes(&self) -> usize {
        let pending = self.pending.iter().map(|pending| &pending.json);
        pending.chain(self.rejected.iter().map(|rejected| &rejected.json)).map(Bytes::len).sum()
    }

    /// Creates a batch whose events are all rejected.
    pub(crate) fn of_rejected(rejected: Vec<QuarantinedEvent>, through: Offset, trace: Trace) -> Self {
        Self { rejected, ..Self::through(through, trace) }
    }

    fn through(through: Offset, trace: Trace) -> Self {
        let (records, pending, rejected, known) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { records, pending, rejected, known, through, parts: vec![(through, trace)] }
    }

    fn push(&mut self, outcome: Outcome, previous: Option<Offset>) {
        if let Some((key, digest)) = outcome.known() {
            if self.known.len() >= 2 * HISTORY {
                self.known.drain(..HISTORY);
            }
            self.known.push(KnownEvent { key, previous, digest });
        }
        self.through = outcome.offset();
        // A range that is being sorted is one part.
        self.parts[0].0 = self.through;
        match outcome {
            Outcome::Deliver(record) => self.records.push(Arc::new(record)),
            Outcome::Dropped(_) => {}
            Outcome::Pending(pending) => self.pending.push(pending),
            Outcome::Rejected(event) | Outcome::Unconfirmed(event) => self.rejected.push(event),
        }
    }
}

impl Outcome {
    /// Returns whether the event is quarantined.
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::Unconfirmed(_))
    }

    /// Returns the event's key and the digest of its proof, or `None` if the service did not confirm its offset. A rejected
    /// event has no id: only its offset is remembered.
    fn known(&self) -> Option<(EventKey, Option<Digest>)> {
        match self {
            Self::Deliver(record) => Some((record.event_key(), record.digest.as_ref().map(digest_of))),
            Self::Dropped(key) => Some((*key, None)),
            Self::Pending(pending) => Some((pending.event_key(), None)),
            Self::Rejected(event) => Some((EventKey::first_at(event.facts.offset), None)),
            Self::Unconfirmed(_) => None,
        }
    }

    /// Returns the event's key if the service did not confirm its offset.
    pub(crate) fn unconfirmed(&self) -> Option<EventKey> {
        if let Self::Unconfirmed(event) = self { Some(event.facts.event_key()) } else { None }
    }

    /// Returns the event's time in Unix seconds, if it is delivered and has a time.
    pub(crate) fn time(&self) -> Option<i64> {
        if let Self::Deliver(record) = self { record.time } else { None }
    }

    pub(crate) fn offset(&self) -> Offset {
        match self {
            Self::Deliver(record) => record.offset,
            Self::Dropped(key) => key.offset,
            Self::Pending(pending) => pending.offset,
            Self::Rejected(event) | Self::Unconfirmed(event) => event.facts.offset,
        }
    }
}
