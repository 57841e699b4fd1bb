//! The ranges that come next: requested and checked while the range before is handed on.
//!
//! A task reads, for as long as there is more to read. It has a range checked as soon as the range has arrived, and requests
//! the next one meanwhile: no processor waits for the range before, nor for the service.
//!
//! # Invariants
//!
//! * **Two ahead.** At most one range is being checked, or is checked and waits to be taken. At most one more is requested,
//!   or has arrived, behind it.
//! * **From where reading really goes on.** Ranges above another offset than the one at which the range before ended are
//!   thrown away, together with the reader, which has moved on.
//!
//! # Cancellation
//!
//! At any point: what is read stays in the task until it is taken, or ends with the [`Ahead`].

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::ChannelError;
use crate::context::ReadPlan;
use crate::read::reader::{Range, ReadError, Reader};
use crate::verify::Checked;
use net::tasks::joined;
use proof::event::{Offset, RawEvent};

/// Reads one channel upwards by one plan.
#[derive(Debug)]
pub(crate) struct Ahead {
    read_plan: Arc<ReadPlan>,
    /// `None` while a task reads.
    reader: Option<Reader>,
    task: Option<ReadingTask>,
}

#[derive(Debug)]
struct ReadingTask {
    ranges: mpsc::Receiver<Result<ReadRange, ReadError>>,
    /// The last offset before what arrives next.
    above: Option<Offset>,
    /// Gives the reader back.
    task: AbortOnDropHandle<Reader>,
}

/// A range that has arrived, and is being checked.
#[derive(Debug)]
pub(crate) struct ReadRange {
    /// Its last offset; `None` where it holds nothing.
    pub(crate) last: Option<Offset>,
    /// Events that came with it although they were read before.
    pub(crate) overlap: Vec<RawEvent>,
    /// Whether to ask for more at once.
    pub(crate) more: bool,
    /// Whether a walk read it, which shows nothing that was read before.
    pub(crate) is_walked: bool,
    /// Whether it was read ahead: whether there is more was true then, and may have changed.
    pub(crate) early: bool,
    /// From the first request until the last answer.
    pub(crate) took: Span<SystemTime>,
    /// When its events were first read.
    pub(crate) received: Timestamp,
    /// Its events, in their order, once all of them are checked.
    pub(crate) checking: AbortOnDropHandle<Result<Vec<Checked>, ChannelError>>,
}

impl Ahead {
    pub(crate) fn new(read_plan: Arc<ReadPlan>) -> Self {
        Self { read_plan, reader: None, task: None }
    }

    /// The next events above `last`, which may be none. `last` is where the range before ended, as far as it was handed on.
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
            unreachable!("the task ends after a range that does not lead on, and is then forgotten")
        };
        task.above = leads_to(&range);
        if task.above.is_none() {
            self.reader = Some(joined((&mut task.task).await).await);
            self.task = None;
        }
        range
    }

    /// Throws away what was read ahead.
    pub(crate) fn forget(&mut self) {
        (self.task, self.reader) = (None, None);
    }
}

/// The range's end, where there is more to be read above it.
fn leads_to(range: &Result<ReadRange, ReadError>) -> Option<Offset> {
    range.as_ref().ok().filter(|range| range.more)?.last
}

/// Reads on while there is more. A range is checked once the range before has been taken.
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
        let range = range.map(|range| {
            let Range { events, overlap, more, is_walked } = range;
            let last = events.last().map(|event| event.offset);
            let read_plan = read_plan.clone();
            let checking = tokio::spawn(async move {
                let began = Instant::now();
                let checked = read_plan.check(received, events).await;
                read_plan.channel.metrics.checked(began.elapsed());
                checked
            });
            ReadRange {
                last,
                overlap,
                more,
                is_walked,
                early,
                took,
                received,
                checking: AbortOnDropHandle::new(checking),
            }
        });
        let above = leads_to(&range);
        room.send(range);
        if above.is_none() {
            return reader;
        }
        (last, early) = (above, true);
    }
}
