//! The ranges that come next: requested and checked while the range before is handed on.
//!
//! While there is more to read, a task of its own reads on. It has the next range checked as soon as the range has arrived,
//! so that no processor waits for the last events of the range before. It requests the one after that meanwhile, so that
//! none waits for the service either. Once there is no more, nothing is read ahead.
//!
//! # Invariants
//!
//! * **Two ahead.** At most one range is being checked, or is checked and waits to be taken. At most one more is requested,
//!   or has arrived, behind it.
//! * **From where reading really goes on.** Ranges above another offset than the one at which the range before ended are
//!   thrown away, together with the reader, which has moved on.
//! * **With a permit.** A channel that is behind requests and checks a range with one of the [`permits`](super::permits). It
//!   gives the permit back while what it has read is not taken.
//!
//! # Cancellation
//!
//! At any point: a range that is read ahead stays in its task until it is taken, or ends with the [`Ahead`]. Any other range
//! is requested anew.

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::channel::ChannelError;
use crate::channel::context::ReadPlan;
use crate::channel::read::permits::ReadPermit;
use crate::channel::read::reader::{Range, ReadError, Reader};
use crate::channel::verify::assembler::Checked;
use crate::event::Offset;
use crate::tasks::joined;

/// Reads one channel upwards by one plan.
#[derive(Debug)]
pub(in crate::channel) struct Ahead {
    read_plan: Arc<ReadPlan>,
    /// `None` while a task reads ahead, and after a request that was cancelled.
    reader: Option<Reader>,
    task: Option<ReadingTask>,
}

/// The task that reads ahead.
#[derive(Debug)]
struct ReadingTask {
    task: AbortOnDropHandle<()>,
    ranges: mpsc::Receiver<ReadAhead>,
    /// The last offset before what arrives next.
    above: Option<Offset>,
}

/// What the task has read, and at its end the reader.
#[derive(Debug)]
struct ReadAhead(Arrived, Option<Reader>);

/// The answer to one request for a range.
#[derive(Debug)]
pub(in crate::channel) struct Arrived {
    pub(in crate::channel) range: Result<Coming, ReadError>,
    /// From the first request until the last answer.
    pub(in crate::channel) took: Span<SystemTime>,
    /// Whether it was read ahead: whether there is more was true then, and may have changed.
    pub(in crate::channel) early: bool,
}

/// A range that is being checked.
#[derive(Debug)]
pub(in crate::channel) struct Coming {
    /// Its last offset; `None` where it holds nothing.
    pub(in crate::channel) last: Option<Offset>,
    /// Whether to ask for more at once.
    pub(in crate::channel) more: bool,
    checking: Option<AbortOnDropHandle<Result<Vec<Checked>, ChannelError>>>,
}

impl Ahead {
    pub(in crate::channel) fn new(read_plan: Arc<ReadPlan>) -> Self {
        Self { reader: Some(read_plan.reader()), read_plan, task: None }
    }

    /// The next events above `last`, which may be none. `last` is where the range before ended, as far as it was handed on.
    pub(in crate::channel) async fn next(&mut self, last: Option<Offset>) -> Arrived {
        if self.task.as_ref().is_some_and(|task| task.above != last) {
            self.forget();
        }
        let Some(task) = &mut self.task else { return self.read(last).await };
        let ReadAhead(arrived, reader) = task.next().await;
        task.above = arrived.last();
        if let Some(reader) = reader {
            (self.task, self.reader) = (None, Some(reader));
        }
        arrived
    }

    /// Throws away what was read ahead.
    pub(in crate::channel) fn forget(&mut self) {
        (self.task, self.reader) = (None, Some(self.read_plan.reader()));
    }

    async fn read(&mut self, last: Option<Offset>) -> Arrived {
        let mut reader = self.reader.take().unwrap_or_else(|| self.read_plan.reader());
        let arrived = Arrived::of(request(&mut reader, last, &self.read_plan).await, false, &self.read_plan);
        if arrived.leads_on() {
            let (sender, ranges) = mpsc::channel(1);
            let above = arrived.last();
            let task = tokio::spawn(read_on(reader, self.read_plan.clone(), above, sender));
            self.task = Some(ReadingTask { task: AbortOnDropHandle::new(task), ranges, above });
        } else {
            self.reader = Some(reader);
        }
        arrived
    }
}

impl ReadingTask {
    async fn next(&mut self) -> ReadAhead {
        if let Some(read) = self.ranges.recv().await {
            return read;
        }
        joined((&mut self.task).await).await;
        unreachable!("the task gives the reader back with its last range, and is then forgotten")
    }
}

impl Arrived {
    /// Begins to check the range, if there is one.
    fn of(Requested { range, took, permit }: Requested, early: bool, read_plan: &ReadPlan) -> Self {
        Self { range: range.map(|range| Coming::new(range, permit, read_plan)), took, early }
    }

    fn last(&self) -> Option<Offset> {
        self.range.as_ref().ok()?.last
    }

    fn leads_on(&self) -> bool {
        self.range.as_ref().is_ok_and(|range| range.more && range.last.is_some())
    }
}

impl Coming {
    fn new(Range { events, more }: Range, permit: ReadPermit, read_plan: &ReadPlan) -> Self {
        let last = events.last().map(|event| event.offset);
        let checking = last.map(|_| {
            let checking = read_plan.stage.check(events);
            AbortOnDropHandle::new(tokio::spawn(async move {
                let checked = checking.await;
                drop(permit);
                checked
            }))
        });
        Self { last, more, checking }
    }

    /// The events, in their order, once all of them are checked.
    pub(in crate::channel) async fn checked(self) -> Result<Vec<Checked>, ChannelError> {
        match self.checking {
            None => Ok(Vec::new()),
            Some(checking) => joined(checking.await).await,
        }
    }
}

/// A range that was requested, and the permit with which it is checked.
struct Requested {
    range: Result<Range, ReadError>,
    took: Span<SystemTime>,
    permit: ReadPermit,
}

/// Reads on while there is more. A range is checked once the range before has been taken.
async fn read_on(
    mut reader: Reader,
    read_plan: Arc<ReadPlan>,
    mut last: Option<Offset>,
    ranges: mpsc::Sender<ReadAhead>,
) {
    loop {
        let mut read = request(&mut reader, last, &read_plan).await;
        let room = if let Ok(room) = ranges.try_reserve() {
            room
        } else {
            // No permit is held while the range before waits to be taken.
            read.permit = ReadPermit::default();
            let Ok(room) = ranges.reserve().await else { return };
            read.permit = read_plan.stage.permit().await;
            room
        };
        let arrived = Arrived::of(read, true, &read_plan);
        last = arrived.last();
        if !arrived.leads_on() {
            room.send(ReadAhead(arrived, Some(reader)));
            return;
        }
        room.send(ReadAhead(arrived, None));
    }
}

/// Requests a range, with a permit where there may be much to read. A channel that has come to the end needs none.
async fn request(reader: &mut Reader, last: Option<Offset>, read_plan: &ReadPlan) -> Requested {
    let permit = if reader.is_behind() { read_plan.stage.permit().await } else { ReadPermit::default() };
    let began = SystemTime::now();
    let range = reader.next(last).await;
    Requested { range, took: began..SystemTime::now(), permit }
}
