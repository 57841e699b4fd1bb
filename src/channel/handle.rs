//! The end of a channel that others hold while it runs, stands still or starts again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex as Turn, MutexGuard as Turned, Notify, watch};
use tokio_util::sync::CancellationToken;

use super::pace::Standstill;
use super::seen::{Seen, SeenLane};
use super::sightings::Sightings;
use super::status::{Activity, LaneNow, LaneStatus, Problem, Status};
use crate::event::{ChannelId, Offset};
use crate::metrics::Metrics;
use crate::trace::Traces;
use crate::verify::SignerSet;

/// One channel as an operator reaches it. Outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    running: Turn<()>,
    pub(super) acquitted: Notify,
    paused: watch::Sender<Paused>,
    /// How often an operator has resumed each sink.
    resumed: watch::Sender<BTreeMap<String, u64>>,
    seen: Mutex<Seen>,
    metrics: Metrics,
    traces: Traces,
}

/// What stands still until an operator resumes it. Forgotten when the process ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paused {
    /// The channel as a whole.
    pub channel: bool,
    /// These sinks of it.
    pub sinks: BTreeSet<String>,
    /// These sinks of it want no more, and why: they are left alone until an operator resumes them.
    pub(super) gone: BTreeMap<String, Problem>,
}

/// As long as this lives, the channel does not run.
#[derive(Debug)]
pub struct StandingStill<'a> {
    _turn: Turned<'a, ()>,
}

impl Handle {
    fn new(metrics: Metrics, traces: Traces) -> Self {
        Self {
            running: Turn::default(),
            acquitted: Notify::default(),
            paused: watch::Sender::default(),
            resumed: watch::Sender::default(),
            seen: Mutex::default(),
            metrics,
            traces,
        }
    }

    /// Where the traces of its batches begin.
    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Where it is counted what the channel does.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where it is noted who has signed.
    pub(super) fn sightings(&self, signers: &SignerSet) -> Arc<Sightings> {
        let mut seen = self.seen();
        seen.signers = Sightings::of(signers, &seen.signers);
        seen.signers.clone()
    }

    /// What should have moved and has not, by more than `allowance`.
    #[must_use]
    pub fn standstill(&self, allowance: Duration) -> Option<Standstill> {
        self.seen().standstill(allowance)
    }

