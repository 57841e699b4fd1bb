//! Requests and verifies the next ranges while earlier ranges are being delivered.
//!
//! A task reads while the service has more events. It verifies a range while it requests the next range. The processors
//! therefore wait neither for the deliveries nor for the service.
//!
//! # Invariants
//!
//! * **Two ahead.** At most one range is in verification, or is verified but was not taken yet. After this range, at most one
//!   more range is requested or has arrived.
//! * **Only a matching range is used.** If reading continues at an offset other than the end of the previous range, the
//!   ranges that were read ahead are discarded. The reader is discarded too, because it has already advanced.
//! * **Safe to cancel** at any point: the task keeps the ranges until they are taken, or until [`Ahead`] is dropped.

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::error::ReadError;
use crate::read::reader::{Range, Reader};
use crate::run::context::ReadPlan;
use crate::verify::Checked;
use net::tasks::joined;
use proof::event::Offset;

#[derive(Debug)]
pub(crate) struct Ahead {
    read_plan: Arc<ReadPlan>,
    reader: Option<Reader>,
    task: Option<ReadingTask>,
}

#[derive(Debug)]
struct ReadingTask {
    ranges: mpsc::Receiver<Result<ReadRange, ReadError>>,
    /// The offset above which the next range begins.
    above: Option<Offset>,
    task: AbortOnDropHandle<Reader>,
}

/// A range that has arrived and is being verified.
#[derive(Debug)]
pub(crate) struct ReadRange {
    /// The range without its events, which are being verified.
    pub(crate) range: Range,
    /// The last offset of the range, or `None` if the range is empty.
    pub(crate) last: Option<Offset>,
    /// Whether the range was read ahead. If so, `range.more` was correct when the range was read, but may be outdated.
    pub(crate) early: bool,
    /// The time from the first request to the last answer.
    pub(crate) took: Span<SystemTime>,
    pub(crate) received: Timestamp,
    pub(crate) checking: AbortOnDropHandle<Vec<Checked>>,
}

impl Ahead {
    pub(crate) fn new(read_plan: Arc<ReadPlan>) -> Self {
        Self { read_plan, reader: None, task: None }
    }

    /// Returns the next events above `last`, possibly none.
    pub(crate) async fn next(&mut self, last: Option<Offset>) -> Result<ReadRange, ReadError> {
        if self.task.as_ref().is_some_and(|task| task.above != last) {
            self.forget();
        }
        let task = self.task.get_or_insert_with(|| {
            let ReadPlan { source, settings, .. } = &*self.read_plan;
            let begin = || Reader::new(source.clone(), settings.page_limit);
            let reader = self.reader.take().unwrap_or_else(begin);
            let (sender, ranges) = mpsc::channel(1);
            let task = tokio::spawn(read_on(reader, self.read_plan.clone(), last, sender));
            ReadingTask { ranges, above: last, task: AbortOnDropHandle::new(task) }
        });
        let Some(range) = task.ranges.recv().await else {
            joined((&mut task.task).await).await;
            unreachable!("the task ends only after a range without more events, and is then forgotten")
        };
        task.above = leads_to(&range);
        if task.above.is_none() {
            self.reader = Some(joined((&mut task.task).await).await);
            self.task = None;
        }
        range
    }

    pub(crate) fn forget(&mut self) {
        (self.task, self.reader) = (None, None);
    }
}

/// Returns the last offset of the range, if the service has more events above it.
fn leads_to(range: &Result<ReadRange, ReadError>) -> Option<Offset> {
    range.as_ref().ok().filter(|read| read.range.more)?.last
}

/// Reads while the service has more events. The verification of a range starts when the previous range was taken.
async fn read_on(
    mut reader: Reader,
    read_plan: Arc<ReadPlan>,
    mut last: Option<Offset>,
    ranges: mpsc::Sender<Result<ReadRange, ReadError>>,
) -> Reader {
    let mut early = false;
    loop {
        let began = SystemTime::now();
        let range = reader.next(last).await;
        let (took, received) = (began..SystemTime::now(), read_plan.channel.parts.machine.time());
        let Ok(room) = ranges.reserve().await else { return reader };
        let range = range.map(|mut range| {
            let (events, read_plan) = (std::mem::take(&mut range.events), read_plan.clone());
            let last = events.last().map(|event| event.offset);
            let checking = tokio::spawn(async move {
                let began = Instant::now();
                let checked = read_plan.check(received, events).await;
                read_plan.channel.metrics.checked(began.elapsed());
                checked
            });
            ReadRange { range, last, early, took, received, checking: AbortOnDropHandle::new(checking) }
        });
        let above = leads_to(&range);
        room.send(range);
        if above.is_none() {
            return reader;
        }
        (last, early) = (above, true);
    }
}
