//! The status board of a channel. Each part of the loop writes its own activity, and an operator reads the whole board.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tracing::error;

use crate::channel::settings::Settings;
use crate::deliver::hub::Waiting;
use crate::read::gaps::Gaps;
use crate::status::comparisons::Comparisons;
use crate::status::deliveries::LateDeliveries;
use crate::status::hour::Hour;
use crate::status::newest::Newest;
use crate::status::pace::{Pace, Progress, seconds_left};
use crate::status::replays::ReplayBoard;
use crate::status::watchers::Watchers;
use crate::status::{
    Activity, ChannelStatus, FormerNames, LaneState, LaneStatus, POLLS_IN_VAIN, Pauses, Problem, SignerStatus,
    StoredEvents,
};
use crate::verify::expect::Expect;
use crate::verify::reason::RejectionReason;
use api::Page;
use ledger::{DEAD_LETTERS, LATE, Ledger, QUARANTINE, StateError};
use net::Chain;
use net::memory::ChannelMemory;
use net::turns::Caller;
use proof::event::{EventKey, Offset};
use proof::verify::Address;
use record::{ChannelRef, Record};

/// A poll that takes at most this long never counts as hanging, even if the idle wait is shorter.
const HANGS: Duration = Duration::from_secs(5);

/// The largest value of `rejected_in_a_row`. It is far above the number of rejections at which a channel is not ready.
const MAX_REJECTED: usize = 1_000;

/// For how long after a dead letter a sink that refuses events counts as giving up. The alert for dead letters fires for as long.
const GIVES_UP: Duration = Duration::from_secs(3600);

/// One channel's status board.
#[derive(Debug, Default)]
pub struct Board {
    /// The channel's ledger, only for reading. The field keeps the ledger after a run ends, unless instances share the state.
    /// `None` before the first run.
    pub ledger: Option<Arc<Mutex<Ledger>>>,
    /// The channel's last hour.
    pub hour: Hour,
    /// The channel's late deliveries.
    pub late: LateDeliveries,
    /// The watchers whose events were delivered.
    pub watchers: Watchers,
    /// The channel's replays.
    pub replays: ReplayBoard,
    /// The status without the fields that [`Board::status`] fills in when it is called.
    pub(crate) status: ChannelStatus,
    pub(crate) newest: Newest,
    pub(crate) gaps: Weak<Gaps>,
    /// The comparisons of the service's history with the sinks.
    pub comparisons: Comparisons,
    /// The events that `rejected_in_a_row` counts. An event can be rejected repeatedly before it is recorded.
    rejected: BTreeSet<EventKey>,
    /// The `expect` lists of the current plan.
    pub(crate) expect: Arc<Expect>,
    /// When the service last answered a poll.
    answered: Option<Instant>,
    /// The start of the current silence of the service. `None` if the last poll was answered.
    unanswered: Option<Instant>,
    /// How long the service may be silent before the silence is reported.
    may_be_silent: Duration,
    /// The newest offset in the first answer to a poll for the latest events, or `None` if the channel has no events. Set when this
    /// answer arrives.
    pub(crate) newest_at_start: OnceCell<Option<Offset>>,
    /// Whether the last answer to a poll for the latest events was empty, although it reported more events.
    latest_is_empty: bool,
    /// When each poll in progress was sent. The polls own these times.
    asked: Vec<Weak<Instant>>,
    memory: Arc<ChannelMemory>,
    /// The turns of the channel's requests to the service.
    pub(crate) turns: Arc<Caller>,
    /// Boxed, because a node of the map has room for eleven values, and most channels have one lane.
    pub(crate) lanes: BTreeMap<Arc<str>, Box<LaneBoard>>,
}

#[derive(Debug, Default)]
pub(crate) struct LaneBoard {
    pub(crate) status: LaneStatus,
    /// The event that was offered to the sink last, and its time.
    offers: Option<(Offset, Timestamp)>,
    /// When the last event became a dead letter.
    gave_up: Option<Instant>,
    /// The events that the sink has lost and that are delivered late again.
    pub(crate) lost: BTreeSet<EventKey>,
    waiting: Option<Waiting>,
    pace: Pace,
}

