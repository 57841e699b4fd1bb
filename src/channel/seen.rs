//! What a channel and its lanes have said of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;

use super::batch::Work;
use super::newest::Newest;
use super::pace::{Pace, Standstill};
use super::sightings::Sightings;
use super::status::{Activity, Problem};
use crate::event::Offset;

/// What the channel has said of itself.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Its name in the configuration.
    pub(super) name: Arc<str>,
    pub(super) activity: Activity,
    pub(super) pace: Pace,
    /// A request is answered, or given up, in this time.
    pub(super) answers_within: Duration,
    pub(super) newest: Newest,
    pub(super) last_poll: Option<Timestamp>,
    pub(super) late_proofs: Option<Problem>,
    pub(super) last_error: Option<Problem>,
    pub(super) signers: Arc<Sightings>,
    pub(super) lanes: BTreeMap<Arc<str>, SeenLane>,
}

/// What a lane has said of itself.
#[derive(Debug, Default)]
pub(super) struct SeenLane {
    pub(super) error: Option<Problem>,
    pub(super) reading: Option<Activity>,
    pace: Pace,
    /// Everything up to here has been dealt with.
    through: Option<Offset>,
    /// When the event happened that is being offered.
    pub(super) offers: Option<Timestamp>,
    queue: Option<mpsc::WeakSender<Work>>,
}

impl Seen {
    pub(super) fn says(&mut self, activity: Activity, wait: Duration) {
        self.pace.begin(&activity, wait, self.answers_within);
        if let Some(problem) = activity.problem() {
            self.last_error = Some(problem.clone());
        }
        self.activity = activity;
    }

    pub(super) fn lane_says(&mut self, sink: &Arc<str>, activity: Activity, wait: Duration) {
        let within = self.answers_within;
        let lane = self.lane(sink);
        lane.pace.begin(&activity, wait, within);
        lane.reading = Some(activity);
    }

    /// Some part that reads has been answered: which, is not known here.
    pub(super) fn read(&mut self) {
        let within = self.answers_within;
        self.pace.moved(within);
        self.lanes.values_mut().for_each(|lane| lane.pace.moved(within));
    }

    pub(super) fn moves(&mut self) {
        self.pace.moved(self.answers_within);
    }

    pub(super) fn lane_moves(&mut self, sink: &Arc<str>) {
        let within = self.answers_within;
        self.lane(sink).pace.moved(within);
    }

    /// A lane reads no more for itself.
    pub(super) fn lane_rejoins(&mut self, sink: &Arc<str>) {
        let lane = self.lane(sink);
        lane.reading = None;
        lane.pace.rest();
    }

    /// A lane has ended: what it did last is not waited for.
    pub(super) fn lane_ends(&mut self, sink: &str) {
        if let Some(lane) = self.lanes.get_mut(sink) {
            lane.pace.rest();
        }
    }

    /// A lane offers an event of that time, in Unix seconds, to its sink.
    pub(super) fn lane_offers(&mut self, sink: &Arc<str>, time: Option<i64>) {
        self.lane(sink).offers = time.and_then(|time| Timestamp::from_second(time).ok());
    }

    /// A lane has dealt with everything up to here.
    pub(super) fn lane_recorded(&mut self, sink: &Arc<str>, through: Option<Offset>) {
        let lane = self.lane(sink);
        (lane.through, lane.offers) = (through, None);
        self.newest.dealt_with(self.lanes.values().map(|lane| lane.through).min().flatten());
    }

    /// A lane begins anew.
    pub(super) fn lane_begins(&mut self, sink: &Arc<str>, through: Option<Offset>, queue: mpsc::WeakSender<Work>) {
        *self.lane(sink) = SeenLane { through, queue: Some(queue), ..SeenLane::default() };
    }

    /// What should have moved and has not, by more than `allowance`.
    pub(super) fn standstill(&self, allowance: Duration) -> Option<Standstill> {
        let name = &self.name;
        let lane = |(sink, lane): (&Arc<str>, &SeenLane)| {
            lane.pace.standstill(allowance, || format!("channel {name}, sink {sink}"))
        };
        let reading = self.pace.standstill(allowance, || format!("channel {name}"));
        reading.or_else(|| self.lanes.iter().find_map(lane))
    }

    pub(super) fn lane(&mut self, sink: &Arc<str>) -> &mut SeenLane {
        self.lanes.entry(sink.clone()).or_default()
    }
}

impl SeenLane {
    /// What was handed to it and it has not begun.
    pub(super) fn queued(&self) -> usize {
        let queue = self.queue.as_ref().and_then(mpsc::WeakSender::upgrade);
        queue.map_or(0, |queue| queue.max_capacity() - queue.capacity())
    }
}
