//! Requests and verifies the next ranges while earlier ranges are being delivered.
//!
//! The first range is read without a task. If the service has more events, a task reads on. The task verifies a range while it
//! requests the next range. The processors therefore wait neither for the deliveries nor for the service.
//!
//! # Invariants
//!
//! * **Two ahead.** At most one range is in verification, or is verified but was not taken yet. After this range, at most one
//!   more range is requested or has arrived.
//! * **Only a matching range is used.** If reading continues at an offset other than the end of the previous range, the
//!   ranges that were read ahead are discarded. The reader is discarded too, because it has already advanced.
//! * **Safe to cancel** at any point: the task keeps the ranges until they are taken, or until [`Ahead`] is dropped. A range
//!   that is read without the task is read again.

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::error::ReadError;
use crate::read::reader::{Range, Reader};
use crate::run::context::ReadPlan;
use crate::verify::checked::Checked;
use net::tasks::joined;
use proof::event::{Offset, RawEvent};

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

/// A range whose events are being verified.
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
    /// The verification of the events. `None` if the range is empty.
    pub(crate) checking: Option<AbortOnDropHandle<Vec<Checked>>>,
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
        let Some(task) = &mut self.task else { return self.first(last).await };
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

    /// Reads a range without a task, because most channels have no more events. Starts a task if this channel has more.
    async fn first(&mut self, last: Option<Offset>) -> Result<ReadRange, ReadError> {
        let ReadPlan { source, settings, .. } = &*self.read_plan;
        // If this future is dropped, so is the reader, which may have advanced.
        let mut reader = self.reader.take().unwrap_or_else(|| Reader::new(source.clone(), settings.page_limit));
        let answered = request(&mut reader, &self.read_plan, last, false).await;
        let range = answered.map(|answered| answered.check(&self.read_plan));
        if let Some(above) = leads_to(&range) {
            let (sender, ranges) = mpsc::channel(1);
            let task = tokio::spawn(read_on(reader, self.read_plan.clone(), above, sender));
            self.task = Some(ReadingTask { ranges, above: Some(above), task: AbortOnDropHandle::new(task) });
        } else {
            self.reader = Some(reader);
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

/// Reads on while the service has more events. The verification of a range starts when the previous range was taken.
async fn read_on(
    mut reader: Reader,
    read_plan: Arc<ReadPlan>,
    mut last: Offset,
    ranges: mpsc::Sender<Result<ReadRange, ReadError>>,
) -> Reader {
    loop {
        let answered = request(&mut reader, &read_plan, Some(last), true).await;
        let Ok(room) = ranges.reserve().await else { return reader };
        let range = answered.map(|answered| answered.check(&read_plan));
        let above = leads_to(&range);
        room.send(range);
        match above {
            Some(above) => last = above,
            None => return reader,
        }
    }
}

/// Requests the next range, and does not verify it yet.
async fn request(
    reader: &mut Reader,
    read_plan: &ReadPlan,
    last: Option<Offset>,
    early: bool,
) -> Result<ReadRange, ReadError> {
    let began = SystemTime::now();
    let range = reader.next(last).await?;
    let (took, received) = (began..SystemTime::now(), read_plan.channel.parts.machine.time());
    let last = range.events.last().map(|event| event.offset);
    Ok(ReadRange { range, last, early, took, received, checking: None })
}

impl ReadRange {
    /// Starts the verification of the events, unless the range is empty.
    fn check(mut self, read_plan: &Arc<ReadPlan>) -> Self {
        let (events, received) = (std::mem::take(&mut self.range.events), self.received);
        let check = |_| AbortOnDropHandle::new(tokio::spawn(checked(read_plan.clone(), received, events)));
        self.checking = self.last.map(check);
        self
    }
}

async fn checked(read_plan: Arc<ReadPlan>, received: Timestamp, events: Vec<RawEvent>) -> Vec<Checked> {
    let began = Instant::now();
    let checked = read_plan.check(received, events).await;
    read_plan.channel.metrics.checked(began.elapsed());
    checked
}
