//! A task per channel: started, watched, started again after a panic, and ended together.
//!
//! # Invariants
//!
//! * **One bad part stops only itself.** A channel that is gone ends alone. A channel that panicked starts again alone.
//! * **A shared failure ends all.** A state that cannot be written, or a closed standard output, ends every channel, each
//!   after its batch in hand.
//! * **Unchanged channels go on.** A running channel takes over its part of a new configuration: see
//!   [`Channel::become_like`].
//! * **No channel is not an end.** With no wanted channel the supervisor waits for `stop` or for another list.
//!
//! # Cancellation
//!
//! When `stop` fires, channels have `shutdown_grace` to finish their batches in hand; then they are dropped. The same holds
//! for a channel that is no longer wanted. Events that were not recorded are read again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::channel::{Channel, ChannelError, next_ended};
use crate::retry::{Retry, RetryPolicy};
use crate::tasks::newer;
use crate::tasks::within_grace;
use crate::telemetry::{ALWAYS, Chain};

/// Waits before a channel that panicked is started again.
const RESTART: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// Between the starts of two channels: if many started at once, each would open a connection of its own.
const BETWEEN_STARTS: Duration = Duration::from_millis(2);

/// How the daemon ended. Where several apply, the last in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Stopped as asked. Every batch in hand was recorded.
    Drained,
    /// Stopped as asked, but a batch in hand did not finish in time. It is offered again at the next start.
    GraceExpired,
    /// The service said of every wanted channel that it is gone.
    AllGone,
    /// The reader of a sink has closed it.
    SinkClosed,
    /// The state could not be read or written.
    StateFailed,
    /// A second signal ended the process at once. What was not recorded is offered again at the next start.
    Interrupted,
}

/// The channels that are to run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Each with its settings.
    pub channels: Vec<Arc<Channel>>,
    /// How long a channel may take to finish its batch in hand when it has to end.
    pub grace: Duration,
}

/// Runs the wanted channels until `stop` fires, or until the service has said of every one of them that it is gone.
pub async fn run(mut wanted: watch::Receiver<Wanted>, stop: CancellationToken) -> Outcome {
    let stop = stop.child_token();
    let mut supervisor =
        Supervisor { tasks: JoinSet::new(), running: HashMap::new(), wanted: 0, outcome: None, stop: stop.clone() };
    supervisor.follow(&wanted.borrow_and_update().clone());
    let grace = wanted.clone();
    let ended = async {
        loop {
            tokio::select! {
                biased;
                outcome = supervisor.join() => return outcome,
                newer = newer(&mut wanted) => supervisor.follow(&newer),
            }
        }
    };
    let expired = async {
        stop.cancelled().await;
        let grace = grace.borrow().grace;
        tokio::time::sleep(grace).await;
        grace
    };
    tokio::select! {
        outcome = ended => outcome,
        grace = expired => {
            warn!(grace_ms = grace.as_millis(), "not everything in hand finished in time: it is offered again at the next start");
            Outcome::GraceExpired
        }
    }
}

struct Supervisor {
    tasks: JoinSet<Result<(), ChannelError>>,
    running: HashMap<Id, Running>,
    /// How many channels the last list had.
    wanted: usize,
    outcome: Option<Outcome>,
    stop: CancellationToken,
}

/// A channel that runs, waits to run again, or is about to end.
struct Running {
    channel: Arc<Channel>,
    retry: Retry,
    grace: Duration,
    leave: CancellationToken,
}

impl Supervisor {
    /// Starts the channels that are new in the list, changes the running ones, and ends the others.
    fn follow(&mut self, wanted: &Wanted) {
        self.wanted = wanted.channels.len();
        let is_wanted = |channel: &Channel| wanted.channels.iter().any(|wanted| wanted.channel() == channel.channel());
        for running in self.running.values().filter(|running| !is_wanted(&running.channel)) {
            running.leave.cancel();
        }
        let mut after = Duration::ZERO;
        for channel in &wanted.channels {
            let runs =
                |running: &&Running| !running.leave.is_cancelled() && running.channel.channel() == channel.channel();
            if let Some(running) = self.running.values().find(runs) {
                running.channel.become_like(channel);
                continue;
            }
            let (channel, leave) = (channel.clone(), self.stop.child_token());
            self.spawn(Running { channel, retry: Retry::new(RESTART), grace: wanted.grace, leave }, after);
            after += BETWEEN_STARTS;
        }
    }

    fn spawn(&mut self, running: Running, after: Duration) {
        let Running { channel, grace, leave, .. } = &running;
        let (task, name, stop) = (channel.clone(), channel.channel().name.clone(), leave.clone());
        let work = async move {
            tokio::select! { () = tokio::time::sleep(after) => {}, () = stop.cancelled() => return Ok(()) }
            task.run(&stop).await
        };
        // Boxed first: an unboxed future would take its size in every future around it.
        let work = within_grace(Box::pin(work), leave.clone(), self.stop.clone(), *grace);
        let handle = self.tasks.spawn(async move {
            work.await.unwrap_or_else(|| {
                warn!(channel = %name, "channel did not end in time: what it had in hand was not recorded");
                Ok(())
            })
        });
        self.running.insert(handle.id(), running);
    }

    /// Waits until every wanted channel has ended, and says how. Where none is wanted, waits for `stop`.
    async fn join(&mut self) -> Outcome {
        while let Some((id, ended)) = next_ended(&mut self.tasks).await {
            let Some(running) = self.running.remove(&id) else { continue };
            self.outcome = self.outcome.max(self.ended(running, ended));
        }
        if self.wanted == 0 {
            self.stop.cancelled().await;
        }
        self.outcome.unwrap_or(if self.stop.is_cancelled() { Outcome::Drained } else { Outcome::AllGone })
    }

    /// Restarts a channel that panicked. Gives an outcome where the end of this channel ends all.
    fn ended(&mut self, mut running: Running, ended: Result<(), ChannelError>) -> Option<Outcome> {
        let name = running.channel.channel().name.clone();
        let error = match ended {
            Ok(()) => {
                info!(channel = %name, "channel stopped");
                return None;
            }
            Err(error) => error,
        };
        match error {
            ChannelError::Gone => None,
            ChannelError::Lost => {
                let wait = running.retry.next_wait(None);
                warn!(channel = %name, wait_ms = wait.as_millis(), "another instance owns the channel: trying to claim it again");
                self.spawn(running, wait);
                None
            }
            ChannelError::Panicked(_) | ChannelError::Refused(_) => {
                running.channel.panicked();
                let wait = running.retry.next_wait(None);
                error!(channel = %name, wait_ms = wait.as_millis(), error = %Chain(&error), "channel failed by a defect: starting it again");
                self.spawn(running, wait);
                None
            }
            ChannelError::SinkClosed { .. } => {
                info!(target: ALWAYS, channel = %name, reason = %error, "stopping");
                self.stop.cancel();
                Some(Outcome::SinkClosed)
            }
            ChannelError::State(_) => {
                error!(target: ALWAYS, channel = %name, error = %Chain(&error), "stopping: nothing more can be recorded; what is recorded holds, and what is not is read again at the next start");
                self.stop.cancel();
                Some(Outcome::StateFailed)
            }
        }
    }
}

#[cfg(test)]
mod tests;