impl Board {
    /// Creates the board of a channel with this memory account and these turns.
    pub(crate) fn of(memory: Arc<ChannelMemory>, turns: Arc<Caller>) -> Self {
        Self { memory, turns, ..Self::default() }
    }

    /// Returns the channel's current status, with the lanes of these sinks. The durable facts are read from `ledger`.
    pub fn status(&self, channel: &ChannelRef, sinks: &[Arc<str>], pauses: &Pauses, ledger: &Ledger) -> ChannelStatus {
        let mut status = self.status.clone();
        if status.activity == Activity::Stopped && pauses.paused.channel.is_some() {
            status.activity = Activity::Paused;
        }
        self.show_wait(&mut status.activity);
        let newest = self.reaches(sinks, ledger);
        let lanes: Vec<_> = sinks.iter().map(|sink| self.lane_status(sink, newest, pauses, ledger)).collect();
        let slowest = lanes.iter().max_by_key(|lane| lane.lag_events);
        let cursor = lanes.iter().map(|lane| lane.cursor).min().flatten();
        let (pending, pending_full) = (ledger.late().len(), ledger.late_room().is_full(LATE));
        let late_error = status.pending_error.clone();
        let mut replays = self.replays.statuses(ledger);
        replays.retain(|replay| !replay.state.has_ended());
        ChannelStatus {
            channel: channel.name.clone(),
            channel_id: channel.id,
            paused: pauses.paused.channel,
            cursor,
            newest,
            lag_events: lanes.iter().map(|lane| lane.lag_events).max().flatten(),
            oldest_undelivered_seconds: lanes.iter().map(|lane| lane.oldest_undelivered_seconds).max().flatten(),
            events_per_second: slowest.and_then(|lane| lane.events_per_second),
            seconds_left: slowest.and_then(|lane| lane.seconds_left),
            contradiction: ledger.contradiction(),
            rejected_in_a_row: u32::try_from(self.rejected.len()).unwrap_or(u32::MAX),
            pending,
            quarantined: ledger.quarantined().len(),
            quarantine: StoredEvents::of(ledger.quarantine_room(), QUARANTINE),
            dead_letters: StoredEvents::of(ledger.dead_letter_room(), DEAD_LETTERS),
            pending_full,
            watchers: self.watchers.statuses(),
            replay_error: self.replays.problem(&replays),
            compare_error: self.comparisons.error.clone(),
            replays,
            unanswered_seconds: self.silence().map(|silence| silence.as_secs()),
            lanes,
            former: FormerNames { processed: cursor, late: pending, late_error, late_full: pending_full },
            ..status
        }
    }

    /// Returns the lag of the slowest of these sinks, in offsets. Returns `None` if the newest offset is unknown.
    pub fn lag(&self, sinks: &[Arc<str>], ledger: &Ledger) -> Option<u64> {
        let newest = self.reaches(sinks, ledger)?;
        let through = |sink: &Arc<str>| ledger.cursor(sink).and_then(|cursor| cursor.through);
        sinks.iter().map(|sink| distance(newest, through(sink))).max()
    }

    /// Returns the newest offset, or the highest cursor if it is higher. Returns `None` before the first answer of the
    /// service.
    fn reaches(&self, sinks: &[Arc<str>], ledger: &Ledger) -> Option<Offset> {
        let highest = sinks.iter().filter_map(|sink| ledger.cursor(sink)?.through).max();
        self.status.last_poll.and(self.newest.offset().max(highest))
    }

