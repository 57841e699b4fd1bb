//! One channel's loop: poll, verify, order, deliver, record. In that order, forever.
//!
//! ```text
//! reader ──► verify ──► batch ──► hub ──┬─► lane ─► sink      one lane per sink, each with its own cursor
//! └──────── intake ─────────┘           └─► lane ─► sink      a lane that falls behind has an intake of its own
//!              ▲
//!              └── late events, read again by id until their proof comes
//! ```
//!
//! While there is more to read, all stages work at the same time: one range is being read (`read::ahead`), the one before it
//! is checked on every processor (`verify`, `machine`), and those before are delivered, joined where the sink was busy.
//!
//! | folder | what it does |
//! |---|---|
//! | `read` | gap-free ranges from a service whose pages run the other way; when to poll; where to begin |
//! | `verify` | verdicts, the second look at rejected events, duplicates and contradictions |
//! | `deliver` | batches, the hub that feeds lanes, and the lanes |
//!
//! # Invariants
//!
//! * **Owned.** The channel works only while it is claimed, and everything it remembers goes through the claim.
//! * **Verified before delivered.** A lane is given [`Record`](crate::record::Record)s, and only the verify stage makes
//!   them.
//! * **Delivered before recorded.** A crash at any point repeats events and never skips one.
//! * **One writer.** Only this task and its lanes change the channel's ledger. An operator's [`Command`] is a message to it.
//! * **A slow sink holds up no other.** See `deliver::hub`.
//! * **What did not change goes on.** A new plan (see [`Channel::become_like`]) restarts only what it changes: reading, and
//!   the lanes whose sink is used differently.
//! * **Bounded.** At most two ranges are read ahead, `QUEUE_BATCHES` batches wait for a lane, and [`LATE`] events for their
//!   proof; then reading waits. Channels that are behind share `read::permits`.
//!
//! # Cancellation
//!
//! `stop` is observed while polling or waiting, never between delivering a batch and recording it. A batch that waits in a
//! queue when `stop` fires is not begun: it is not recorded either, and is read again.
//!
//! Each `select!` is biased: where several things happen at once, the order is fixed, and a test history repeats exactly.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::api::Client;
#[cfg(doc)]
use crate::ledger::LATE;
use crate::ledger::{CommitError, Ledgers, StateError};
use crate::metrics::ChannelMetrics;
use crate::record::ChannelRef;
use crate::tasks::newer;
use crate::telemetry::trace::Traces;

mod board;
mod command;
mod context;
mod controls;
mod deliver;
mod late;
mod machine;
#[cfg(test)]
mod model;
mod newest;
mod owned;
mod pace;
mod parts;
mod read;
mod reporter;
mod settings;
mod status;
#[cfg(test)]
mod tests;
mod trouble;
mod verify;

pub use command::{Command, CommandError, DeadLetterSelection, Done, Fate, Retried, Selection};
pub(crate) use command::{Configured, Message, not_quarantined};
pub use controls::{Controls, Handle, Handles, Pauses};
pub(crate) use owned::Owned;
pub use parts::SharedParts;
pub use read::history::History;
pub use read::reader::ReadError;
pub use settings::{Ordering, Outlet, Settings, Start, UnsignedPolicy};
pub use status::{Activity, ChannelStatus, Kept, LaneState, LaneStatus, Problem, SignerStatus};
pub use verify::recent::RecentEvents;

use context::{ReadPlan, RunContext};
use deliver::lanes::Lanes;
use machine::Machine;
use read::intake::{Intake, Taken};
use read::schedule::PollSchedule;
use read::source::{Observer, Service};
use read::start;
use reporter::{Part, StatusReporter};
use settings::Plan;
use verify::Awaited;

/// Batches that wait for one lane before reading waits for it.
const QUEUE_BATCHES: usize = 2;

/// Commands that wait for the task that owns the channel.
const COMMANDS: usize = 16;

/// Why a channel's loop ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The service says the channel is gone. This channel ends; the others go on.
    #[error("the channel does not exist or is archived")]
    Gone,
    /// Another instance owns the channel now. This run ends; the others go on.
    #[error("another instance owns the channel")]
    Lost,
    /// The state cannot be read or written: the daemon ends. What is not recorded is read again.
    #[error("the state could not be read or written")]
    State(#[from] StateError),
    /// A sink's reader has gone for good: the daemon ends.
    #[error("nothing reads sink {sink} any more")]
    SinkClosed {
        /// The sink.
        sink: Arc<str>,
    },
    /// A part of the loop panicked. A defect; the channel starts again from its cursors.
    #[error("a part of the channel's loop panicked")]
    Panicked(#[source] JoinError),
    /// The ledger refused a commit. A defect; the channel starts again from its cursors.
    #[error("a commit was refused")]
    Refused(#[from] crate::ledger::Refusal),
}

impl From<CommitError> for ChannelError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Refused(refusal) => Self::Refused(refusal),
            CommitError::Lost => Self::Lost,
            CommitError::State(error) => Self::State(error),
        }
    }
}

