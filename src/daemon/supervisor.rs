//! Runs one task per channel: starts the tasks, watches them, restarts them after a panic, and ends them together.
//!
//! # Invariants
//!
//! * **The failure of one channel affects no other channel.** A channel that no longer exists at the service ends alone. A
//!   channel that panicked is restarted alone.
//! * **An unreadable entry stops only its channel.** The channel is tried again until an operator has repaired the entry.
//! * **A shared failure ends every channel.** If the state cannot be written, or standard output is closed, every channel
//!   ends after its current batch. An unavailable database server ends no channel: the channels wait for the server. The same
//!   applies if the machine lacks descriptors, memory or disk space.
//! * **Unchanged channels keep running.** A running channel applies its part of a new configuration: see
//!   [`Channel::become_like`].
//! * **An empty list of channels does not end the supervisor.** It waits for `stop` or for another list.
//!
//! # Cancellation
//!
//! After `stop` is canceled, channels have `shutdown_grace` to finish their current batches; then they are dropped. The
//! same applies to a channel that is not in the latest list. Events that were not recorded are read again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use channel::{Channel, ChannelError, Task, Tasks};
use ledger::StateError;
use net::Chain;
use net::retry::{Retry, RetryPolicy};
use telemetry::ALWAYS;

/// The waits before a channel that panicked or lost its lease is restarted.
const RESTART: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// If a channel has run for at least this time, its next restart comes after the first wait again.
const SOUND_RUN: Duration = Duration::from_secs(60);

/// The delay between the starts of two channels. If many channels started at once, each would open its own connection.
const BETWEEN_STARTS: Duration = Duration::from_millis(2);

/// The delay between the first and the last start of many channels. The delay between two starts is then shorter.
const ALL_STARTS: Duration = Duration::from_secs(3);

/// How the daemon ended. If several reasons apply, the last of them in the order of this enum counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
pub(crate) enum EndReason {
    /// Stopped as requested. Every current batch was recorded.
    #[strum(serialize = "everything that was delivered is recorded")]
    Drained,
    /// Stopped as requested, but a current batch did not finish in time. It is delivered again at the next start.
    #[strum(serialize = "shutdown_grace expired: the unfinished batches are offered again")]
    GraceExpired,
    /// Stopped before every sink had caught up, although the daemon should run until then.
    #[strum(serialize = "stopped before every sink had caught up")]
    NotCaughtUp,
    /// Not every sink could catch up, because a channel or the service is unavailable.
    #[strum(serialize = "not every sink has caught up: a channel or the service is unavailable")]
    Unavailable,
    /// The service reported that every channel is gone.
    #[strum(serialize = "no channel is left")]
    AllGone,
    /// The reader of a sink has closed it.
    #[strum(serialize = "the reader of a sink is gone")]
    SinkClosed,
    /// The state could not be read or written.
    #[strum(serialize = "the state failed")]
    StateFailed,
    /// A second signal ended the process at once. Events that were not recorded are delivered again at the next start.
    #[strum(serialize = "ended at once")]
    Interrupted,
}

/// The channels that are running, waiting for a restart, or about to end.
pub(crate) struct Supervisor {
    tasks: Tasks<StartedChannel>,
    /// How many channels the last list contained.
    wanted: usize,
    /// Whether channels can be added without an operator. The supervisor then waits for them if no channel is left.
    pub(crate) may_grow: bool,
    grace: Duration,
    outcome: Option<EndReason>,
    stop: CancellationToken,
    /// When the grace period ends. Set after `stop` was canceled.
    deadline: Option<Instant>,
}

/// A channel, and its restart schedule.
type StartedChannel = (Arc<Channel>, Restarts);

/// Chooses the waits before restarts of a channel.
struct Restarts {
    waits: Retry,
    /// When the current run began or will begin.
    began: Instant,
}

impl Restarts {
    /// Returns the wait before the next run. Only short runs make the wait grow.
    fn next_wait(&mut self) -> Duration {
        if self.began.elapsed() >= SOUND_RUN {
            self.waits.reset();
        }
        let wait = self.waits.next_wait(None);
        self.began = Instant::now() + wait;
        wait
    }
}

/// Returns the delay between the starts of this many channels.
fn between_starts(channels: usize) -> Duration {
    BETWEEN_STARTS.min(ALL_STARTS / u32::try_from(channels).unwrap_or(u32::MAX).max(1))
}

impl Supervisor {
    /// Creates a supervisor without channels. It runs until `stop` is canceled.
    pub(crate) fn new(stop: &CancellationToken) -> Self {
        let (stop, grace) = (stop.child_token(), Duration::ZERO);
        Self { tasks: Tasks::new(stop.clone()), wanted: 0, may_grow: false, grace, outcome: None, stop, deadline: None }
    }