    /// Returns how long the service has not answered a poll. Returns `None` while this is not longer than `may_be_silent`.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let hanging = self.asked.iter().filter_map(Weak::upgrade).min().filter(|asked| asked.elapsed() > HANGS);
        let hangs_since = hanging.map(|asked| self.silent_since(*asked));
        self.unanswered.or(hangs_since).map(|since| since.elapsed()).filter(|silence| *silence > self.may_be_silent)
    }

    /// Returns the start of the service's silence, for an unanswered poll that was sent at `asked`. Normally this is `asked`.
    /// It is later if another poll was answered later, or if the channel waited for memory or for a turn until later.
    fn silent_since(&self, asked: Instant) -> Instant {
        [self.answered, self.memory.waited_until(), self.turns.waited_until()]
            .into_iter()
            .flatten()
            .fold(asked, Instant::max)
    }

    /// Replaces the activity if the channel waits for memory or for the turn of a request.
    fn show_wait(&self, activity: &mut Activity) {
        match activity {
            Activity::Reading if self.memory.waits() => *activity = Activity::AwaitingMemory,
            Activity::Reading | Activity::Idle if self.turns.waits() => *activity = Activity::AwaitingTurn,
            _ => {}
        }
    }

    /// Adopts the signers and the `expect` lists of these settings. A signer that was known before keeps the time of its last
    /// signature.
    pub(crate) fn begin_plan(&mut self, settings: &Settings) {
        self.rejected.clear();
        self.expect = settings.verification.expect.clone();
        self.may_be_silent = 3 * settings.idle_wait + settings.retry.wait;
        let signers = &settings.verification.verifier.signers;
        let known = std::mem::take(&mut self.status.signers);
        let last_seen = |signer: &Address| known.iter().find(|known| known.signer == *signer)?.last_seen;
        let signer = |signer: &Address| SignerStatus { signer: *signer, last_seen: last_seen(signer) };
        self.status.signers = signers.addresses().iter().map(signer).collect();
        self.status.required_signatures = signers.required();
    }

    /// Returns the signers whose signatures were counted at or after `since`.
    pub fn signers_seen_since(&self, since: Timestamp) -> Vec<SignerStatus> {
        self.status.signers.iter().filter(|signer| signer.last_seen >= Some(since)).copied().collect()
    }

    /// Records that an event that needed a proof was rejected. Each event counts once.
    pub(crate) fn rejected(&mut self, event: EventKey, reason: RejectionReason) {
        if self.rejected.len() < MAX_REJECTED {
            self.rejected.insert(event);
        }
        self.status.last_rejection = Some(reason);
    }

    pub(crate) fn verified(&mut self, signers: &[Address], now: i64) {
        self.rejected.clear();
        let last_seen = Timestamp::from_second(now).ok();
        let seen = self.status.signers.iter_mut().filter(|known| signers.contains(&known.signer));
        seen.for_each(|known| known.last_seen = last_seen);
    }

    /// Records the answer to a poll. `from` is the requested offset, or `None` for the latest events.
    pub(crate) fn polled(&mut self, from: Option<Offset>, page: &Page) {
        let now = Timestamp::now();
        self.note_progress(from, page);
        if from.is_none() {
            let newest = page.events.first().map(|event| event.offset);
            self.newest_at_start.get_or_init(|| newest);
        }
        self.newest.shown(page.events.iter().map(|event| event.offset), now);
        self.status.last_poll = Some(now);
        (self.answered, self.unanswered) = (Some(Instant::now()), None);
    }

    /// Counts consecutive useless answers: `has_more` is set, but the page brings no progress. Two cases count. First, the
    /// page contains no new event, but an event below the requested offset. Second, the page is empty, and the last page for
    /// the latest events was empty too. A poll for the latest events must return an event if the channel has one. An empty
    /// page alone proves nothing, because `has_more` can refer to older events.
    fn note_progress(&mut self, from: Option<Offset>, page: &Page) {
        let (highest, lowest) = (page.events.first(), page.events.last());
        let known = self.lanes.values().map(|lane| lane.status.cursor).max().flatten().max(self.newest.offset());
        let is_new = highest.is_some_and(|highest| Some(highest.offset) > known);
        let is_empty = page.events.is_empty();
        if from.is_none() {
            self.latest_is_empty = is_empty && page.has_more;
        }
        let is_below = lowest.is_some_and(|lowest| Some(lowest.offset) < from);
        let in_vain = page.has_more && !is_new && (is_below || is_empty && self.latest_is_empty);
        let status = &mut self.status;
        if in_vain {
            status.polls_in_vain = status.polls_in_vain.saturating_add(1);
            status.shown_in_vain = match (highest, lowest, from) {
                (Some(highest), Some(lowest), Some(from)) => {
                    format!("offsets {} to {} for offset {from}", lowest.offset, highest.offset)
                }
                _ => "empty pages".to_owned(),
            };
            if status.polls_in_vain == POLLS_IN_VAIN {
                error!(channel = %status.channel, shown = status.shown_in_vain, "answers announce more events but contain no new one: an operator must look");
            }
        } else if is_new || from.is_some() {
            status.polls_in_vain = 0;
        }
    }

    /// Records whether the service's newest event is below the events that were already read. If it is, `read` is the last
    /// offset that was read.
    pub(crate) fn went_back(&mut self, read: Option<Offset>) {
        if let Some(read) = read.filter(|_| self.status.newest_below.is_none()) {
            let channel = &self.status.channel;
            error!(%channel, read = read.get(), "the service's newest event is below the events already read: the service may have been restored, and its new events may be missed; an operator must look");
        }
        self.status.newest_below = read;
    }

    pub(crate) fn poll_begins(&mut self, asked: &Arc<Instant>) {
        self.asked.retain(|earlier| earlier.strong_count() > 0);
        self.asked.push(Arc::downgrade(asked));
    }

    pub(crate) fn not_answered(&mut self, asked: Instant) {
        self.unanswered = self.unanswered.or(Some(self.silent_since(asked)));
    }

    /// Returns the progress of the slowest lane. Returns `None` if the lane does not advance, or if its next event has been
    /// known for less than `since`.
    pub fn progress(&self, since: Duration) -> Option<Progress> {
        let (newest, slowest) = (self.newest.offset()?, self.lanes.values().min_by_key(|lane| lane.status.cursor)?);
        let cursor = slowest.status.cursor?;
        let waits = Timestamp::now().as_second().saturating_sub(self.newest.since(Some(cursor))?.as_second());
        let per_second = slowest.pace.per_second(cursor, Instant::now()).filter(|per_second| *per_second > 0.0)?;
        let whole = |offset: Offset| u64::try_from(offset.get()).unwrap_or_default();
        let is_behind = u64::try_from(waits).is_ok_and(|waits| waits >= since.as_secs());
        is_behind.then(|| Progress::at(whole(cursor), whole(newest), Some(per_second)))
    }

    /// Returns the time of the oldest event above `cursor`: the time of the event itself if it, or a later event, is on offer at
    /// some sink, and otherwise the time when this process learned of the event. Looking at the other lanes ensures that a lane
    /// with a lower cursor is never shown with a later time than another lane.
    fn oldest_undelivered(&self, cursor: Option<Offset>) -> Option<Timestamp> {
        let on_offer = self.lanes.values().filter_map(|lane| lane.offers).filter(|(offset, _)| Some(*offset) > cursor);
        on_offer.map(|(_, time)| time).chain(self.newest.since(cursor)).min()
    }

    fn lane_status(&self, sink: &Arc<str>, newest: Option<Offset>, pauses: &Pauses, ledger: &Ledger) -> LaneStatus {
        let lane = self.lanes.get(sink);
        let mut status = lane.map(|lane| lane.status.clone()).unwrap_or_default();
        if let Some(reading) = &mut status.reading {
            self.show_wait(reading);
        }
        // If the sink was already closed when the lane began, the lane has no error of its own.
        status.error = status.error.or_else(|| lane.and(pauses.gone.get(&**sink)).cloned());
        // Whether the sink refuses one event after another, and each becomes a dead letter soon. If `give_up_after` is long, the
        // next event waits instead, and everything behind it.
        let gave_up = lane.and_then(|lane| lane.gave_up).is_some_and(|at| at.elapsed() < GIVES_UP);
        let gives_up = gave_up && status.dead_letters_in_a_row > 0;
        let state = match (&status.error, &status.reading) {
            _ if pauses.paused.sinks.contains_key(sink) || lane.is_none() && pauses.paused.channel.is_some() => {
                LaneState::Paused
            }
            _ if lane.is_none() => LaneState::Stopped,
            (Some(_), _) if gives_up => LaneState::GivingUp,
            (Some(error), _) if error.needs_attention => LaneState::Blocked,
            (Some(_), _) => LaneState::Retrying,
            (None, Some(_)) => LaneState::Behind,
            (None, None) => LaneState::Ok,
        };
        let owes_lost = lane.is_some_and(|lane| lane.lost.iter().any(|key| ledger.owes(sink, key)));
        let cursor = ledger.cursor(sink).and_then(|cursor| cursor.through);
        let lag_events = newest.map(|newest| distance(newest, cursor));
        let age = self.oldest_undelivered(cursor).map(|since| Timestamp::now().as_second() - since.as_second());
        let age = age.map_or(0, |age| u64::try_from(age).unwrap_or(0));
        let is_active = matches!(state, LaneState::Ok | LaneState::Behind | LaneState::Retrying | LaneState::GivingUp)
            && lag_events > Some(0);
        let pace = lane.filter(|_| is_active).map(|lane| &lane.pace);
        let events_per_second = pace.and_then(|pace| pace.per_second(cursor?, Instant::now()));
        LaneStatus {
            sink: sink.clone(),
            paused: pauses.paused.sinks.get(sink).copied(),
            cursor,
            late_deliveries: ledger.owed(sink).count(),
            former_owed: ledger.owed(sink).count(),
            lag_events,
            oldest_undelivered_seconds: lag_events.map(|lag| if lag == 0 { 0 } else { age }),
            queued_batches: lane.and_then(|lane| lane.waiting.as_ref()).map_or(0, Waiting::batches),
            events_per_second,
            seconds_left: events_per_second.and_then(|per_second| seconds_left(lag_events?, per_second)),
            refill: status.refill.filter(|refill| cursor < Some(refill.to) || owes_lost),
            ahead: status.ahead.filter(|ahead| cursor < Some(*ahead)),
            compared: self.comparisons.of(sink),
            state,
            ..status
        }
    }

    pub(crate) fn run_ends(&mut self) {
        if self.status.activity != Activity::Gone {
            self.status.activity = Activity::Stopped;
        }
        self.lanes.clear();
        (self.status.pending_error, self.status.gap_error) = (None, None);
        self.replays = ReplayBoard::default();
        self.unanswered = None;
        self.status.newest_below = None;
        self.status.polls_in_vain = 0;
    }

    /// Reports whether the channel could be claimed. If the state was unavailable, the reason stays visible until the next
    /// attempt.
    pub(crate) fn report_claim(&mut self, error: Option<&StateError>) {
        let Some(error) = error.filter(|error| error.may_pass()) else {
            if let Activity::Waiting { .. } = self.status.activity {
                self.status.activity = Activity::Stopped;
            }
            return;
        };
        let message = Chain(error).to_string();
        let before = self.status.activity.problem().filter(|problem| problem.message == message);
        let error = Problem::new("state", message, true).after(before);
        self.report(Activity::Waiting { error });
    }

    pub(crate) fn report(&mut self, activity: Activity) {
        if let Some(problem) = activity.problem() {
            self.status.last_error = Some(problem.clone());
        }
        self.status.activity = activity;
    }

    pub(crate) fn lane_begins(&mut self, sink: &Arc<str>, through: Option<Offset>, waiting: Waiting) {
        let status = LaneStatus { cursor: through, ..LaneStatus::default() };
        let mut pace = Pace::default();
        if let Some(through) = through {
            pace.note(through, Instant::now());
        }
        let lane = LaneBoard { status, waiting: Some(waiting), pace, ..LaneBoard::default() };
        self.lanes.insert(sink.clone(), Box::new(lane));
    }

    /// Records that a lane offers events to its sink. `first` is the first of them.
    pub(crate) fn lane_offers(&mut self, sink: &Arc<str>, first: &Record) {
        let time = first.time.and_then(|time| Timestamp::from_second(time).ok());
        self.lane(sink).offers = time.map(|time| (first.offset, time));
    }

    /// Shows the problem of a lane, or removes it. A count of dead letters in a row ends.
    pub(crate) fn lane_problem(&mut self, sink: &Arc<str>, problem: Option<Problem>) {
        let status = &mut self.lane(sink).status;
        (status.error, status.dead_letters_in_a_row) = (problem, 0);
    }

    /// Records that a sink has refused an event for too long, and that the event is a dead letter.
    pub(crate) fn lane_gave_up(&mut self, sink: &Arc<str>) {
        let lane = self.lane(sink);
        lane.status.dead_letters_in_a_row += 1;
        lane.gave_up = Some(Instant::now());
    }

    /// Records that a lane has processed all events up to `through`.
    pub(crate) fn lane_recorded(&mut self, sink: &Arc<str>, through: Option<Offset>) {
        let lane = self.lane(sink);
        (lane.status.cursor, lane.offers) = (through, None);
        if let Some(through) = through {
            lane.pace.note(through, Instant::now());
        }
        self.newest.dealt_with(self.lanes.values().map(|lane| lane.status.cursor).min().flatten());
    }

    pub(crate) fn lane(&mut self, sink: &Arc<str>) -> &mut LaneBoard {
        self.lanes.entry(sink.clone()).or_default()
    }
}

