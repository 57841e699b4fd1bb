//! The status board of a channel and its lanes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::channel::controls::Pauses;
use crate::channel::deliver::batch::Work;
use crate::channel::newest::Newest;
use crate::channel::pace::{Pace, Standstill};
use crate::channel::signers::SignerActivity;
use crate::channel::status::{Activity, LaneNow, LaneStatus, Problem, Status};
use crate::event::Offset;
use crate::ledger::Ledger;
use crate::verify::SignerSet;

/// One channel's status board. Each part of the loop writes what it does; an operator reads all of it.
#[derive(Debug, Default)]
pub struct Board {
    state: Mutex<BoardState>,
}

impl Board {
    /// The channel as it is now, given what is paused.
    pub(super) fn status(&self, pauses: &Pauses) -> Status {
        let state = self.lock();
        let is_paused = state.activity == Activity::Stopped && pauses.channel;
        let lane = |(sink, lane): (&Arc<str>, &LaneBoard)| {
            // A lane that began after its sink had gone has no error of its own.
            let error = lane.error.as_ref().or_else(|| pauses.gone.get(&**sink));
            let status = LaneStatus::of(error.cloned(), lane.reading.clone(), pauses.sinks.contains(&**sink));
            (sink.to_string(), LaneNow { status, queued: lane.queued(), offers: lane.offers })
        };
        Status {
            activity: if is_paused { Activity::Paused } else { state.activity.clone() },
            newest: state.newest.clone(),
            last_poll: state.last_poll,
            late_proofs: state.late_proofs.clone(),
            last_error: state.last_error.clone(),
            signers: state.signers.clone(),
            lanes: state.lanes.iter().map(lane).collect(),
        }
    }

    /// The ledger of the channel's last owner in this process, to be read only; `None` before the first.
    pub fn ledger(&self) -> Option<Arc<Mutex<Ledger>>> {
        self.lock().ledger.clone()
    }

    /// A part that should have made progress and has not, by more than `allowance`.
    #[must_use]
    pub fn standstill(&self, allowance: Duration) -> Option<Standstill> {
        self.lock().standstill(allowance)
    }

    /// The activity of these signers, with what is known of them already.
    pub(super) fn signer_activity(&self, signers: &SignerSet) -> Arc<SignerActivity> {
        let mut state = self.lock();
        state.signers = SignerActivity::of(signers, &state.signers);
        state.signers.clone()
    }

    /// Notes a page of these offsets, descending.
    pub(super) fn polled(&self, offsets: impl Iterator<Item = Offset>) {
        let now = Timestamp::now();
        self.update(|state| {
            state.newest.shown(offsets, now);
            state.last_poll = Some(now);
            state.read();
        });
    }

    /// Notes an answer of the service to a part that reads.
    pub(super) fn answered(&self) {
        self.update(BoardState::read);
    }

    /// Begins a run of the channel of that name. A request is answered, or times out, within `answers_within`.
    pub(super) fn run_begins(&self, name: &Arc<str>, answers_within: Duration) -> RunOnBoard<'_> {
        self.update(|state| {
            (state.name, state.answers_within) = (name.clone(), answers_within);
            state.says(Activity::Reading, Duration::ZERO);
        });
        RunOnBoard(self)
    }

    pub(super) fn update(&self, update: impl FnOnce(&mut BoardState)) {
        update(&mut self.lock());
    }

    pub(super) fn update_lane<T>(&self, sink: &Arc<str>, update: impl FnOnce(&mut LaneBoard) -> T) -> T {
        update(self.lock().lane(sink))
    }

    /// Removes the lane of a sink, which has ended.
    pub(super) fn forget_lane(&self, sink: &str) {
        self.lock().lanes.remove(sink);
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run of a channel. Dropping it shows that the run has ended.
pub(super) struct RunOnBoard<'a>(&'a Board);

impl Drop for RunOnBoard<'_> {
    fn drop(&mut self) {
        self.0.update(|state| {
            state.pace.rest();
            if state.activity != Activity::Gone {
                state.activity = Activity::Stopped;
            }
            state.lanes.clear();
            state.late_proofs = None;
        });
    }
}

/// What the parts of a channel have reported.
#[derive(Debug, Default)]
pub(super) struct BoardState {
    /// Its name in the configuration.
    pub(super) name: Arc<str>,
    pub(super) activity: Activity,
    pub(super) pace: Pace,
    /// A request is answered, or times out, in this time.
    pub(super) answers_within: Duration,
    pub(super) newest: Newest,
    pub(super) last_poll: Option<Timestamp>,
    pub(super) late_proofs: Option<Problem>,
    pub(super) last_error: Option<Problem>,
    pub(super) signers: Arc<SignerActivity>,
    pub(super) ledger: Option<Arc<Mutex<Ledger>>>,
    pub(super) lanes: BTreeMap<Arc<str>, LaneBoard>,
}

/// What a lane has reported.
#[derive(Debug, Default)]
pub(super) struct LaneBoard {
    pub(super) error: Option<Problem>,
    pub(super) reading: Option<Activity>,
    pace: Pace,
    /// Everything up to here has been dealt with.
    through: Option<Offset>,
    /// The time of the event that is being offered.
    pub(super) offers: Option<Timestamp>,
    queue: Option<mpsc::WeakSender<Work>>,
}

impl BoardState {
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

    /// A part that reads has been answered. It is not known here which, so all of them have made progress.
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

    /// A lane no longer reads for itself.
    pub(super) fn lane_rejoins(&mut self, sink: &Arc<str>) {
        let lane = self.lane(sink);
        lane.reading = None;
        lane.pace.rest();
    }

    /// A lane has ended: no progress is expected of it.
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

    /// A lane begins.
    pub(super) fn lane_begins(&mut self, sink: &Arc<str>, through: Option<Offset>, queue: mpsc::WeakSender<Work>) {
        *self.lane(sink) = LaneBoard { through, queue: Some(queue), ..LaneBoard::default() };
    }

    /// A part that should have made progress and has not, by more than `allowance`.
    pub(super) fn standstill(&self, allowance: Duration) -> Option<Standstill> {
        let name = &self.name;
        let lane = |(sink, lane): (&Arc<str>, &LaneBoard)| {
            lane.pace.standstill(allowance, || format!("channel {name}, sink {sink}"))
        };
        let reading = self.pace.standstill(allowance, || format!("channel {name}"));
        reading.or_else(|| self.lanes.iter().find_map(lane))
    }

    pub(super) fn lane(&mut self, sink: &Arc<str>) -> &mut LaneBoard {
        self.lanes.entry(sink.clone()).or_default()
    }
}

impl LaneBoard {
    /// Batches in its queue.
    pub(super) fn queued(&self) -> usize {
        let queue = self.queue.as_ref().and_then(mpsc::WeakSender::upgrade);
        queue.map_or(0, |queue| queue.max_capacity() - queue.capacity())
    }
}
