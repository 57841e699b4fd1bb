//! Runs one channel in a loop: poll, verify, order, deliver, record, always in that sequence.
//!
//! ```text
//! reader ──► verify ──► batch ──► hub ──┬─► lane ─► sink      one lane per sink, each with its own cursor
//! └──────── intake ─────────┘           └─► lane ─► sink      a lane that falls behind has its own intake
//!              ▲
//!              └── late events, read again by id until their proof arrives
//! ```
//!
//! While more events can be read, all stages work at the same time. One range is being read (`read::ahead`). The range
//! before it is being verified on every processor (`verify`, `machine`). The earlier ranges are being delivered, and are
//! joined if the sink was busy.
//!
//! # Invariants
//!
//! * **Owned.** The channel runs only while this instance has its lease. Every state change goes through the claim. Only the
//!   holders of the claim change the ledger: this task, its lanes, and an operator's command.
//! * **A slow sink does not delay the others.** See `deliver::hub`.
//! * **Unchanged parts keep running.** A new plan (see [`Channel::become_like`]) restarts only the parts that it changes:
//!   reading, and the lanes whose sink is used differently.
//! * **Bounded.** At most two ranges are read ahead. Each lane has at most `MAX_JOINED` batches in delivery, the same number
//!   prepared, and `QUEUE_BATCHES` queued. At most [`LATE`] events wait for their proof. Reading waits at these limits.
//!   [`memory`](net::memory) limits the memory of all of them together.
//!
//! # Cancellation
//!
//! `stop` is observed while polling or waiting, never between delivering a batch and recording it. If a batch is queued when
//! `stop` fires, it is neither delivered nor recorded. It is read again later.
//!
//! Each `select!` is biased: if several branches are ready, their order is fixed, and a test history repeats exactly.

#![forbid(unsafe_code)]

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use api::Client;
#[cfg(doc)]
use ledger::LATE;
use ledger::{CommitError, StateError};
use net::tasks::newer;
use record::ChannelRef;
use telemetry::metrics::ChannelMetrics;

mod board;
mod comparison;
mod context;
mod controls;
mod deliver;
mod hour;
mod late;
mod machine;
#[cfg(test)]
mod model;
mod newest;
mod pace;
mod parts;
mod read;
mod reporter;
mod settings;
mod status;
mod tail;
mod tasks;
#[cfg(test)]
mod tests;
mod trouble;
mod verify;

pub use comparison::{Accounts, Comparison, ExpectedEvent, MOST_LISTED, NotCompared, Scope, SinkComparison, Tally};
pub use controls::Owned;
pub use controls::{Handle, Handles, Pauses};
pub use hour::{GAP, HOUR, Sample};
pub use late::deliveries::LateDelivery;
pub use machine::Processors;
pub use pace::{Progress, grouped, rate, span};
pub use parts::SharedParts;
pub use read::history::History;
pub use read::history::{first_since, unobserved};
pub use read::reader::ReadError;
pub use settings::{Ordering, Outlet, Settings, Start, UnsignedPolicy, Verification};
pub use status::{
    Activity, ChannelStatus, Compared, Condition, Kept, LaneState, LaneStatus, Level, NONE_VERIFIED, NOTEWORTHY,
    POLLS_IN_VAIN, Problem, Refill, SharedProofs, SharedWorkflow, SignerStatus,
};
pub use tail::{Delivered, Seen, Tail};
pub use tasks::{Task, Tasks};
pub use verify::expect::decoded;
pub use verify::expect::{Expect, Named, Names, NotOfChannel};
pub use verify::reason::{RejectionReason, RejectionSeverity};
pub use verify::recent::Alarm;
pub use verify::recent::RecentEvents;

use board::RunOnBoard;
use comparison::daily;
use context::{ReadPlan, RunContext};
use deliver::lanes::Lanes;
use read::gaps;
use read::intake::{Intake, LOOK_AHEAD_TIMEOUT, look_ahead};
use read::schedule::until_next_poll;
use read::source::Service;
use read::start;
use reporter::Part;
use settings::Plan;

/// The number of batches that can wait for one lane. If more arrive, reading waits.
const QUEUE_BATCHES: usize = 2;

