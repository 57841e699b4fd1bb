//! The thread that writes: what several lanes have brought goes into one transaction.
//!
//! Each lane brings one piece of work at a time, so that what waits is bounded by their number.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::SqliteSettings;
use super::database::Database;
use crate::table::{Cell, Row};
use crate::{LaneRef, Resumed, SinkError, Undelivered};
use proof::event::{EventKey, Offset};
use telemetry::metrics::UpkeepFailures;

/// The most rows of one transaction, but for one lane's.
const MAX_ROWS: usize = 2_000;

/// What one lane asks for.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) lane: LaneRef,
    pub(super) epoch: u64,
    pub(super) task: Task,
}

#[derive(Debug)]
pub(super) enum Task {
    /// The lane begins.
    TakeOver {
        /// The recorded cursor.
        through: Option<Offset>,
        /// Whether the table takes it over as the lane's position.
        is_adopted: bool,
        /// The events of which the lane asks whether they have a row.
        pending: BTreeSet<EventKey>,
    },
    /// The lane delivers.
    Deliver {
        /// The position that the table must have.
        after: Option<Offset>,
        /// The position becomes the higher of `after` and this.
        through: Offset,
        rows: Vec<Row>,
    },
}

/// What the table holds of the lane; or how many of the rows were written, and why no more.
pub(super) type Answer = Result<Resumed, Undelivered>;

enum Job {
    Write(Work, oneshot::Sender<Answer>),
    Reopen(oneshot::Sender<Result<(), SinkError>>),
}

/// The writer. Dropped, it ends what it has begun and closes the database.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Work {
    pub(super) fn rows(&self) -> usize {
        if let Task::Deliver { rows, .. } = &self.task { rows.len() } else { 0 }
    }

    /// Only the first rows, and the position with them. There is at least one.
    pub(super) fn keep_first(&mut self, count: usize) {
        if let Task::Deliver { through, rows, .. } = &mut self.task {
            rows.truncate(count);
            *through = rows.last().and_then(offset).unwrap_or(*through);
        }
    }
}

/// Where the event of a row stands in its channel.
fn offset(row: &Row) -> Option<Offset> {
    row.0.iter().find_map(|cell| if let Cell::Number(offset) = cell { Offset::new(*offset) } else { None })
}

impl Writer {
    pub(super) fn start(settings: Arc<SqliteSettings>, failures: UpkeepFailures) -> Self {
        let (jobs, received) = mpsc::channel();
        let work = move || run(Database::new(settings, failures), &received);
        let thread = std::thread::Builder::new().name("sqlite".to_owned()).spawn(work);
        Self { jobs: Some(jobs), thread: thread.ok() }
    }

    /// Writes, and waits until it is on the disk.
    pub(super) async fn carry_out(&self, work: Work) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.tell(Job::Write(work, answer));
        answered.await.unwrap_or_else(|_| Err(Undelivered::after(0, ended())))
    }

    /// Closes the file, and opens what its path leads to.
    pub(super) async fn reopen(&self) -> Result<(), SinkError> {
        let (answer, answered) = oneshot::channel();
        self.tell(Job::Reopen(answer));
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Where the thread is no more, the answer's sender is dropped.
    fn tell(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            drop(jobs.send(job));
        }
    }
}

fn ended() -> SinkError {
    SinkError::unusable("the thread that writes to the database has ended: start channeld again".to_owned())
}

fn run(mut database: Database, jobs: &Receiver<Job>) {
    loop {
        match jobs.recv_timeout(database.is_due_in()) {
            Ok(Job::Write(work, answer)) => {
                let mut rows = work.rows();
                let (mut group, mut answers, mut last) = (vec![work], vec![answer], None);
                while rows < MAX_ROWS && last.is_none() {
                    match jobs.try_recv() {
                        Ok(Job::Write(work, answer)) => {
                            rows += work.rows();
                            group.push(work);
                            answers.push(answer);
                        }
                        Ok(Job::Reopen(answer)) => last = Some(answer),
                        Err(_) => break,
                    }
                }
                for (answer, said) in answers.into_iter().zip(database.write(group)) {
                    // A lane that no longer waits asks again when it begins.
                    drop(answer.send(said));
                }
                if let Some(answer) = last {
                    drop(answer.send(database.reopen()));
                }
                if database.upkeep_is_due_in().is_zero() {
                    database.upkeep();
                }
            }
            Ok(Job::Reopen(answer)) => drop(answer.send(database.reopen())),
            Err(RecvTimeoutError::Timeout) => database.rest(),
            Err(RecvTimeoutError::Disconnected) => return database.end(),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // So that the file is whole without its log once the daemon has ended.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}
