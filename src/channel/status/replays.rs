//! The replays of a channel as operators see them: the recorded facts, the rate, and the error that delays them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::status::Problem;
use crate::status::pace::{Pace, Progress};
use ledger::{Ledger, REPLAYS, Replay, ReplayId, ReplayState, SinkName};
use proof::event::Offset;

/// The current status of a replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplayStatus {
    /// The number of the replay in its channel.
    pub id: ReplayId,
    /// The sinks that receive the events.
    pub sinks: Vec<Arc<str>>,
    /// The first offset of the range.
    pub from: Offset,
    /// The last offset of the range.
    pub to: Offset,
    /// The offset at which the replay continues. `None` if the whole range was read.
    pub next: Option<Offset>,
    /// Whether the replay runs, is paused or has ended.
    pub state: ReplayState,
    /// When an operator requested the replay.
    pub since: Timestamp,
    /// The number of events that were delivered.
    pub events: u64,
    /// The number of events that were read and are being delivered.
    pub pending: u64,
    /// The number of events in the range. `None` until the whole range was read.
    pub total: Option<u64>,
    /// The rate over the last seconds, in offsets per second. `None` if the replay does not run, or if the rate is unknown.
    pub events_per_second: Option<f64>,
    /// The estimated seconds until the whole range was read, at this rate.
    pub seconds_left: Option<u64>,
}

/// The facts about the replays of a channel that are not durable.
#[derive(Debug, Default)]
pub struct ReplayBoard {
    /// The error that prevents the reading of past events.
    pub(crate) error: Option<Problem>,
    /// The sinks of the current plan, and when they last changed. `None` if the channel does not run here.
    configured: Option<(BTreeSet<SinkName>, Timestamp)>,
    paces: BTreeMap<ReplayId, Pace>,
}

impl ReplayBoard {
    /// Records that a replay has read everything below `next`.
    pub(crate) fn note(&mut self, id: ReplayId, next: Option<Offset>) {
        self.paces.retain(|known, _| known + REPLAYS as u64 > id);
        if let Some(next) = next {
            self.paces.entry(id).or_default().note(next, Instant::now());
        }
    }

    /// Follows a plan with these sinks.
    pub(crate) fn follow(&mut self, sinks: BTreeSet<SinkName>) {
        if self.configured.as_ref().is_none_or(|(known, _)| *known != sinks) {
            self.configured = Some((sinks, Timestamp::now()));
        }
    }

    /// Returns the problem that delays these unfinished replays: the error or, without one, the problem of the first running
    /// replay whose sink is not configured.
    pub(crate) fn problem(&self, replays: &[ReplayStatus]) -> Option<Problem> {
        if self.error.is_some() && !replays.is_empty() {
            return self.error.clone();
        }
        let (configured, since) = self.configured.as_ref()?;
        let running = replays.iter().filter(|replay| replay.state == ReplayState::Running);
        let mut sinks = running.flat_map(|replay| replay.sinks.iter().map(|sink| (replay.id, sink)));
        let (id, sink) = sinks.find(|(_, sink)| !configured.contains(*sink))?;
        let message = format!(
            "replay {id} waits, because sink {sink} is not configured: configure the sink again, or cancel the replay with `channeld replay \
             CHANNEL --cancel {id}`"
        );
        Some(Problem { since: *since, ..Problem::new(Problem::SINK_NOT_CONFIGURED, message, true) })
    }

    /// Returns the status of every recorded replay, in the order of their numbers. Replays that have ended are included.
    pub fn statuses(&self, ledger: &Ledger) -> Vec<ReplayStatus> {
        ledger.replays().iter().map(|(id, replay)| self.status(*id, replay, ledger)).collect()
    }

    fn status(&self, id: ReplayId, replay: &Replay, ledger: &Ledger) -> ReplayStatus {
        let Replay { sinks, from, to, next, events, since, state } = replay;
        // Events of the range that are pending after the replay are pending for another reason.
        let pending = if *state == ReplayState::Done { 0 } else { ledger.undelivered(replay) as u64 };
        let pace = self.paces.get(&id).filter(|_| *state == ReplayState::Running);
        let events_per_second = pace.zip(*next).and_then(|(pace, next)| pace.per_second(next, Instant::now()));
        let Progress { seconds_left, .. } = progress(*from, *to, *next, events_per_second);
        ReplayStatus {
            id,
            sinks: sinks.clone(),
            from: *from,
            to: *to,
            next: *next,
            state: *state,
            since: Timestamp::from_second(*since).unwrap_or_default(),
            events: events.saturating_sub(pending),
            pending,
            total: Some(*events).filter(|_| next.is_none()),
            events_per_second,
            seconds_left,
        }
    }
}

impl ReplayStatus {
    /// Returns how much of the range was read, in offsets.
    pub fn progress(&self) -> Progress {
        progress(self.from, self.to, self.next, self.events_per_second)
    }
}

fn progress(from: Offset, to: Offset, next: Option<Offset>, per_second: Option<f64>) -> Progress {
    let distance = |end: i64| u64::try_from(end.saturating_sub(from.get())).unwrap_or_default();
    let of = distance(to.get().saturating_add(1));
    Progress::at(next.map_or(of, |next| distance(next.get())), of, per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Change, Commit, Pending};

    #[test]
    fn a_cancelled_replay_still_shows_the_events_that_are_being_delivered() {
        let at = |offset| Offset::new(offset).unwrap();
        let json = || "{}".into();
        let event = |offset| Pending {
            offset: at(offset),
            event_id: None,
            first_seen: 0,
            received: None,
            appeared: false,
            json: json(),
        };
        let mut ledger = Ledger::default();
        let start = Change::StartReplay(Replay::new(vec!["a".into()], at(1), at(9), 0));
        let page = Change::ReleaseReplayed { id: 1, next: Some(at(4)), events: (1..=3).map(event).collect() };
        let cancel = Change::SetReplay { id: 1, state: ReplayState::Cancelled };
        ledger.apply(Commit(vec![start, page, cancel])).unwrap();
        let shown = |ledger: &Ledger| {
            let replay = ReplayBoard::default().statuses(ledger).remove(0);
            (replay.state, replay.events, replay.pending)
        };
        assert_eq!(shown(&ledger), (ReplayState::Cancelled, 0, 3));
        let settle = |offset| Change::Settle { sink: "a".into(), key: event(offset).event_key() };
        ledger.apply(Commit((1..=3).map(settle).collect())).unwrap();
        assert_eq!(shown(&ledger), (ReplayState::Cancelled, 3, 0));
    }

    #[test]
    fn the_progress_of_a_replay_is_measured_in_offsets_of_its_range() {
        let at = |offset| Offset::new(offset).unwrap();
        let cases = [(Some(11), 0), (Some(16), 5), (None, 10)];
        for (next, done) in cases {
            let progress = progress(at(11), at(20), next.map(at), Some(5.0));
            assert_eq!((progress.done, progress.of, progress.seconds_left), (done, 10, Some((10 - done) / 5)));
        }
    }
}
