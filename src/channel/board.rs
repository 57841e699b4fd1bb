//! The status board of a channel. Each part of the loop writes what it does; an operator reads all of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::channel::controls::Pauses;
use crate::channel::deliver::batch::Work;
use crate::channel::newest::Newest;
use crate::channel::pace::Pace;
use crate::channel::status::{Activity, ChannelStatus, Kept, LaneState, LaneStatus, SignerStatus};
use crate::event::Offset;
use crate::ledger::{DEAD_LETTERS, LATE, Ledger, QUARANTINE};
use crate::record::ChannelRef;
use crate::verify::{Address, SignerSet};

/// One channel's status board.
#[derive(Debug, Default)]
pub struct Board(Mutex<BoardState>);

#[derive(Debug, Default)]
pub(super) struct BoardState {
    /// Complete but for what is looked up when it is asked for: see [`Board::status`].
    pub(super) status: ChannelStatus,
    pub(super) pace: Pace,
    /// A request is answered, or times out, in this time.
    pub(super) answers_within: Duration,
    pub(super) newest: Newest,
    pub(super) ledger: Option<Arc<Mutex<Ledger>>>,
    pub(super) lanes: BTreeMap<Arc<str>, LaneBoard>,
}

#[derive(Debug, Default)]
pub(super) struct LaneBoard {
    /// As for the channel.
    pub(super) status: LaneStatus,
    pub(super) pace: Pace,
    /// The time of the event that is being offered.
    offers: Option<Timestamp>,
    queue: Option<mpsc::WeakSender<Work>>,
}

impl Board {
    /// The channel as it is now, with the lanes of these sinks. What is durable is looked up in the ledger.
    pub fn status(&self, channel: &ChannelRef, sinks: &[Arc<str>], pauses: &Pauses, ledger: &Ledger) -> ChannelStatus {
        let board = self.lock();
        let mut status = board.status.clone();
        if status.activity == Activity::Stopped && pauses.channel {
            status.activity = Activity::Paused;
        }
        // Once the service has answered, the channel goes as far as it has been read, at the least.
        let highest = sinks.iter().filter_map(|sink| ledger.cursor(sink)?.through).max();
        let newest = status.last_poll.and(board.newest.offset().max(highest));
        let lanes: Vec<_> = sinks.iter().map(|sink| board.lane_status(sink, newest, pauses, ledger)).collect();
        ChannelStatus {
            channel: channel.name.clone(),
            channel_id: channel.id,
            processed: lanes.iter().map(|lane| lane.cursor).min().flatten(),
            newest,
            lag_events: lanes.iter().map(|lane| lane.lag_events).max().flatten(),
            oldest_undelivered_seconds: lanes.iter().map(|lane| lane.oldest_undelivered_seconds).max().flatten(),
            late: ledger.late().len(),
            quarantined: ledger.quarantined().len(),
            quarantine: Kept::of(ledger.quarantine_room(), QUARANTINE),
            dead_letters: Kept::of(ledger.dead_letter_room(), DEAD_LETTERS),
            late_full: ledger.late_room().is_full(LATE),
            lanes,
            ..status
        }
    }

    /// The ledger of the channel's last owner in this process, to be read only; `None` before the first.
    pub fn ledger(&self) -> Option<Arc<Mutex<Ledger>>> {
        self.lock().ledger.clone()
    }

    /// A part that should have made progress and has not, by more than `allowance`, and for how long.
    #[must_use]
    pub fn standstill(&self, allowance: Duration) -> Option<String> {
        let state = self.lock();
        let (name, within) = (&state.status.channel, state.answers_within + allowance);
        let mut lanes = state.lanes.iter();
        let reading = state.pace.standstill(within, || format!("channel {name}"));
        reading.or_else(|| {
            lanes.find_map(|(sink, lane)| lane.pace.standstill(within, || format!("channel {name}, sink {sink}")))
        })
    }

    /// Shows these signers from now on, with what is known of them already.
    pub(super) fn begin_signers(&self, signers: &SignerSet) {
        let status = &mut self.lock().status;
        let known = std::mem::take(&mut status.signers);
        let last_seen = |signer: &Address| known.iter().find(|known| known.signer == *signer)?.last_seen;
        let signer = |signer: &Address| SignerStatus { signer: *signer, last_seen: last_seen(signer) };
        status.signers = signers.addresses().iter().map(signer).collect();
        status.required_signatures = signers.required();
    }

    /// Notes that these have signed, at a time in Unix seconds.
    pub(super) fn signed(&self, signers: &[Address], now: i64) {
        let last_seen = Timestamp::from_second(now).ok();
        let known = &mut self.lock().status.signers;
        let seen = known.iter_mut().filter(|known| signers.contains(&known.signer));
        seen.for_each(|known| known.last_seen = last_seen);
    }

    /// Notes a page of these offsets, descending.
    pub(super) fn polled(&self, offsets: impl Iterator<Item = Offset>) {
        let (now, mut board) = (Timestamp::now(), self.lock());
        board.newest.shown(offsets, now);
        board.status.last_poll = Some(now);
        drop(board);
        self.answered();
    }