/// One channel, ready to run.
#[derive(Debug)]
pub struct Channel {
    identity: ChannelRef,
    plan: watch::Sender<Plan>,
    ledgers: Arc<Ledgers>,
    recent: Arc<RecentEvents>,
    handle: Arc<Handle>,
    machine: Arc<dyn Machine>,
    metrics: Arc<ChannelMetrics>,
    traces: Traces,
}

impl Channel {
    /// A channel that does nothing before [`run`](Self::run).
    #[must_use]
    pub fn new(settings: Settings, api: Client, outlets: Vec<Outlet>, parts: &SharedParts) -> Self {
        let handle = parts.handles.of(settings.channel.id);
        let metrics = Arc::new(parts.metrics.channel(&settings.channel));
        let observer = Observer { handle: handle.clone(), metrics: metrics.clone() };
        let answers_within = api.request_timeout();
        let source = Arc::new(Service::new(api, settings.channel.id, Some(observer)));
        let plan = Plan { settings, source, outlets, answers_within };
        let (ledgers, recent, machine) = (parts.ledgers.clone(), parts.recent.clone(), parts.machine.clone());
        Self { traces: parts.traces.clone(), ..Self::with_plan(plan, ledgers, recent, handle, machine, metrics) }
    }

    fn with_plan(
        plan: Plan,
        ledgers: Arc<Ledgers>,
        recent: Arc<RecentEvents>,
        handle: Arc<Handle>,
        machine: Arc<dyn Machine>,
        metrics: Arc<ChannelMetrics>,
    ) -> Self {
        let identity = plan.settings.channel.clone();
        let (plan, traces) = (watch::Sender::new(plan), Traces::default());
        Self { identity, plan, ledgers, recent, handle, machine, metrics, traces }
    }

    /// Counts a run that panicked.
    pub fn panicked(&self) {
        self.metrics.panicked();
    }

    /// The channel's name and id.
    #[must_use]
    pub fn channel(&self) -> &ChannelRef {
        &self.identity
    }

    /// Takes over the plan of `newer`, which is the same channel. Reading and lanes that the plan changes begin anew; the
    /// others go on.
    pub fn become_like(&self, newer: &Self) {
        self.plan.send_replace(newer.plan.borrow().clone());
    }

    /// Claims the channel, and runs until `stop` fires or the channel ends by itself. Returns when every lane has finished
    /// the batch in hand. While the channel is paused it reads and delivers nothing; resumed, it begins from its cursors.
    ///
    /// # Errors
    /// [`ChannelError`], where the channel ended by itself.
    pub async fn run(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        let claiming = Owned::claim(&self.identity, &self.ledgers, &self.recent);
        let owned = tokio::select! { biased; () = stop.cancelled() => return Ok(()), owned = claiming => owned? };
        let owned = Arc::new(owned.ok_or(ChannelError::Lost)?);
        owned.show_on(&self.handle.board);
        let (commands, inbox) = mpsc::channel(COMMANDS);
        self.handle.controls.owned_by(Some(commands));
        let ended = self.own(&owned, inbox, stop).await;
        self.handle.controls.owned_by(None);
        if let Some(owned) = Arc::into_inner(owned) {
            self.ledgers.release(owned.claim).await;
        }
        ended
    }

