//! An event of a channel: its position, its intended kind, and its record.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::kind::{EventSpec, Original};
use super::padding::{Padding, SharedBody};
use crate::misbehaviour::Misbehaviour;

/// The cell for an event's record. It is filled when the record is made.
pub(crate) type RecordCell = Arc<OnceLock<Rendered>>;

/// An event's position and its intended kind.
pub(crate) struct LogEntry {
    pub(crate) index: u64,
    /// The event's id and content are computed from this number. It equals the index, unless the service went back in
    /// time before it published the event.
    pub(crate) drawn: u64,
    pub(crate) offset: i64,
    /// The time of the event in Unix seconds.
    pub(crate) timestamp: i64,
    /// How often the event's watcher was redeployed before the event.
    pub(crate) deployment: u64,
    pub(crate) spec: EventSpec,
    /// Whether the proof is being withheld.
    pub(crate) withheld: bool,
    /// How the channel of the event misbehaves.
    pub(crate) misbehaviour: Option<Misbehaviour>,
    /// The cell for the record of an event that a test asked for. Records of other events are in the channel's cache.
    pub(crate) own_cell: Option<RecordCell>,
}

impl LogEntry {
    /// Returns the padding that makes the event large or deep.
    pub(crate) fn padding(&self) -> Option<&'static Padding> {
        self.misbehaviour.and_then(Misbehaviour::padding)
    }

    /// Returns the original event as an honest event, so that another event can take its payload and proof.
    pub(crate) fn of_original(original: &Original) -> Self {
        let &Original { index, timestamp, deployment, kind, .. } = original;
        Self {
            index,
            drawn: index,
            offset: 0,
            timestamp,
            deployment,
            spec: EventSpec::Honest(kind),
            withheld: false,
            misbehaviour: None,
            own_cell: None,
        }
    }
}

/// A record's JSON. It is signed once. Writing it again, with or without its proofs, is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Rendered {
    pub(crate) json: Bytes,
    /// The position of the items of `headers.proofs`.
    pub(crate) proofs: Range<usize>,
    /// The shared padding, and its position in the record. The padding comes after the proofs.
    pub(crate) padding: Option<(usize, Bytes)>,
}

impl Rendered {
    /// Appends the record. Leaves out its proofs if they are withheld.
    pub(crate) fn write(&self, withheld: bool, out: &mut SharedBody) {
        let shown = if withheld { self.proofs.start } else { self.proofs.end };
        out.copy(&self.json[..shown]);
        let mut rest = self.proofs.end;
        if let Some((at, padding)) = &self.padding {
            out.copy(&self.json[rest..*at]);
            out.share(padding);
            rest = *at;
        }
        out.copy(&self.json[rest..]);
    }

    /// Returns the length of the record with its proofs and without the shared padding.
    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }
}