    /// Keeps the channel from running; `None` where it runs.
    pub fn stand_still(&self) -> Option<StandingStill<'_>> {
        self.running.try_lock().ok().map(|turn| StandingStill { _turn: turn })
    }

    /// What is paused.
    #[must_use]
    pub fn paused(&self) -> Paused {
        self.paused.borrow().clone()
    }

    /// Pauses a sink; `false` where it was.
    pub fn pause_sink(&self, sink: &str) -> bool {
        self.change(|state| {
            state.sinks.insert(sink.to_owned());
        })
    }

    /// Lets a sink go on that was paused, or that wanted no more; `false` where it was neither. What waits because it
    /// refused is offered at once.
    pub fn resume_sink(&self, sink: &str) -> bool {
        let changed = self.change(|state| {
            state.sinks.remove(sink);
            state.gone.remove(sink);
        });
        self.resumed.send_modify(|times| *times.entry(sink.to_owned()).or_default() += 1);
        changed
    }

    /// Waits until an operator resumes a sink, whether or not it was paused.
    pub(super) async fn sink_resumed(&self, sink: &str) {
        let mut resumed = self.resumed.subscribe();
        let before = resumed.borrow_and_update().get(sink).copied();
        // No error: what sends is here.
        let _ = resumed.wait_for(|times| times.get(sink).copied() != before).await;
    }

    /// A sink wants no more.
    pub(super) fn sink_is_gone(&self, sink: &str, why: Problem) {
        self.change(|state| drop(state.gone.insert(sink.to_owned(), why)));
    }

    /// A sink is not what it was: it is asked again, even if it wanted no more.
    pub(super) fn sink_is_another(&self, sink: &str) {
        self.change(|state| drop(state.gone.remove(sink)));
    }

    /// Pauses or resumes; `false` where that changes nothing.
    pub fn change(&self, change: impl FnOnce(&mut Paused)) -> bool {
        self.paused.send_if_modified(|paused| {
            let before = paused.clone();
            change(paused);
            *paused != before
        })
    }

    /// Waits until the channel is, or is not, paused as a whole; `false` where `stop` fired first.
    pub(super) async fn until_channel(&self, paused: bool, stop: &CancellationToken) -> bool {
        self.until(|state| state.channel == paused, stop).await
    }

    /// Waits as long as a sink is paused, or wants no more; `false` where `stop` fired first.
    pub(super) async fn until_sink_goes_on(&self, sink: &str, stop: &CancellationToken) -> bool {
        self.until(|state| !state.sinks.contains(sink) && !state.gone.contains_key(sink), stop).await
    }

    async fn until(&self, holds: impl FnMut(&Paused) -> bool, stop: &CancellationToken) -> bool {
        let mut paused = self.paused.subscribe();
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            held = paused.wait_for(holds) => held.is_ok(),
        }
    }

    /// Says that events have left the quarantine.
    pub fn acquitted(&self) {
        self.acquitted.notify_one();
    }

    /// The channel as it is now.
    #[must_use]
    pub fn status(&self) -> Status {
        let (paused, seen) = (self.paused(), self.seen());
        let stands = seen.activity == Activity::Stopped && paused.channel;
        let lane = |(sink, lane): (&Arc<str>, &SeenLane)| {
            // A lane that began after its sink was gone has not asked it.
            let error = lane.error.as_ref().or_else(|| paused.gone.get(&**sink));
            let paused = paused.sinks.contains(&**sink);
            let status = LaneStatus::of(error.cloned(), lane.reading.clone(), paused);
            (sink.to_string(), LaneNow { status, queued: lane.queued(), offers: lane.offers })
        };
        Status {
            activity: if stands { Activity::Paused } else { seen.activity.clone() },
            newest: seen.newest.clone(),
            last_poll: seen.last_poll,
            late_proofs: seen.late_proofs.clone(),
            last_error: seen.last_error.clone(),
            signers: seen.signers.clone(),
            lanes: seen.lanes.iter().map(lane).collect(),
        }
    }

    /// The service has answered with a page of these offsets, descending.
    pub(super) fn polled(&self, offsets: impl Iterator<Item = Offset>) {
        let now = Timestamp::now();
        self.observe(|seen| {
            seen.newest.shown(offsets, now);
            seen.last_poll = Some(now);
            seen.read();
        });
    }

    /// The service has answered whoever reads.
    pub(super) fn answered(&self) {
        self.observe(Seen::read);
    }

    pub(super) fn observe(&self, observed: impl FnOnce(&mut Seen)) {
        observed(&mut self.seen());
    }

    pub(super) fn observe_lane<T>(&self, sink: &Arc<str>, observed: impl FnOnce(&mut SeenLane) -> T) -> T {
        observed(self.seen().lane(sink))
    }

    /// The lane of a sink does not run any more.
    pub(super) fn forget_lane(&self, sink: &str) {
        self.seen().lanes.remove(sink);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As long as the answer lives, the channel of that name runs. Whatever it asks is answered, or given up, within
    /// `answers_within`.
    pub(super) async fn run(&self, name: &Arc<str>, answers_within: Duration) -> Running<'_> {
        let turn = self.running.lock().await;
        self.observe(|seen| {
            (seen.name, seen.answers_within) = (name.clone(), answers_within);
            seen.says(Activity::Reading, Duration::ZERO);
        });
        Running { handle: self, _turn: turn }
    }
}

/// A run of a channel.
#[derive(Debug)]
pub(super) struct Running<'a> {
    handle: &'a Handle,
    _turn: Turned<'a, ()>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.handle.observe(|seen| {
            seen.pace.rest();
            if seen.activity != Activity::Gone {
                seen.activity = Activity::Stopped;
            }
            seen.lanes.clear();
            seen.late_proofs = None;
        });
    }
}

/// The handles of all channels.
#[derive(Debug, Default)]
pub struct Handles {
    known: Mutex<HashMap<ChannelId, Arc<Handle>>>,
    metrics: Metrics,
    traces: Traces,
}

impl Handles {
    /// Of channels whose traces are exported.
    #[must_use]
    pub fn traced(metrics: Metrics, traces: Traces) -> Self {
        Self { known: Mutex::default(), metrics, traces }
    }

    /// The handle of a channel: always the same.
    #[must_use]
    pub fn of(&self, channel: ChannelId) -> Arc<Handle> {
        let new = || Arc::new(Handle::new(self.metrics.clone(), self.traces.clone()));
        self.known().entry(channel).or_insert_with(new).clone()
    }

    /// Where it is counted what the channels do.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The first channel that should have moved and has not, by more than `allowance`.
    #[must_use]
    pub fn standstill(&self, allowance: Duration) -> Option<Standstill> {
        self.known().values().find_map(|handle| handle.standstill(allowance))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ChannelId, Arc<Handle>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