    /// Notes an answer of the service to a part that reads. It is not known here to which, so all of them have made progress.
    pub(super) fn answered(&self) {
        let mut board = self.lock();
        board.pace.moved();
        board.lanes.values_mut().for_each(|lane| lane.pace.moved());
    }

    /// Begins a run of the channel of that name.
    pub(super) fn run_begins(&self, name: &Arc<str>) -> RunOnBoard<'_> {
        let mut board = self.lock();
        board.status.channel = name.clone();
        board.says(Activity::Reading, Duration::ZERO);
        RunOnBoard(self)
    }

    pub(super) fn update<T>(&self, update: impl FnOnce(&mut BoardState) -> T) -> T {
        update(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run of a channel. Dropping it shows that the run has ended.
pub(super) struct RunOnBoard<'a>(&'a Board);

impl Drop for RunOnBoard<'_> {
    fn drop(&mut self) {
        let mut board = self.0.lock();
        board.pace.rest();
        if board.status.activity != Activity::Gone {
            board.status.activity = Activity::Stopped;
        }
        board.lanes.clear();
        board.status.late_error = None;
    }
}

impl BoardState {
    fn lane_status(&self, sink: &Arc<str>, newest: Option<Offset>, pauses: &Pauses, ledger: &Ledger) -> LaneStatus {
        let lane = self.lanes.get(sink);
        let LaneStatus { error, reading, .. } = lane.map(|lane| lane.status.clone()).unwrap_or_default();
        // A lane that began after its sink had gone has no error of its own.
        let error = error.or_else(|| lane.and(pauses.gone.get(&**sink)).cloned());
        let state = match (&error, &reading) {
            _ if pauses.sinks.contains(&**sink) || lane.is_none() && pauses.channel => LaneState::Paused,
            _ if lane.is_none() => LaneState::Stopped,
            (Some(error), _) if error.needs_attention => LaneState::Blocked,
            (Some(_), _) => LaneState::Retrying,
            (None, Some(_)) => LaneState::Behind,
            (None, None) => LaneState::Ok,
        };
        let cursor = ledger.cursor(sink).and_then(|cursor| cursor.through);
        let lag_events = newest.map(|newest| {
            let processed = cursor.map_or(-1, Offset::get);
            u64::try_from(newest.get().saturating_sub(processed)).unwrap_or(0)
        });
        let since = lane.and_then(|lane| lane.offers).or_else(|| self.newest.since(cursor));
        let age = since.map(|since| Timestamp::now().as_second() - since.as_second());
        let age = age.map_or(0, |age| u64::try_from(age).unwrap_or(0));
        LaneStatus {
            sink: sink.clone(),
            cursor,
            owed: ledger.owed(sink).count(),
            lag_events,
            oldest_undelivered_seconds: lag_events.map(|lag| if lag == 0 { 0 } else { age }),
            queued_batches: lane.map_or(0, LaneBoard::queued),
            state,
            error,
            reading,
        }
    }

    /// What the channel's reading does from now on, beginning with a wait.
    pub(super) fn says(&mut self, activity: Activity, wait: Duration) {
        self.pace.begin(&activity, wait);
        if let Some(problem) = activity.problem() {
            self.status.last_error = Some(problem.clone());
        }
        self.status.activity = activity;
    }

    /// A lane begins.
    pub(super) fn lane_begins(&mut self, sink: &Arc<str>, through: Option<Offset>, queue: mpsc::WeakSender<Work>) {
        let status = LaneStatus { cursor: through, ..LaneStatus::default() };
        self.lanes.insert(sink.clone(), LaneBoard { status, queue: Some(queue), ..LaneBoard::default() });
    }

    /// A lane offers an event of that time, in Unix seconds, to its sink.
    pub(super) fn lane_offers(&mut self, sink: &Arc<str>, time: Option<i64>) {
        self.lane(sink).offers = time.and_then(|time| Timestamp::from_second(time).ok());
    }

    /// A lane has dealt with everything up to here.
    pub(super) fn lane_recorded(&mut self, sink: &Arc<str>, through: Option<Offset>) {
        let lane = self.lane(sink);
        (lane.status.cursor, lane.offers) = (through, None);
        self.newest.dealt_with(self.lanes.values().map(|lane| lane.status.cursor).min().flatten());
    }

    /// A lane no longer reads for itself.
    pub(super) fn lane_rejoins(&mut self, sink: &Arc<str>) {
        let lane = self.lane(sink);
        lane.status.reading = None;
        lane.pace.rest();
    }

    /// A lane has ended: no progress is expected of it.
    pub(super) fn lane_ends(&mut self, sink: &str) {
        if let Some(lane) = self.lanes.get_mut(sink) {
            lane.pace.rest();
        }
    }

    pub(super) fn lane(&mut self, sink: &Arc<str>) -> &mut LaneBoard {
        self.lanes.entry(sink.clone()).or_default()
    }
}

impl LaneBoard {
    /// Batches in its queue.
    fn queued(&self) -> usize {
        let queue = self.queue.as_ref().and_then(mpsc::WeakSender::upgrade);
        queue.map_or(0, |queue| queue.max_capacity() - queue.capacity())
    }
}
