//! Runs a channel: claims the channel, starts its lanes, and reads its events.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::channel::controls::LeasedChannel;
use crate::channel::{Channel, SharedParts};
use crate::comparison::daily;
use crate::deliver::batch::Batch;
use crate::deliver::lanes::Lanes;
use crate::error::ChannelError;
use crate::late::{self, replay};
use crate::read::gap_search;
use crate::read::intake::{Intake, LOOK_AHEAD, LOOK_AHEAD_TIMEOUT, look_ahead};
use crate::read::source::Source;
use crate::read::start;
use crate::status::Activity;
use crate::status::reporter::{LoopPart, RunOnBoard};
use api::KEPT_CONNECTIONS;
use context::{ReadPlan, RunContext};
use net::tasks::newer;
use proof::event::ChannelId;

pub(crate) mod context;
pub(crate) mod machine;
pub(crate) mod tasks;
#[cfg(test)]
pub(crate) mod tests;

/// The least number of slots into which the time between two polls is divided.
const SLOTS: u32 = 50;

/// How many channels poll in the same slot on average, if the channels need more than [`SLOTS`] slots. If more channels polled
/// together than the client keeps connections, it would open a connection for each of the others, and close it after the poll.
const CHANNELS_OF_A_SLOT: usize = KEPT_CONNECTIONS / 2;

impl Channel {
    /// Claims the channel, and runs it until `stop` fires or an error ends it. Before this method returns, every lane
    /// finishes its current batch. While the channel is paused, it neither reads nor delivers. After a resume, it begins
    /// again from its cursors.
    ///
    /// # Errors
    /// [`ChannelError`] if the channel ended without being told to stop.
    pub async fn run(self: &Arc<Self>, stop: &CancellationToken) -> Result<(), ChannelError> {
        let SharedParts { ledgers, recent, .. } = &self.parts;
        // Futures that end soon are boxed here and below. Otherwise each channel would reserve their size while it runs.
        let claiming = Box::pin(ledgers.claim(self.identity.id, recent.proofs_each()));
        let claimed = tokio::select! { biased; () = stop.cancelled() => return Ok(()), claimed = claiming => claimed };
        self.handle.board().report_claim(claimed.as_ref().err());
        let owned = self.handle.own(&self.identity, claimed?.ok_or(ChannelError::Lost)?, recent);
        let ended = tokio::select! {
            biased;
            ended = self.work(&owned, stop) => ended,
            ended = owned.end_pauses(&self.handle, &self.identity) => ended.map(|never| match never {}).map_err(Into::into),
            () = owned.leased.lease.lost.cancelled() => Err(ChannelError::Lost),
        };
        let lease = &owned.leased.lease;
        if lease.is_shared() {
            if let Err(ChannelError::Gone) = ended {
                // Keep the lease. Otherwise the other instances would claim the channel one after another, and each would
                // find that it is gone.
                stop.run_until_cancelled(lease.lost.cancelled()).await;
            }
            self.handle.board().ledger = None;
        }
        ended
    }

    async fn work(self: &Arc<Self>, owned: &Arc<LeasedChannel>, stop: &CancellationToken) -> Result<(), ChannelError> {
        while self.handle.until(|pauses| pauses.paused.channel.is_none(), stop).await {
            let pausing = stop.child_token();
            let mut running = Box::pin(self.run_once(owned, &pausing));
            tokio::select! {
                biased;
                ended = &mut running => return ended,
                _ = self.handle.until(|pauses| pauses.paused.channel.is_some(), stop) => pausing.cancel(),
            }
            running.await?;
            if !stop.is_cancelled() {
                info!(channel = %self.identity.name, "channel paused");
            }
        }
        Ok(())
    }

    async fn run_once(
        self: &Arc<Self>,
        owned: &Arc<LeasedChannel>,
        stop: &CancellationToken,
    ) -> Result<(), ChannelError> {
        let _running = owned.running.lock().await;
        let _on_board = RunOnBoard::begin(&self.handle, &self.identity.name);
        let (mut plans, stop) = (self.plan.subscribe(), stop.child_token());
        let mut plan = plans.borrow_and_update().clone();
        let shared = Arc::new(RunContext::new(self, owned, &plan));
        let positions = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                positions = Box::pin(start::positions(&shared, &plan.lanes)) => break positions?,
                newer = newer(&mut plans) => {
                    shared.follow(&newer);
                    plan = newer;
                }
            }
        };
        let after = positions.iter().flatten().filter_map(|cursor| cursor.through).min();
        info!(channel = %self.identity.name, after = after.map(proof::event::Offset::get), "channel started");

        shared.look(|ledger| shared.gaps.begin(ledger.history(), shared.hub.position(), plan.settings.settle));
        replay::report_missing_sinks(&shared, &plan.lanes);
        let mut lanes = Lanes::begin(shared.clone(), plan, positions, stop.clone());
        let ended = {
            let mut reading = Box::pin(read(&shared, &stop));
            loop {
                tokio::select! {
                    biased;
                    ended = &mut reading => break ended,
                    ended = lanes.ended() => break ended,
                    newer = newer(&mut plans) => {
                        replay::report_missing_sinks(&shared, &newer.lanes);
                        lanes.follow(newer);
                    }
                }
            }
        };
        // An unavailable state is no end: the lanes finish their batches. After any other failure of the state, no lane can
        // record its batch, so none of them waits for its sink, and the error is reported immediately.
        if matches!(&ended, Err(ChannelError::State(error)) if !error.may_pass()) {
            return ended;
        }
        if let Err(ChannelError::Gone) = ended {
            let (channel, channel_id) = (&self.identity.name, self.identity.id);
            error!(%channel, %channel_id, "channel does not exist or is archived: stopped; the other channels continue");
            self.handle.board().report(Activity::Gone);
        } else {
            // If one lane has ended, this also stops the other lanes, so that they do not wait for their sinks.
            stop.cancel();
        }
        shared.hub.close();
        lanes.drain(ended).await
    }
}

