//! The end of a channel that others hold while it runs, stands still or starts again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::{Mutex as Turn, MutexGuard as Turned, Notify, watch};
use tokio_util::sync::CancellationToken;

use super::status::{Activity, LaneStatus, Problem, Status};
use crate::event::{ChannelId, Offset};

/// One channel as an operator reaches it. Outlives the channel's runs and configurations.
#[derive(Debug, Default)]
pub struct Handle {
    running: Turn<()>,
    pub(super) acquitted: Notify,
    paused: watch::Sender<Paused>,
    seen: Mutex<Seen>,
}

/// What the channel has said of itself.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) activity: Activity,
    newest: Option<Offset>,
    last_poll: Option<Timestamp>,
    pub(super) late_proofs: Option<Problem>,
    lanes: BTreeMap<Arc<str>, SeenLane>,
}

/// What a lane has said of itself.
#[derive(Debug, Default)]
pub(super) struct SeenLane {
    pub(super) error: Option<Problem>,
    pub(super) reading: Option<Activity>,
}

/// What an operator has paused. Forgotten when the process ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paused {
    /// The channel as a whole.
    pub channel: bool,
    /// These sinks of it.
    pub sinks: BTreeSet<String>,
}

/// As long as this lives, the channel does not run.
#[derive(Debug)]
pub struct StandingStill<'a> {
    _turn: Turned<'a, ()>,
}

impl Handle {
    /// Keeps the channel from running; `None` where it runs.
    pub fn stand_still(&self) -> Option<StandingStill<'_>> {
        self.running.try_lock().ok().map(|turn| StandingStill { _turn: turn })
    }

    /// What is paused.
    #[must_use]
    pub fn paused(&self) -> Paused {
        self.paused.borrow().clone()
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

    /// Waits as long as a sink is paused; `false` where `stop` fired first.
    pub(super) async fn until_sink_goes_on(&self, sink: &str, stop: &CancellationToken) -> bool {
        self.until(|state| !state.sinks.contains(sink), stop).await
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
            let paused = paused.sinks.contains(&**sink);
            (sink.to_string(), LaneStatus::of(lane.error.clone(), lane.reading.clone(), paused))
        };
        Status {
            activity: if stands { Activity::Paused } else { seen.activity.clone() },
            newest: seen.newest,
            last_poll: seen.last_poll,
            late_proofs: seen.late_proofs.clone(),
            lanes: seen.lanes.iter().map(lane).collect(),
        }
    }

    /// The service has answered with a page whose highest offset is `newest`.
    pub(super) fn polled(&self, newest: Option<Offset>) {
        self.observe(|seen| {
            seen.newest = seen.newest.max(newest);
            seen.last_poll = Some(Timestamp::now());
        });
    }

    pub(super) fn observe(&self, observed: impl FnOnce(&mut Seen)) {
        observed(&mut self.seen());
    }

    pub(super) fn observe_lane(&self, sink: &Arc<str>, observed: impl FnOnce(&mut SeenLane)) {
        observed(self.seen().lanes.entry(sink.clone()).or_default());
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As long as the answer lives, the channel runs.
    pub(super) async fn run(&self) -> Running<'_> {
        let turn = self.running.lock().await;
        self.observe(|seen| seen.activity = Activity::Reading);
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
pub struct Handles(Mutex<HashMap<ChannelId, Arc<Handle>>>);

impl Handles {
    /// The handle of a channel: always the same.
    #[must_use]
    pub fn of(&self, channel: ChannelId) -> Arc<Handle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(channel).or_default().clone()
    }
}