/// Why a channel's loop ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The service reports that the channel is gone. This channel ends; the others keep running.
    #[error("the channel does not exist or is archived")]
    Gone,
    /// The lease of the channel is lost: another instance has it, or the channel must be loaded again. This run ends; the
    /// other channels keep running.
    #[error("the lease of the channel is lost")]
    Lost,
    /// The state cannot be read or written, and the daemon ends. Unrecorded events are read again.
    #[error("the state could not be read or written")]
    State(#[from] StateError),
    /// A sink's reader is permanently gone, and the daemon ends.
    #[error("nothing reads sink {sink} any more")]
    SinkClosed {
        /// The sink.
        sink: Arc<str>,
    },
    /// A part of the loop panicked. This is a defect; the channel starts again from its cursors.
    #[error("a part of the channel's loop panicked")]
    Panicked(#[source] JoinError),
    /// The ledger refused a commit. This is a defect; the channel starts again from its cursors.
    #[error("a commit was refused")]
    Refused(#[from] ledger::Refusal),
}

impl From<CommitError> for ChannelError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Refused(refusal) => Self::Refused(refusal),
            CommitError::Lost(_) => Self::Lost,
            CommitError::State(error) => Self::State(error),
        }
    }
}

/// One channel, ready to run.
#[derive(Debug)]
pub struct Channel {
    /// Its name and id.
    pub identity: ChannelRef,
    plan: watch::Sender<Plan>,
    handle: Arc<Handle>,
    /// The channel's metrics.
    pub metrics: Arc<ChannelMetrics>,
    parts: SharedParts,
}

impl Channel {
    /// Creates a channel. It does nothing before [`run`](Self::run).
    pub fn new(settings: Settings, api: Client, outlets: Vec<Outlet>, parts: &SharedParts) -> Self {
        let handle = parts.handles.of(settings.channel.id);
        let metrics = Arc::new(parts.metrics.channel(&settings.channel));
        let (channel, board, counts) = (settings.channel.id, handle.clone(), metrics.clone());
        let api = api.counted_by(handle.memory.clone());
        let source = Arc::new(Service { api, channel, handle: board, metrics: counts });
        let plan = Plan { settings: Arc::new(settings), source, outlets };
        Self::with_plan(plan, handle, metrics, parts.clone())
    }

    fn with_plan(plan: Plan, handle: Arc<Handle>, metrics: Arc<ChannelMetrics>, parts: SharedParts) -> Self {
        Self { identity: plan.settings.channel.clone(), plan: watch::Sender::new(plan), handle, metrics, parts }
    }

    /// Adopts the plan of `newer`, which describes the same channel. Reading and lanes restart if the plan changes them. The
    /// others keep running.
    pub fn become_like(&self, newer: &Self) {
        self.plan.send_replace(newer.plan.borrow().clone());
    }

    /// Claims the channel, and runs until `stop` fires or the channel ends by itself. Returns when every lane has finished
    /// its current batch. While the channel is paused, it neither reads nor delivers. After a resume, it begins from its
    /// cursors.
    ///
    /// # Errors
    /// [`ChannelError`] if the channel ended without being stopped.
    pub async fn run(self: &Arc<Self>, stop: &CancellationToken) -> Result<(), ChannelError> {
        let SharedParts { ledgers, recent, .. } = &self.parts;
        let claiming = ledgers.claim(self.identity.id, recent.proofs_each());
        let claimed = tokio::select! { biased; () = stop.cancelled() => return Ok(()), claimed = claiming => claimed? };
        let owned = self.handle.own(&self.identity, claimed.ok_or(ChannelError::Lost)?, recent);
        let ended = tokio::select! {
            biased;
            ended = self.work(&owned, stop) => ended,
            ended = owned.end_pauses(&self.handle, &self.identity) => ended.map(|never| match never {}).map_err(Into::into),
            () = owned.claim.lease.lost.cancelled() => Err(ChannelError::Lost),
        };
        let lease = &owned.claim.lease;
        if lease.is_shared() {
            if let Err(ChannelError::Gone) = ended {
                // Keep the lease: otherwise every other instance claims the channel, only to find out that it is gone.
                tokio::select! { () = stop.cancelled() => {}, () = lease.lost.cancelled() => {} }
            }
            self.handle.board().ledger = None;
        }
        ended
    }

