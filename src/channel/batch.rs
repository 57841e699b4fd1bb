//! A range of judged events, sorted by what follows from each verdict.

use std::sync::Arc;

use crate::config::Ordering;
use crate::event::Offset;
use crate::record::Record;
use crate::state::{Evidence, Pending};
use crate::trace::Trace;

use super::Settings;

/// What becomes of one event.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It goes to the sinks.
    Deliver(Record),
    /// A notice that the configuration leaves out.
    Dropped(Offset),
    /// Its proof has not come.
    Pending(Pending),
    /// It is kept as evidence.
    Condemned(Evidence),
    /// So is this, but the service, asked for it, did not confirm that there is such an event at that offset: the offset
    /// itself may be nonsense, and reading must not go on above it because of it.
    Unplaced(Evidence),
}

/// What a lane is given to do.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// The next range.
    Batch(Arc<Batch>),
    /// An event whose proof has come after the lane had passed it.
    Late(Arc<Record>),
}

/// A range with everything that recording it has to say.
#[derive(Debug)]
pub(super) struct Batch {
    /// To be delivered, ascending.
    pub(super) records: Vec<Arc<Record>>,
    /// To be set aside.
    pub(super) pending: Vec<Pending>,
    /// To be quarantined.
    pub(super) condemned: Vec<Evidence>,
    /// The last offset of the range, whatever became of it.
    pub(super) through: Offset,
    /// What it is known by: the last part of it, where batches were joined.
    trace: Trace,
    /// What the parts before it are known by, and how far each goes.
    earlier: Vec<(Offset, Trace)>,
}

/// A range, as far as it may go on.
#[derive(Debug)]
pub(super) struct Sorted {
    /// What goes on now.
    pub(super) batch: Option<Batch>,
    /// Evidence above everything that goes on now.
    pub(super) unplaced: Vec<Evidence>,
    /// In strict ordering, the event without its proof that everything after it waits for.
    pub(super) held: Option<Pending>,
    /// What waits for it.
    pub(super) rest: Vec<Outcome>,
}

impl Batch {
    /// Sorts an ascending range.
    pub(super) fn sort(settings: &Settings, trace: &Trace, outcomes: Vec<Outcome>) -> Sorted {
        let (mut batch, mut unplaced): (Option<Self>, _) = (None, Vec::new());
        let mut outcomes = outcomes.into_iter();
        while let Some(outcome) = outcomes.next() {
            match outcome {
                Outcome::Pending(pending) if settings.ordering == Ordering::Strict => {
                    return Sorted { batch, unplaced, held: Some(pending), rest: outcomes.collect() };
                }
                Outcome::Unplaced(evidence) => unplaced.push(evidence),
                placed => {
                    let batch = batch.get_or_insert_with(|| Self::through(placed.offset(), trace.clone()));
                    batch.condemned.append(&mut unplaced);
                    batch.push(placed);
                }
            }
        }
        Sorted { batch, unplaced, held: None, rest: Vec::new() }
    }

    /// One of several that follow each other. There is at least one.
    pub(super) fn join(mut batches: Vec<Arc<Self>>) -> Arc<Self> {
        if let [_] = batches[..] {
            return batches.remove(0);
        }
        let mut joined = Self::through(batches[0].through, batches[0].trace.clone());
        let mut earlier = Vec::with_capacity(batches.len());
        for batch in batches {
            joined.records.extend_from_slice(&batch.records);
            joined.pending.extend_from_slice(&batch.pending);
            joined.condemned.extend_from_slice(&batch.condemned);
            (joined.through, joined.trace) = (batch.through, batch.trace.clone());
            earlier.push((batch.through, batch.trace.clone()));
        }
        joined.earlier = earlier;
        Arc::new(joined)
    }

    /// What brought the event at an offset.
    pub(super) fn trace_at(&self, offset: Offset) -> &Trace {
        self.earlier.iter().find(|(through, _)| offset <= *through).map_or(&self.trace, |(_, trace)| trace)
    }

    /// Its parts: how far each goes, and what brought it.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Offset, &Trace)> {
        let earlier = self.earlier.iter().map(|(through, trace)| (*through, trace));
        // Of joined batches the last is among them.
        earlier.chain(Some((self.through, &self.trace)).filter(|_| self.earlier.is_empty()))
    }

    /// How many events it holds.
    pub(super) fn len(&self) -> usize {
        self.records.len() + self.pending.len() + self.condemned.len()
    }

    /// A range of which nothing goes on.
    pub(super) fn of_evidence(condemned: Vec<Evidence>, through: Offset, trace: Trace) -> Self {
        Self { condemned, ..Self::through(through, trace) }
    }

    fn through(through: Offset, trace: Trace) -> Self {
        let (records, pending, condemned, earlier) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { records, pending, condemned, through, trace, earlier }
    }

    fn push(&mut self, outcome: Outcome) {
        self.through = outcome.offset();
        match outcome {
            Outcome::Deliver(record) => self.records.push(Arc::new(record)),
            Outcome::Dropped(_) => {}
            Outcome::Pending(pending) => self.pending.push(pending),
            Outcome::Condemned(evidence) | Outcome::Unplaced(evidence) => self.condemned.push(evidence),
        }
    }
}

impl Outcome {
    /// Whether it goes to the quarantine.
    pub(super) fn is_evidence(&self) -> bool {
        matches!(self, Self::Condemned(_) | Self::Unplaced(_))
    }

    pub(super) fn offset(&self) -> Offset {
        match self {
            Self::Deliver(record) => record.offset(),
            Self::Dropped(offset) => *offset,
            Self::Pending(pending) => pending.offset,
            Self::Condemned(evidence) | Self::Unplaced(evidence) => evidence.facts.offset,
        }
    }
}