    /// Runs an owned channel, and performs operators' commands.
    async fn own(
        &self,
        owned: &Arc<Owned>,
        mut inbox: mpsc::Receiver<Message>,
        stop: &CancellationToken,
    ) -> Result<(), ChannelError> {
        let mut performing = FuturesUnordered::new();
        let mut working = Box::pin(self.work(owned, stop));
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut working => break ended,
                () = owned.claim.lease().lost.cancelled() => break Err(ChannelError::Lost),
                Some(message) = inbox.recv() => performing.push(message.perform(owned)),
                Some(()) = performing.next() => {}
            }
        };
        drop(working);
        // A command that has begun is finished. The others are answered that the channel has no owner.
        inbox.close();
        while performing.next().await.is_some() {}
        ended
    }

    async fn work(&self, owned: &Arc<Owned>, stop: &CancellationToken) -> Result<(), ChannelError> {
        while self.handle.controls.until_channel(false, stop).await {
            let pausing = stop.child_token();
            let mut running = Box::pin(self.run_once(owned, &pausing));
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                paused = self.handle.controls.until_channel(true, stop) => if paused { pausing.cancel() },
            }
            running.await?;
            info!(channel = %self.identity.name, "channel paused");
        }
        Ok(())
    }

    async fn run_once(&self, owned: &Arc<Owned>, stop: &CancellationToken) -> Result<(), ChannelError> {
        let _running = owned.running.lock().await;
        let _on_board = self.handle.board.run_begins(&self.identity.name);
        let (mut plans, stop) = (self.plan.subscribe(), stop.child_token());
        let mut plan = plans.borrow_and_update().clone();
        let shared = Arc::new(RunContext::new(self, owned, &plan));
        let positions = loop {
            tokio::select! {
                biased;
                positions = start::positions(&shared, &plan.outlets, &stop) => break positions?,
                newer = newer(&mut plans) => shared.follow(&mut plan, newer),
            }
        };
        let Some(positions) = positions else { return Ok(()) };
        let after = positions.iter().filter_map(|cursor| cursor.through).min();
        info!(channel = %self.identity.name, after = after.map(super::event::Offset::get), "channel started");

        let mut lanes = Lanes::new(shared.clone(), stop.clone());
        lanes.begin(&plan, positions);
        let ended = {
            let mut reading = Box::pin(read(&shared, &stop));
            loop {
                tokio::select! {
                    biased;
                    ended = &mut reading => break ended,
                    ended = lanes.ended() => break ended,
                    newer = newer(&mut plans) => {
                        shared.follow(&mut plan, newer);
                        lanes.follow(&plan);
                    }
                }
            }
        };
        if let Err(ChannelError::Gone) = ended {
            let (channel, channel_id) = (&self.identity.name, self.identity.id);
            error!(%channel, %channel_id, "channel does not exist or is archived: stopped, the others go on");
            self.handle.board.update(|board| board.says(Activity::Gone, Duration::ZERO));
        } else {
            // Also where a lane has ended: the other lanes must not wait for their sinks.
            stop.cancel();
        }
        shared.hub.close();
        // From here on only lanes and their sinks are waited for: that is no standstill.
        self.handle.board.update(|board| board.pace.rest());
        lanes.drain(ended).await
    }
}

/// The next task to end, and how; a panic is an error. `None` where there is no task.
pub(crate) async fn next_ended(
    tasks: &mut JoinSet<Result<(), ChannelError>>,
) -> Option<(Id, Result<(), ChannelError>)> {
    Some(match tasks.join_next_with_id().await? {
        Ok(ended) => ended,
        Err(panic) => (panic.id(), Err(ChannelError::Panicked(panic))),
    })
}

/// Feeds the lanes, and asks for late proofs.
async fn read(shared: &Arc<RunContext>, stop: &CancellationToken) -> Result<(), ChannelError> {
    tokio::select! {
        biased;
        ended = feed(shared, stop) => ended,
        ended = late::settle(shared, stop) => ended,
    }
}

/// Reads, and feeds every lane that keeps up. A new plan begins anew where the hub is.
async fn feed(shared: &Arc<RunContext>, stop: &CancellationToken) -> Result<(), ChannelError> {
    loop {
        let read_plan = shared.read_plan();
        tokio::select! {
            biased;
            ended = feed_by(read_plan.clone(), shared, stop) => return ended,
            () = read_plan.over() => {}
        }
    }
}

async fn feed_by(
    read_plan: Arc<ReadPlan>,
    shared: &Arc<RunContext>,
    stop: &CancellationToken,
) -> Result<(), ChannelError> {
    let schedule = PollSchedule::of(shared.channel.id, shared.machine.began(), read_plan.settings.idle_wait);
    let reporter = StatusReporter::new(&shared.handle, Part::Channel);
    let mut intake = Intake::new(shared.clone(), read_plan, shared.hub.position(), reporter.clone());
    loop {
        let go_on = match intake.next(stop).await? {
            Taken::Batch(batch) => {
                let awaited = batch.pending.iter().map(Awaited::from).collect();
                let handing_on =
                    async { shared.hub.hand_on(batch, stop).await && shared.late.add(awaited, &reporter, stop).await };
                intake.meanwhile(handing_on).await
            }
            Taken::Nothing => pause(schedule.wait(), stop).await,
            Taken::Stopped => false,
        };
        if !go_on {
            return Ok(());
        }
    }
}

/// Waits; `false` where `stop` fired first.
async fn pause(wait: Duration, stop: &CancellationToken) -> bool {
    if wait.is_zero() {
        return !stop.is_cancelled();
    }
    tokio::select! { biased; () = stop.cancelled() => false, () = tokio::time::sleep(wait) => true }
}