    async fn work(self: &Arc<Self>, owned: &Arc<Owned>, stop: &CancellationToken) -> Result<(), ChannelError> {
        while self.handle.until(|pauses| pauses.paused.channel.is_none(), stop).await {
            let pausing = stop.child_token();
            let mut running = Box::pin(self.run_once(owned, &pausing));
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                paused = self.handle.until(|pauses| pauses.paused.channel.is_some(), stop) => if paused { pausing.cancel() },
            }
            running.await?;
            if !stop.is_cancelled() {
                info!(channel = %self.identity.name, "channel paused");
            }
        }
        Ok(())
    }

    async fn run_once(self: &Arc<Self>, owned: &Arc<Owned>, stop: &CancellationToken) -> Result<(), ChannelError> {
        let _running = owned.running.lock().await;
        let _on_board = RunOnBoard::begin(&self.handle, &self.identity.name);
        let (mut plans, stop) = (self.plan.subscribe(), stop.child_token());
        let mut plan = plans.borrow_and_update().clone();
        let shared = Arc::new(RunContext::new(self, owned, &plan));
        let positions = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                positions = start::positions(&shared, &plan.outlets) => break positions?,
                newer = newer(&mut plans) => {
                    shared.follow(&newer);
                    plan = newer;
                }
            }
        };
        let after = positions.iter().flatten().filter_map(|cursor| cursor.through).min();
        info!(channel = %self.identity.name, after = after.map(proof::event::Offset::get), "channel started");

        shared.look(|ledger| shared.gaps.begin(ledger.history(), shared.hub.position(), plan.settings.settle));
        let mut lanes = Lanes::begin(shared.clone(), plan, positions, stop.clone());
        let ended = {
            let mut reading = Box::pin(read(&shared, &stop));
            loop {
                tokio::select! {
                    biased;
                    ended = &mut reading => break ended,
                    ended = lanes.ended() => break ended,
                    newer = newer(&mut plans) => lanes.follow(newer),
                }
            }
        };
        if let Err(ChannelError::Gone) = ended {
            let (channel, channel_id) = (&self.identity.name, self.identity.id);
            error!(%channel, %channel_id, "channel does not exist or is archived: stopped, the others go on");
            self.handle.board().says(Activity::Gone);
        } else {
            // This also stops the other lanes if one lane ended: they must not wait for their sinks.
            stop.cancel();
        }
        shared.hub.close();
        lanes.drain(ended).await
    }
}

/// Feeds the lanes, and requests late proofs, until `stop` fires.
async fn read(shared: &Arc<RunContext>, stop: &CancellationToken) -> Result<(), ChannelError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        ended = shared.by_plan(|read_plan| feed(shared, read_plan)) => ended,
        ended = late::settle(shared) => ended,
        ended = gaps::watch(shared) => ended.map(|never| match never {}),
        ended = daily::watch(shared) => ended.map(|never| match never {}),
    }
}

/// Reads from the hub's position, and feeds every lane that keeps up.
async fn feed(shared: &Arc<RunContext>, read_plan: Arc<ReadPlan>) -> Result<(), ChannelError> {
    let Channel { identity, parts, .. } = &*shared.channel;
    let (source, every) = (read_plan.source.clone(), read_plan.settings.idle_wait);
    let mut intake = Intake::new(shared.clone(), read_plan, shared.hub.position(), Part::Channel);
    let mut next_look = Instant::now();
    loop {
        let batch = intake.next().await?;
        if next_look <= Instant::now() {
            let _ = timeout(LOOK_AHEAD_TIMEOUT, look_ahead(shared, &*source, &mut next_look)).await;
        }
        if let Some(batch) = batch {
            let handing_on = async {
                intake.during(shared.hub.hand_on(batch)).await;
                if late::is_full(shared) {
                    intake.forget();
                    late::room(shared, &intake.reporter).await;
                }
            };
            let looking_ahead = async {
                loop {
                    look_ahead(shared, &*source, &mut next_look).await;
                }
            };
            tokio::select! { biased; () = handing_on => {}, () = looking_ahead => {} }
        } else {
            let next = sleep(until_next_poll(identity.id, parts.machine.began(), every));
            tokio::select! { biased; () = shared.channel.handle.poll_asked() => {}, () = next => {} }
        }
    }
}
