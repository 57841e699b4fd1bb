//! A task per channel: started, watched, started again after a panic, and ended together.
//!
//! # Invariants
//!
//! * **One bad part stops only itself.** A channel that is gone ends alone; a panic is that channel's restart.
//! * **What concerns all ends all.** A state that cannot be written, or a reader of standard output that has gone, ends
//!   every channel: cleanly, each after the batch in hand.
//!
//! # Cancellation
//!
//! When `stop` fires, channels have `shutdown_grace` to finish what they have in hand; then they are dropped. Nothing
//! that was not recorded is lost: it is read again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::channel::{Channel, ChannelError};
use crate::retry::{Retry, RetryPolicy};
use crate::telemetry::Chain;

/// Waits before a channel that panicked is started again.
const RESTART: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

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

/// Runs channels until they end or `stop` fires.
pub async fn run(channels: Vec<Channel>, stop: CancellationToken, grace: Duration) -> Outcome {
    let stop = stop.child_token();
    let mut supervisor = Supervisor { tasks: JoinSet::new(), running: HashMap::new(), stop: stop.clone() };
    for channel in channels {
        supervisor.spawn(Arc::new(channel), Retry::new(RESTART), Duration::ZERO);
    }
    let expired = async {
        stop.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        outcome = supervisor.join() => outcome,
        () = expired => {
            warn!(grace_ms = grace.as_millis(), "not everything in hand finished in time: it is offered again at the next start");
            Outcome::GraceExpired
        }
    }
}

struct Supervisor {
    tasks: JoinSet<Result<(), ChannelError>>,
    running: HashMap<Id, (Arc<Channel>, Retry)>,
    stop: CancellationToken,
}

impl Supervisor {
    fn spawn(&mut self, channel: Arc<Channel>, retry: Retry, after: Duration) {
        let (task, stop) = (channel.clone(), self.stop.clone());
        let handle = self.tasks.spawn(async move {
            tokio::select! { () = tokio::time::sleep(after) => {}, () = stop.cancelled() => return Ok(()) }
            task.run(&stop).await
        });
        self.running.insert(handle.id(), (channel, retry));
    }

    /// Waits for every channel to end, and says how.
    async fn join(&mut self) -> Outcome {
        let mut outcome = None;
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let (id, ended) = match ended {
                Ok((id, ended)) => (id, ended),
                Err(panic) => (panic.id(), Err(ChannelError::Panicked(panic))),
            };
            let Some((channel, retry)) = self.running.remove(&id) else { continue };
            outcome = outcome.max(self.ended(&channel, retry, ended));
        }
        outcome.unwrap_or(if self.stop.is_cancelled() { Outcome::Drained } else { Outcome::AllGone })
    }

    /// What follows for the others from the end of one: an outcome where it ends them all.
    fn ended(&mut self, channel: &Arc<Channel>, mut retry: Retry, ended: Result<(), ChannelError>) -> Option<Outcome> {
        let name = &channel.channel().name;
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
                channel.panicked();
                let wait = retry.next_wait(None);
                error!(channel = %name, wait_ms = wait.as_millis(), error = %Chain(&error), "channel panicked: starting it again");
                self.spawn(channel.clone(), retry, wait);
                None
            }
            ChannelError::SinkClosed { .. } => {
                info!(channel = %name, reason = %error, "stopping");
                self.stop.cancel();
                Some(Outcome::SinkClosed)
            }
            ChannelError::State(_) => {
                error!(channel = %name, error = %Chain(&error), "stopping: what is recorded may be wrong");
                self.stop.cancel();
                Some(Outcome::StateFailed)
            }
        }
    }
}