/// Feeds the lanes, requests late proofs, searches the gaps, replays past events, and compares the history with the sinks, until
/// `stop` fires.
async fn read(shared: &Arc<RunContext>, stop: &CancellationToken) -> Result<(), ChannelError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        ended = shared.by_plan(|read_plan| feed(shared, read_plan)) => ended,
        ended = late::settle(shared) => ended,
        ended = gap_search::watch(shared) => ended.map(|never| match never {}),
        ended = replay::watch(shared) => ended.map(|never| match never {}),
        never = shared.by_plan(|read_plan| daily::watch(shared, read_plan)) => match never {},
    }
}

/// Reads from the hub's position, and feeds every lane that keeps up.
async fn feed(shared: &Arc<RunContext>, read_plan: Arc<ReadPlan>) -> Result<(), ChannelError> {
    let Channel { identity, parts, .. } = &*shared.channel;
    let (source, every) = (read_plan.source.clone(), read_plan.settings.idle_wait);
    let mut intake = Intake::new(shared.clone(), read_plan, shared.hub.position(), LoopPart::Channel);
    let mut next_look = Instant::now();
    loop {
        let batch = Box::pin(intake.next()).await?;
        if intake.has_seen_newest {
            next_look = Instant::now() + LOOK_AHEAD;
        } else if next_look <= Instant::now() {
            let differs = timeout(LOOK_AHEAD_TIMEOUT, look_ahead(shared, &*source, &mut next_look)).await;
            intake.is_compared &= differs != Ok(true);
        }
        if let Some(batch) = batch {
            // Boxed, because most polls have no batch.
            Box::pin(pass_on(shared, &mut intake, batch, &*source, &mut next_look)).await;
        } else {
            let slots = slots(parts.handles.number());
            let next = sleep(until_next_poll(identity.id, parts.machine.began(), every, slots));
            tokio::select! { biased; () = shared.channel.handle.polls.notified() => {}, () = next => {} }
        }
    }
}

/// Passes a batch to the lanes, and requests the newest event meanwhile.
async fn pass_on(shared: &RunContext, intake: &mut Intake, batch: Batch, source: &dyn Source, next_look: &mut Instant) {
    let passing_on = async {
        intake.during(shared.hub.pass_on(batch)).await;
        if late::is_full(shared) {
            intake.forget();
            late::room(shared, &intake.reporter).await;
        }
    };
    let looking_ahead = async {
        loop {
            // The intake is in use. The first request after the batch was passed on finds a difference again.
            let _differs = look_ahead(shared, source, next_look).await;
        }
    };
    tokio::select! { biased; () = passing_on => {}, () = looking_ahead => {} }
}

/// Returns the time until the next poll of a channel. The channel has read everything, and polls at the interval `every`.
///
/// Many channels start at the same moment, and many continue at the same moment after a stall of the service or the network.
/// If all channels then waited for the same time, they would always poll together, in bursts and over many connections.
/// Therefore the time between two polls is divided into slots, counted from `origin`. Each channel always polls in the same
/// slot, even after a delay. The channels of one slot poll together, because waking up costs more than a poll. The slot is
/// derived from the channel's id. This spreads the channels as well as a random choice, and each run uses the same slots.
fn until_next_poll(channel: ChannelId, origin: Instant, every: Duration, slots: u32) -> Duration {
    // Use the last bytes of the id, because the first bytes of some kinds of UUID are a time.
    let [.., a, b, c, d] = channel.0.into_bytes();
    let slot = u32::from_be_bytes([a, b, c, d]) % slots;
    let passed = origin.elapsed() + every * slot / slots;
    let since = passed.as_nanos().checked_rem(every.as_nanos()).unwrap_or_default();
    every.saturating_sub(Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX)))
}

/// Returns the number of slots for this many channels.
fn slots(channels: usize) -> u32 {
    u32::try_from(channels.div_ceil(CHANNELS_OF_A_SLOT)).unwrap_or(u32::MAX).max(SLOTS)
}
