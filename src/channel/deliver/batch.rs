//! A range of events, sorted by the consequence of each verdict.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;

use crate::verify::recent::digest_of;
use ledger::{Digest, HISTORY, KnownEvent, Pending, QuarantinedEvent};
use proof::event::{EventKey, Offset};
use record::Record;
use telemetry::trace::Trace;

/// The consequence of the verdict on an event.
#[derive(Debug)]
pub(crate) enum Disposition {
    Deliver(Record),
    /// The event is a notice, and the configuration drops notices.
    Dropped(EventKey),
    /// The event is set aside until its proof arrives.
    Pending(Pending),
    Rejected(QuarantinedEvent),
    /// The event is quarantined like a rejected event, but the service did not confirm that the event exists at its offset.
    /// The offset may be wrong, so reading continues above it only if a confirmed event follows.
    Unconfirmed(QuarantinedEvent),
}

/// The input of a lane. In the lane's queue, `B` is a batch that all lanes share. After the queue, `B` is a batch that was
/// prepared for the lane's sink.
#[derive(Clone, Debug)]
pub(crate) enum Work<B = Arc<Batch>> {
    Batch(B),
    /// An event whose proof arrived after the lane had passed it. Boxed, so that the queue of an idle lane is small.
    Late(Box<LateRecord>),
    /// The lane has fallen behind, and must read for itself. A queue never contains this variant.
    CatchUp,
}

#[derive(Clone, Debug)]
pub(crate) struct LateRecord {
    pub(crate) record: Arc<Record>,
    pub(crate) cause: Cause,
    pub(crate) trace: Trace,
    /// Whether one of the lanes that this record was offered to records its proof. All clones share this flag.
    is_proof_recorded: Arc<AtomicBool>,
}

/// Why an event is delivered late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The event's proof was late.
    Proof,
    /// The event became visible after events with higher offsets.
    Appeared,
    /// An operator released the event, or replays it.
    Operator,
}

/// A verified range, with all data that the commit of the range needs.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The records to deliver, in ascending order of offsets.
    pub(crate) records: Vec<Arc<Record>>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) rejected: Vec<QuarantinedEvent>,
    /// The events of the batch for the history, in ascending order of offsets. All of them, because a delivery can end at each.
    pub(crate) known: Vec<KnownEvent>,
    /// The last offset of the range.
    pub(crate) through: Offset,
    /// For each of the joined ranges, its last offset and its trace.
    pub(crate) parts: Vec<(Offset, Trace)>,
}

impl LateRecord {
    pub(crate) fn new(record: Record, cause: Cause, trace: Trace) -> Self {
        Self { record: Arc::new(record), cause, trace, is_proof_recorded: Arc::default() }
    }

    /// Returns whether the calling lane must record the proof: `true` only for the first of the lanes. If this lane then fails to
    /// record the event, the event is still pending for it, and is offered again as another `LateRecord`.
    pub(super) fn claim_proof(&self) -> bool {
        !self.is_proof_recorded.swap(true, Relaxed)
    }
}

impl Batch {
    pub(crate) fn join(&mut self, next: &Self) {
        self.records.extend_from_slice(&next.records);
        self.pending.extend_from_slice(&next.pending);
        self.rejected.extend_from_slice(&next.rejected);
        self.parts.extend_from_slice(&next.parts);
        self.known.extend_from_slice(&next.known);
        self.through = next.through;
    }

    /// Cuts the batch at `end`, by removing the events above it.
    pub(crate) fn end_at(&mut self, end: Offset) {
        if self.through <= end {
            return;
        }
        self.records.retain(|record| record.offset <= end);
        self.pending.retain(|pending| pending.offset <= end);
        self.rejected.retain(|event| event.facts.offset <= end);
        self.known.retain(|event| event.key.offset <= end);
        let last = self.parts.iter().position(|(through, _)| *through >= end).unwrap_or_default();
        self.parts.truncate(last + 1);
        self.parts[last].0 = end;
        self.through = end;
    }

    /// Returns the newest events at or below `through`, at most [`HISTORY`].
    pub(crate) fn known_through(&self, through: Offset) -> &[KnownEvent] {
        let end = self.known.partition_point(|event| event.key.offset <= through);
        &self.known[end.saturating_sub(HISTORY)..end]
    }

    pub(crate) fn trace_at(&self, offset: Offset) -> &Trace {
        let part = self.parts.iter().find(|(through, _)| offset <= *through);
        &part.unwrap_or(&self.parts[self.parts.len() - 1]).1
    }

    /// Returns the total size in bytes of the events in the batch that are set aside or quarantined.
    pub(crate) fn kept_bytes(&self) -> usize {
        let pending = self.pending.iter().map(|pending| &pending.json);
        pending.chain(self.rejected.iter().map(|rejected| &rejected.json)).map(Bytes::len).sum()
    }

    pub(crate) fn through(through: Offset, trace: Trace) -> Self {
        let (records, pending, rejected, known) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { records, pending, rejected, known, through, parts: vec![(through, trace)] }
    }

    /// Appends the next event. `previous` is the offset of the previous confirmed event.
    pub(crate) fn push(&mut self, outcome: Disposition, previous: Option<Offset>) {
        if let Some((key, digest)) = outcome.known() {
            self.known.push(KnownEvent { key, previous, digest });
        }
        self.through = outcome.offset();
        // A batch has only one part while its range is being sorted.
        self.parts[0].0 = self.through;
        match outcome {
            Disposition::Deliver(record) => self.records.push(Arc::new(record)),
            Disposition::Dropped(_) => {}
            Disposition::Pending(pending) => self.pending.push(pending),
            Disposition::Rejected(event) | Disposition::Unconfirmed(event) => self.rejected.push(event),
        }
    }
}

impl Disposition {
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::Unconfirmed(_))
    }

    /// Returns the event's key and the digest of its proof, for the history. Returns `None` if the service did not confirm
    /// the event's offset. The history does not contain the id of a rejected event.
    fn known(&self) -> Option<(EventKey, Option<Digest>)> {
        match self {
            Self::Deliver(record) => Some((record.event_key(), record.digest.as_ref().map(digest_of))),
            Self::Dropped(key) => Some((*key, None)),
            Self::Pending(pending) => Some((pending.event_key(), None)),
            Self::Rejected(event) => Some((EventKey::first_at(event.facts.offset), None)),
            Self::Unconfirmed(_) => None,
        }
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
