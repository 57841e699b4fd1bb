//! One channel's loop: poll, verify, order, deliver, record. In that order, forever.
//!
//! ```text
//! reader ──► judge ──► batch ──► hub ──┬─► lane ─► sink      one lane a sink, each with its own cursor
//! └──────── intake ────────┘           └─► lane ─► sink      one that falls behind has an intake of its own
//!              ▲
//!              └── late ◄── pending events, read again by id until their proof comes
//! ```
//!
//! While there is more to read, all of it is at work at the same time: a range is on its way (`ahead`), the one before it
//! is judged on every processor (`clerk`, `machine`), and those before are delivered, as many together as have come
//! while the sink was busy.
//!
//! # Invariants
//!
//! * **Verified before delivered.** A lane is given [`Record`](crate::record::Record)s, and only a judged event becomes
//!   one.
//! * **Nothing old as news.** A proof that comes again elsewhere, or other content in a place that was read before, is
//!   quarantined, as far as [`RecentEvents`] tell.
//! * **Delivered before recorded.** A crash at any point repeats events and never skips one.
//! * **One writer a cursor.** Only a lane moves its cursor, whoever feeds it.
//! * **A slow sink holds up nobody.** See the hub.
//! * **Who did not change goes on.** Another plan (see [`Channel::become_like`]) ends and begins only what it changes: the
//!   way of reading, and the lanes whose sink is used differently.
//! * **Bounded.** At most two ranges are read ahead, `QUEUE_BATCHES` batches wait for a lane, and `MAX_LATE` events for their
//!   proof; then reading waits. Channels that are behind take turns, see `turns`.
//!
//! # Cancellation
//!
//! `stop` is observed while polling or waiting, never between delivering a batch and recording it. What waits in a
//! queue when `stop` fires is not started: it is not recorded either, and is read again.
//!
//! Where several things may happen at once, each `select!` says which counts: the same history goes the same way twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::api::Client;
use crate::metrics::ChannelMetrics;
use crate::newer::newer;
use crate::record::ChannelRef;
use crate::state::{State, StateError};

mod ahead;
mod batch;
mod cadence;
mod clerk;
mod handle;
mod history;
mod hub;
mod intake;
mod judge;
mod lane;
mod lanes;
mod lasting;
mod late;
mod machine;
#[cfg(test)]
mod model;
mod newest;
mod pace;
mod plan;
mod reader;
mod replay;
mod seen;
mod shared;
mod sightings;
mod source;
mod start;
mod status;
mod teller;
#[cfg(test)]
mod tests;
mod trouble;
mod turns;
mod walk;

pub use handle::{Handle, Handles, Paused, StandingStill};
pub use history::History;
pub use lasting::Lasting;
pub use newest::Newest;
pub use pace::Standstill;
pub use plan::{Outlet, Settings};
pub use reader::ReadError;
pub use replay::RecentEvents;
pub use sightings::Sightings;
pub use status::{Activity, LaneCondition, LaneNow, LaneStatus, Problem, Status};

use cadence::Cadence;
use intake::{Intake, Taken};
use judge::Awaited;
use lanes::Lanes;
use machine::Machine;
use plan::Plan;
use shared::{Shared, Way};
use source::{Service, Told};
use teller::Teller;

/// Batches that wait for one lane before reading waits for it.
const QUEUE_BATCHES: usize = 2;

/// Events of one channel that may wait for their proof at the same time before reading waits for them.
pub const MAX_LATE: usize = 10_000;

