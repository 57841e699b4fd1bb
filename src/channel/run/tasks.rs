//! Runs a set of tasks: the channels of the process, or the lanes of a channel. Each task can be told to leave on its own.
//!
//! A task that is told to leave has a grace period. If the task has not ended by then, it is dropped. If all tasks are told
//! to stop, the grace period of the whole process applies instead. The caller enforces that period.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::error::ChannelError;

/// A set of tasks, and the object that each task works on.
pub struct Tasks<W> {
    set: JoinSet<Option<Result<(), ChannelError>>>,
    /// The tasks that have not been joined.
    running: HashMap<Id, Task<W>>,
    stop: CancellationToken,
}

/// A task that has not been joined.
pub struct Task<W> {
    /// The object that the task works on.
    pub on: W,
    /// Tells the task to leave.
    pub leave: CancellationToken,
}

impl<W> Tasks<W> {
    /// Creates an empty set. `stop` tells all tasks to end.
    pub fn new(stop: CancellationToken) -> Self {
        Self { set: JoinSet::new(), running: HashMap::new(), stop }
    }

    /// Spawns a task. When its token fires, the task must end. It is dropped if it has not ended `grace` later.
    pub fn spawn<F>(&mut self, on: W, grace: Duration, work: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), ChannelError>> + Send + 'static,
    {
        let task = Task { on, leave: self.stop.child_token() };
        let (leave, stop) = (task.leave.clone(), self.stop.clone());
        // The future is boxed, because otherwise each future around it reserves its size again.
        let work = Box::pin(work(leave.clone()));
        let expired = async move {
            leave.cancelled().await;
            if stop.is_cancelled() {
                std::future::pending::<()>().await;
            }
            sleep(grace).await;
        };
        let spawned = self.set.spawn(async move {
            tokio::select! { biased; ended = work => Some(ended), () = expired => None }
        });
        self.running.insert(spawned.id(), task);
    }

    /// Returns the tasks that have not been joined, in no particular order.
    pub fn running(&self) -> impl Iterator<Item = &Task<W>> {
        self.running.values()
    }

    /// Waits for the next task to end, and returns the task and its result. A panic is an error. The result is `None` if the
    /// task was dropped after its grace period. Returns `None` if the set is empty.
    pub async fn next_ended(&mut self) -> Option<(Task<W>, Option<Result<(), ChannelError>>)> {
        let (id, ended) = match self.set.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(panic) => (panic.id(), Some(Err(ChannelError::Panicked(panic)))),
        };
        Some((self.running.remove(&id)?, ended))
    }
}