    /// Starts the channels that are new in the list, changes the running channels, and ends the others. A channel that has
    /// to end can take up to `grace` to finish its current batch.
    pub(crate) fn follow(&mut self, wanted: &[Arc<Channel>], grace: Duration) {
        (self.wanted, self.grace) = (wanted.len(), grace);
        let listed: HashSet<_> = wanted.iter().map(|channel| &channel.identity).collect();
        let mut staying = HashMap::new();
        for Task { on: (channel, _), leave } in self.tasks.running() {
            if !listed.contains(&channel.identity) {
                leave.cancel();
            } else if !leave.is_cancelled() {
                staying.insert(channel.identity.clone(), channel.clone());
            }
        }
        let (mut after, between) = (Duration::ZERO, between_starts(wanted.len()));
        for channel in wanted {
            if let Some(running) = staying.get(&channel.identity) {
                if !Arc::ptr_eq(running, channel) {
                    running.become_like(channel);
                }
                continue;
            }
            let restarts = Restarts { waits: Retry::new(RESTART), began: Instant::now() };
            self.spawn((channel.clone(), restarts), after);
            after += between;
        }
    }

    fn spawn(&mut self, on: StartedChannel, after: Duration) {
        let channel = on.0.clone();
        self.tasks.spawn(on, self.grace, async move |leave| {
            tokio::select! { () = sleep(after) => {}, () = leave.cancelled() => return Ok(()) }
            channel.run(&leave).await
        });
    }

    /// Waits until no channel runs any more, and returns how the daemon ended. Channels end if the service reports that
    /// they are gone, or after `stop` is canceled. When the grace period expires, the function returns without waiting
    /// for the remaining channels. The future can be dropped, and the function called again.
    pub(crate) async fn ended(&mut self) -> EndReason {
        let stop = self.stop.clone();
        loop {
            let may_end = stop.is_cancelled() || (self.wanted > 0 && !self.may_grow);
            if may_end && self.tasks.running().next().is_none() {
                let by_itself = if stop.is_cancelled() { EndReason::Drained } else { EndReason::AllGone };
                return self.outcome.unwrap_or(by_itself);
            }
            let deadline = self.deadline;
            tokio::select! {
                biased;
                Some((task, ended)) = self.tasks.next_ended() => self.outcome = self.outcome.max(self.note_end(task, ended)),
                () = stop.cancelled(), if deadline.is_none() => self.deadline = Some(Instant::now() + self.grace),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    let grace_ms = self.grace.as_millis();
                    warn!(grace_ms, "some batches did not finish in time: they are offered again at the next start");
                    return self.outcome.unwrap_or(EndReason::GraceExpired).max(EndReason::GraceExpired);
                }
            }
        }
    }

    /// Restarts a channel if its failure concerns only this channel. If the failure ends all channels, returns how the
    /// daemon ends.
    fn note_end(
        &mut self,
        mut task: Task<StartedChannel>,
        ended: Option<Result<(), ChannelError>>,
    ) -> Option<EndReason> {
        let (channel, restarts) = &mut task.on;
        let name = channel.identity.name.clone();
        if ended.is_none() {
            warn!(channel = %name, "channel did not end in time: its current batch was not recorded");
        }
        let Some(Err(error)) = ended else {
            info!(channel = %name, "channel stopped");
            return None;
        };
        match &error {
            ChannelError::Gone => return None,
            ChannelError::SinkClosed { .. } => {
                info!(target: ALWAYS, channel = %name, reason = %error, "stopping");
                self.stop.cancel();
                return Some(EndReason::SinkClosed);
            }
            // A lost lease and an unavailable state are not defects, so the waits after them do not grow.
            ChannelError::Lost => restarts.waits.reset(),
            ChannelError::State(error) if error.may_pass() => restarts.waits.reset(),
            // An unreadable entry stops only this channel. An operator can repair the entry while the daemon runs.
            ChannelError::State(StateError::UnreadableEntry { .. })
            | ChannelError::Panicked(_)
            | ChannelError::Refused(_) => {}
            ChannelError::State(_) => {
                error!(target: ALWAYS, channel = %name, error = %Chain(&error), "stopping: nothing more can be recorded; recorded progress is kept, and the rest is read again at the next start");
                self.stop.cancel();
                return Some(EndReason::StateFailed);
            }
        }
        let wait = restarts.next_wait();
        let wait_ms = wait.as_millis();
        match &error {
            ChannelError::Lost => {
                info!(channel = %name, wait_ms, "the channel's lease is lost: the channel is leased again when no other instance owns it");
            }
            ChannelError::State(error @ StateError::UnreadableEntry { .. }) => {
                error!(channel = %name, wait_ms, error = %Chain(error), "the state of the channel cannot be read: the channel is tried again");
            }
            ChannelError::State(error) => {
                warn!(channel = %name, wait_ms, error = %Chain(error), "the state cannot be read: restarting the channel");
            }
            error => {
                channel.metrics.panicked();
                error!(channel = %name, wait_ms, error = %Chain(error), "channel failed because of a defect: restarting it");
            }
        }
        if !task.leave.is_cancelled() {
            self.spawn(task.on, wait);
        }
        None
    }
}

#[cfg(test)]
mod tests;