/// Why a channel's loop ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The service says the channel is gone. This channel ends; the others go on.
    #[error("the channel does not exist or is archived")]
    Gone,
    /// The record of where we are may be wrong: an operator must look before anything is read again.
    #[error("the state could not be read or written")]
    State(#[from] StateError),
    /// A sink's reader has gone for good: the daemon ends.
    #[error("nobody reads sink {sink} any more")]
    SinkClosed {
        /// The sink.
        sink: Arc<str>,
    },
    /// A part of the loop panicked. A defect; the channel starts again from its cursors.
    #[error("a part of the channel's loop panicked")]
    Panicked(#[source] JoinError),
}

/// One channel, ready to run.
#[derive(Debug)]
pub struct Channel {
    identity: ChannelRef,
    plan: watch::Sender<Plan>,
    state: Arc<State>,
    recent: Arc<RecentEvents>,
    handle: Arc<Handle>,
    machine: Arc<dyn Machine>,
    metrics: Arc<ChannelMetrics>,
}

impl Channel {
    /// Nothing happens before [`run`](Self::run).
    #[must_use]
    pub fn new(settings: Settings, api: Client, outlets: Vec<Outlet>, lasting: &Lasting) -> Self {
        let Lasting { state, handles, recent, machine } = lasting;
        let handle = handles.of(settings.channel.id);
        let metrics = Arc::new(handle.metrics().channel(&settings.channel));
        let told = Told { handle: handle.clone(), metrics: metrics.clone() };
        let answers_within = api.request_timeout();
        let source = Arc::new(Service::new(api, settings.channel.id, Some(told)));
        let plan = Plan { settings, source, outlets, answers_within };
        Self::by(plan, state.clone(), recent.clone(), handle, machine.clone(), metrics)
    }

    fn by(
        plan: Plan,
        state: Arc<State>,
        recent: Arc<RecentEvents>,
        handle: Arc<Handle>,
        machine: Arc<dyn Machine>,
        metrics: Arc<ChannelMetrics>,
    ) -> Self {
        let identity = plan.settings.channel.clone();
        Self { identity, plan: watch::Sender::new(plan), state, recent, handle, machine, metrics }
    }

    /// Notes that a run of it panicked.
    pub fn panicked(&self) {
        self.metrics.panicked();
    }

    /// Which channel it is.
    #[must_use]
    pub fn channel(&self) -> &ChannelRef {
        &self.identity
    }

    /// Goes on as `newer`, which is the same channel, would: reading begins anew if it is to be different, and the lanes
    /// that are different. The others do not notice.
    pub fn become_like(&self, newer: &Self) {
        self.plan.send_replace(newer.plan.borrow().clone());
    }

    /// Runs until `stop` fires or the channel ends by itself, and returns when every lane has finished the batch in
    /// hand. While the channel is paused it does nothing, and begins again from its cursors when it is resumed.
    ///
    /// # Errors
    /// [`ChannelError`], where it ended by itself.
    pub async fn run(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        while self.handle.until_channel(false, stop).await {
            let pausing = stop.child_token();
            let mut running = Box::pin(self.run_once(&pausing));
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                paused = self.handle.until_channel(true, stop) => if paused { pausing.cancel() },
            }
            running.await?;
            info!(channel = %self.identity.name, "channel paused");
        }
        Ok(())
    }

    async fn run_once(&self, stop: &CancellationToken) -> Result<(), ChannelError> {
        let answers_within = self.plan.borrow().answers_within;
        let _running = self.handle.run(&self.identity.name, answers_within).await;
        let (mut plans, stop) = (self.plan.subscribe(), stop.child_token());
        let mut plan = plans.borrow_and_update().clone();
        let shared = Arc::new(Shared::new(self, &plan)?);
        let positions = loop {
            tokio::select! {
                biased;
                positions = start::positions(&shared, &plan.outlets, &stop) => break positions?,
                newer = newer(&mut plans) => shared.follow(&mut plan, newer),
            }
        };
        let Some(positions) = positions else { return Ok(()) };
        let after = positions.iter().filter_map(|position| position.cursor).min().unwrap_or_default();
        info!(channel = %self.identity.name, %after, "channel started");

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
            self.handle.observe(|seen| seen.says(Activity::Gone, Duration::ZERO));
        } else {
            // Also where reading ended because a lane had: the other lanes must not wait for their sinks.
            stop.cancel();
        }
        shared.hub.close();
        // Whatever is waited for now, it is the lanes and their sinks.
        self.handle.observe(|seen| seen.pace.rest());
        lanes.drain(ended).await
    }
}

/// The next task of a channel, or of channels, to end, and how: a panic is an end too. `None` where there is no task.
pub(crate) async fn next_ended(
    tasks: &mut JoinSet<Result<(), ChannelError>>,
) -> Option<(Id, Result<(), ChannelError>)> {
    Some(match tasks.join_next_with_id().await? {
        Ok(ended) => ended,
        Err(panic) => (panic.id(), Err(ChannelError::Panicked(panic))),
    })
}

/// Reads on, feeds the lanes, and asks for late proofs.
async fn read(shared: &Arc<Shared>, stop: &CancellationToken) -> Result<(), ChannelError> {
    tokio::select! {
        biased;
        ended = feed(shared, stop) => ended,
        ended = late::settle(shared, stop) => ended,
    }
}

/// Reads on, and feeds every lane that keeps up: in whichever way is in force, and from where the lanes are.
async fn feed(shared: &Arc<Shared>, stop: &CancellationToken) -> Result<(), ChannelError> {
    loop {
        let way = shared.way();
        tokio::select! {
            biased;
            ended = feed_by(way.clone(), shared, stop) => return ended,
            () = way.over() => {}
        }
    }
}

async fn feed_by(way: Arc<Way>, shared: &Arc<Shared>, stop: &CancellationToken) -> Result<(), ChannelError> {
    let cadence = Cadence::of(shared.channel.id, shared.machine.began(), way.settings.idle_wait);
    let teller = Teller::channel(&shared.handle);
    let mut intake = Intake::new(shared.clone(), way, shared.hub.position(), teller.clone());
    loop {
        let go_on = match intake.next(stop).await? {
            Taken::Batch(batch) => {
                let awaited = batch.pending.iter().map(Awaited::from).collect();
                let handing_on =
                    async { shared.hub.hand_on(batch, stop).await && shared.book.add(awaited, &teller, stop).await };
                intake.meanwhile(handing_on).await
            }
            Taken::Nothing => pause(cadence.wait(), stop).await,
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