fn distance(newest: Offset, cursor: Option<Offset>) -> u64 {
    let processed = cursor.map_or(-1, Offset::get);
    u64::try_from(newest.get().saturating_sub(processed)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Change, Commit, Cursor};
    use record::testing::notice;

    #[test]
    fn an_event_that_is_rejected_repeatedly_counts_once() {
        let mut board = Board::default();
        let event = |offset| EventKey { offset: Offset::new(offset).unwrap(), id: None };
        for _ in 0..15 {
            board.rejected(event(1), RejectionReason::OtherChannel);
        }
        assert_eq!(board.rejected.len(), 1);
        board.rejected(event(2), RejectionReason::OtherChannel);
        assert_eq!(board.rejected.len(), 2);
        board.verified(&[], 0);
        board.rejected(event(1), RejectionReason::OtherChannel);
        assert_eq!(board.rejected.len(), 1);
    }

    #[test]
    fn a_lane_with_a_lower_cursor_never_has_a_younger_oldest_event() {
        let (mut board, mut ledger, now) = (Board::default(), Ledger::default(), Timestamp::now());
        let [ahead, behind] = ["ahead", "behind"].map(Arc::<str>::from);
        for (sink, through) in [(&ahead, 5), (&behind, 2)] {
            let to = Cursor { through: Offset::new(through) };
            ledger.apply(Commit(vec![Change::SetCursor { sink: sink.clone(), to }])).unwrap();
            board.lane(sink);
        }
        board.newest.placed(Offset::new(9).unwrap(), now);
        // Each lane offers the event at an offset, which is this many seconds old.
        let mut ages = |offers: [(i64, i64); 2]| {
            for (sink, (offset, seconds)) in [&ahead, &behind].into_iter().zip(offers) {
                let mut event = notice("wallet.status", "{}");
                (event.offset, event.time) = (Offset::new(offset).unwrap(), Some(now.as_second() - seconds));
                board.lane_offers(sink, &event);
            }
            let age = |sink| {
                let status = board.lane_status(sink, Offset::new(9), &Pauses::default(), &ledger);
                status.oldest_undelivered_seconds.unwrap() / 100
            };
            (age(&ahead), age(&behind))
        };
        assert_eq!(ages([(5, 0), (2, 0)]), (0, 0), "since the daemon learned of the event");
        assert_eq!(ages([(6, 700), (2, 0)]), (7, 7), "the oldest event of the other lane is at least as old");
        assert_eq!(ages([(5, 0), (3, 900)]), (0, 9));
        assert_eq!(ages([(6, 700), (3, 900)]), (7, 9));
        assert_eq!(ages([(1, 7_000), (3, 900)]), (0, 9), "a replayed event is older, but both lanes have delivered it");
    }

    #[test]
    fn a_sink_whose_next_event_waits_for_long_is_blocked_and_does_not_give_up() {
        let (mut board, sink) = (Board::default(), Arc::from("s"));
        let state = |board: &Board| board.lane_status(&sink, None, &Pauses::default(), &Ledger::default()).state;
        let (kind, message, since) = ("refused".to_owned(), String::new(), Timestamp::now());
        board.lane(&sink).status.error = Some(Problem { kind, message, since, times: 9, needs_attention: true });
        assert_eq!(state(&board), LaneState::Blocked);
        board.lane_gave_up(&sink);
        assert_eq!(state(&board), LaneState::GivingUp);
        board.lanes.get_mut(&sink).unwrap().gave_up = Instant::now().checked_sub(GIVES_UP);
        assert_eq!(state(&board), LaneState::Blocked);
    }
}
