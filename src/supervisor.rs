//! A task per channel: started, watched, started again after a panic, and ended together.
//!
//! # Invariants
//!
//! * **One bad part stops only itself.** A channel that is gone ends alone; a panic is that channel's restart.
//! * **What concerns all ends all.** A state that cannot be written, or a reader of standard output that has gone, ends
//!   every channel: cleanly, each after the batch in hand.
//! * **Who did not change goes on.** Of another configuration each channel takes what concerns it; see
//!   [`Channel::become_like`].
//!
//! # Cancellation
//!
//! When `stop` fires, channels have `shutdown_grace` to finish what they have in hand; then they are dropped. So has a
//! channel that the configuration has no more. Nothing that was not recorded is lost: it is read again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::channel::{Channel, ChannelError, next_ended};
use crate::grace::within_grace;
use crate::newer::newer;
use crate::retry::{Retry, RetryPolicy};
use crate::telemetry::{ALWAYS, Chain};

/// Waits before a channel that panicked is started again.
const RESTART: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// Between the beginnings of two channels: if many began at once, each would have a connection of its own.
const BETWEEN_STARTS: Duration = Duration::from_millis(2);

/// How everything ended. Of several ways the last in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Stopped as asked, everything in hand recorded.
    Drained,
    /// Stopped as asked, but something in hand did not finish in time. It is offered again at the next start.
    GraceExpired,
    /// No channel is left that exists.
    AllGone,
    /// Nobody reads a sink any more.
    SinkClosed,
    /// The state could not be read or written.
    StateFailed,
}

/// The channels that are to run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Each with what it is to do.
    pub channels: Vec<Arc<Channel>>,
    /// How long a channel may go on with what it has in hand when it is to end.
    pub grace: Duration,
}

/// Runs the channels that are wanted until they end or `stop` fires.
pub async fn run(mut wanted: watch::Receiver<Wanted>, stop: CancellationToken) -> Outcome {
    let stop = stop.child_token();
    let mut supervisor =
        Supervisor { tasks: JoinSet::new(), running: HashMap::new(), outcome: None, stop: stop.clone() };
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
    outcome: Option<Outcome>,
    stop: CancellationToken,
}

/// A channel that runs, that is to run again after a wait, or that is to end.
struct Running {
    channel: Arc<Channel>,
    retry: Retry,
    grace: Duration,
    leave: CancellationToken,
}

impl Supervisor {
    /// From now on the channels run that are wanted: those that do go on as they are wanted now.
    fn follow(&mut self, wanted: &Wanted) {
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
        // In a box before it is passed on: a future that is handed from one to the next has room in each.
        let work = within_grace(Box::pin(work), leave.clone(), self.stop.clone(), *grace);
        let handle = self.tasks.spawn(async move {
            work.await.unwrap_or_else(|| {
                warn!(channel = %name, "channel did not end in time: what it had in hand was not recorded");
                Ok(())
            })
        });
        self.running.insert(handle.id(), running);
    }

    /// Waits for every channel to end, and says how.
    async fn join(&mut self) -> Outcome {
        while let Some((id, ended)) = next_ended(&mut self.tasks).await {
            let Some(running) = self.running.remove(&id) else { continue };
            self.outcome = self.outcome.max(self.ended(running, ended));
        }
        self.outcome.unwrap_or(if self.stop.is_cancelled() { Outcome::Drained } else { Outcome::AllGone })
    }

    /// What follows for the others from the end of one: an outcome where it ends them all.
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
            ChannelError::Panicked(_) => {
                running.channel.panicked();
                let wait = running.retry.next_wait(None);
                error!(channel = %name, wait_ms = wait.as_millis(), error = %Chain(&error), "channel panicked: starting it again");
                self.spawn(running, wait);
                None
            }
            ChannelError::SinkClosed { .. } => {
                info!(target: ALWAYS, channel = %name, reason = %error, "stopping");
                self.stop.cancel();
                Some(Outcome::SinkClosed)
            }
            ChannelError::State(_) => {
                error!(target: ALWAYS, channel = %name, error = %Chain(&error), "stopping: what is recorded may be wrong");
                self.stop.cancel();
                Some(Outcome::StateFailed)
            }
        }
    }
}
