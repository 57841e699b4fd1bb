//! The thread that writes. It combines the work of several lanes into one transaction.
//!
//! Each lane submits one piece of work at a time. A request of a feed can be canceled while its work is in the queue: this work is then
//! skipped.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::database::Database;
use super::lane::{LaneResult, Work};
use crate::{SinkError, Undelivered};

/// No further work is added to a transaction that has this many rows.
const MAX_ROWS: usize = 2_000;

enum Job {
    Write(Work, oneshot::Sender<LaneResult>),
    /// Work that sends its own answer.
    Other(Box<dyn FnOnce(&mut Database) + Send>),
}

/// The writer. When it is dropped, it finishes the current work and closes the database.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Fails if the machine has no free thread.
    pub(super) fn start(database: Database) -> Result<Self, SinkError> {
        let (jobs, received) = mpsc::channel();
        let work = move || run(database, &received);
        let thread = std::thread::Builder::new().name("sqlite".to_owned()).spawn(work);
        let thread = thread.map_err(|error| SinkError::io("starting a thread that writes to the database", error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Carries out the work, and waits until its rows are synced to disk.
    pub(super) async fn carry_out(&self, work: Work) -> LaneResult {
        let answer = self.ask(|answer| Job::Write(work, answer)).await;
        answer.unwrap_or_else(|ended| Err(Undelivered::after(0, ended)))
    }

    /// Uses the database, unless nothing awaits the result any more when the thread begins: the client of an abandoned request would
    /// not learn that it has a lease.
    pub(super) async fn use_database<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Database) -> Result<T, SinkError> + Send + 'static,
    ) -> Result<T, SinkError> {
        self.ask(|answer| {
            Job::Other(Box::new(move |database: &mut Database| {
                if !answer.is_closed() {
                    drop(answer.send(work(database)));
                }
            }))
        })
        .await?
    }

    /// Sends a job to the thread, and waits for its answer.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, SinkError> {
        let (answer, answered) = oneshot::channel();
        if let Some(jobs) = &self.jobs {
            drop(jobs.send(job(answer)));
        }
        let ended = "the thread that writes to the database has ended: restart channeld";
        answered.await.map_err(|_| SinkError::unusable(ended.to_owned()))
    }
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
                        Ok(Job::Other(work)) => last = Some(work),
                        Err(_) => break,
                    }
                }
                for (answer, said) in answers.into_iter().zip(database.write(group)) {
                    // A lane that no longer waits for the answer reads its position again when it resumes.
                    drop(answer.send(said));
                }
                if let Some(work) = last {
                    work(&mut database);
                }
                if database.upkeep_is_due_in().is_zero() {
                    database.upkeep();
                }
            }
            Ok(Job::Other(work)) => work(&mut database),
            Err(RecvTimeoutError::Timeout) => database.rest(),
            Err(RecvTimeoutError::Disconnected) => return database.end(),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // Closing the database writes the log into the file, so the file is complete without its log when the daemon has
        // ended.
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
