//! A history of a service, a machine and a few sinks. It contains everything that can happen in the model.

use std::time::Duration;

use ledger::testing::Write;
use proof::event::Offset;
use record::Confidence;

/// All drawn values of a history.
#[expect(clippy::struct_excessive_bools, reason = "they are independent choices")]
#[derive(Clone, PartialEq)]
pub(super) struct History {
    /// Whether a page contains the newest of the selected events. Otherwise it contains the oldest.
    pub(super) newest: bool,
    /// Whether `offset` includes the event at this offset.
    pub(super) inclusive: bool,
    pub(super) has_more: HasMore,
    /// The maximum number of events in one request.
    pub(super) page: u16,
    /// The offset of the first event.
    pub(super) first: i64,
    /// Whether offsets have gaps.
    pub(super) sparse: bool,
    pub(super) events: Vec<Event>,
    /// The number of events that are published when reading begins.
    pub(super) backlog: usize,
    /// The arrivals of events: the number of requests since the previous arrival, and the number of events that arrive. The
    /// events that remain after the last arrival arrive with the next request.
    pub(super) arrivals: Vec<(usize, usize)>,
    /// The times in milliseconds that answers take, used in rotation.
    pub(super) delays: Vec<u64>,
    /// The requests that get no answer, each as its number and the fault.
    pub(super) faults: Vec<(usize, PlannedFault)>,
    /// The number of the event at which lanes begin.
    pub(super) start: Option<usize>,
    pub(super) strict: bool,
    pub(super) drop_notices: bool,
    /// The proof timeout, in seconds.
    pub(super) proof_timeout: u64,
    pub(super) sinks: Vec<SinkPlan>,
    /// The events that become visible late, each as its number and the delay in seconds.
    pub(super) hidden: Vec<(usize, u64)>,
    /// The restore of the service from a backup, if it happens.
    pub(super) restored: Option<Restored>,
    /// The losses of sinks that keep positions. Each contains the number of the run before which it happens, the number of
    /// the sink, and the number of the last deliveries that are lost.
    pub(super) losses: Vec<(usize, usize, usize)>,
    /// The end of each run except the last. The last run continues until everything is settled.
    pub(super) runs: Vec<Run>,
    /// The jumps of the clock: the step, counted over all runs, and the number of seconds.
    pub(super) clock: Vec<(usize, i64)>,
    /// The pauses by an operator: the step, counted over all runs, the paused part, and the number of seconds.
    pub(super) pauses: Vec<(usize, Paused, u64)>,
    /// The reloads of the configuration: the step, counted over all runs, and the change.
    pub(super) reloads: Vec<(usize, Reload)>,
    /// The replays that an operator requests. A history with replays has only plain events and notices.
    pub(super) replays: Vec<ReplayPlan>,
}

/// A replay of a range to one sink. The part of the range that the sink has not passed is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplayPlan {
    /// The number of the run before which the replay is requested.
    pub(super) run: usize,
    pub(super) sink: usize,
    /// The number of the first event.
    pub(super) from: usize,
    /// The number of the last event.
    pub(super) to: usize,
}

/// The restore of a service from a backup. A history with a restore has only plain events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restored {
    /// The request during which the service is restored. It gets no answer.
    pub(super) request: usize,
    /// The number of the last events that the service has lost.
    pub(super) events: usize,
    /// The time in seconds until the service has other events at the offsets of the lost events.
    pub(super) seconds: u64,
}

/// A change of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// The settings of a lane change.
    Anew(usize),
    /// A sink is absent from the configuration for this number of seconds.
    Without(usize, u64),
    /// The page size changes.
    Page(u16),
}

/// The meaning of `has_more`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasMore {
    /// Selected events exist that are not in the page.
    Rest,
    /// Selected events exist that are older than the page.
    Older,
    /// Selected events exist that are newer than the page.
    Newer,
    /// The channel has events that are older than the page, selected or not.
    OlderAtAll,
}

/// An event of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The distance from the previous offset, if offsets have gaps.
    pub(super) gap: i64,
    /// The time since the previous event, in seconds.
    pub(super) pace: i64,
    /// The number of seconds by which `created` is later than the event.
    pub(super) skew: i64,
    pub(super) kind: EventKind,
    /// The number of the reading that a proxy damages, and the damage.
    pub(super) damaged: Option<(usize, Damage)>,
}

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Proved,
    Notice,
    /// The event's proof arrives this many seconds later.
    Late(u64),
    /// An invalid proof arrives this many seconds later.
    LateForged(u64),
    /// The event's proof never arrives.
    Never,
    Nameless,
    Forged(Forgery),
    /// The event has the proof of the event that is this many events earlier.
    Duplicate(usize, SameId),
}

/// The service's answer to a request for a forged event by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgery {
    Confirmed,
    Unknown,
    Elsewhere,
    Nameless,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SameId {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    Altered,
    Unreadable,
    /// The proof is left out.
    Stripped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlannedFault {
    /// If a page is requested, the answer is a 503.
    NotFound,
    Refused,
    RateLimited(Option<u64>),
    Timeout,
    Unavailable,
    Malformed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SinkPlan {
    pub(super) at_once: usize,
    /// The times in milliseconds that offers take, used in rotation.
    pub(super) delays: Vec<u64>,
    /// The troubles, each with the number of its offer.
    pub(super) troubles: Vec<(usize, SinkTrouble)>,
    /// The number of requests for its position that the sink refuses when a run begins.
    pub(super) unusable: usize,
    /// Whether the sink keeps its position, and stores each event only once.
    pub(super) keeps: bool,
    /// The least confidence of the events that the sink receives.
    pub(super) min_confidence: Option<Confidence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SinkTrouble {
    /// The sink accepts this number of events, and refuses the rest.
    Takes(usize),
    /// The sink refuses everything for this number of seconds.
    Refuses(u64),
    /// The sink answers after this number of seconds.
    Hangs(u64),
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The step at which the run ends.
    pub(super) step: usize,
    pub(super) ends: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The run is stopped, and ends in order.
    Stop,
    Crash,
    /// The run is stopped, but crashes this number of steps later.
    CrashWhileStopping(usize),
    /// The next write fails.
    WriteFails(Write),
    /// Another instance takes the channel over.
    Overtaken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paused {
    Channel,
    Sink(usize),
}

impl History {
    /// A history in which nothing happens.
    pub(super) fn plain() -> Self {
        Self {
            newest: false,
            inclusive: false,
            has_more: HasMore::Rest,
            page: 5,
            first: 1,
            sparse: false,
            events: Vec::new(),
            backlog: 0,
            arrivals: Vec::new(),
            delays: Vec::new(),
            faults: Vec::new(),
            start: None,
            strict: false,
            drop_notices: false,
            proof_timeout: 300,
            sinks: vec![SinkPlan::plain()],
            hidden: Vec::new(),
            restored: None,
            losses: Vec::new(),
            runs: Vec::new(),
            clock: Vec::new(),
            pauses: Vec::new(),
            reloads: Vec::new(),
            replays: Vec::new(),
        }
    }

    /// Returns the smallest and the largest page size of the reader in this history.
    pub(super) fn limits(&self) -> (usize, usize) {
        let pages = self.reloads.iter().filter_map(|(_, what)| match what {
            Reload::Page(limit) => Some(*limit),
            Reload::Anew(_) | Reload::Without(..) => None,
        });
        pages
            .map(|page| usize::from(page.max(3)))
            .fold((self.limit(), self.limit()), |(least, most), page| (least.min(page), most.max(page)))
    }

    /// Returns the reader's page size at the beginning.
    pub(super) fn limit(&self) -> usize {
        usize::from(self.page.max(3))
    }

    /// Returns the offset of every event.
    pub(super) fn offsets(&self) -> Vec<Offset> {
        // If `zero_is_found` is false, the reader is not guaranteed to find an event at the offset 0, see `read::reader`.
        let zero_is_found = self.inclusive || self.events.len() < self.limits().0;
        let mut next = if self.first == 0 && !zero_is_found { 1 } else { self.first };
        let offset = |(at, event): (usize, &Event)| {
            next += match at {
                0 => 0,
                _ if self.sparse => event.gap,
                _ => 1,
            };
            Offset::new(next).unwrap()
        };
        self.events.iter().enumerate().map(offset).collect()
    }

    /// Returns when the service recorded each event, in Unix seconds.
    pub(super) fn created(&self) -> Vec<i64> {
        let mut time = 1_700_000_000;
        let noted = |event: &Event| {
            time += event.pace;
            time + event.skew
        };
        self.events.iter().map(noted).collect()
    }

    /// Returns the number of the original event whose proof this event has, and whether this event also has the id of the
    /// original.
    ///
    /// The same id is used only in a history without restarts. After a restart, the process may have forgotten the original.
    /// It would then admit the duplicate as a new event. A lane that already has the original would have no event to move to.
    /// The lane would read alone, without late events, until another event arrives.
    ///
    /// An original from before the start is not read. The lookup of the shared id then returns an unknown event at another
    /// offset, as if the service had been restored.
    pub(super) fn original(&self, at: usize) -> Option<(usize, SameId)> {
        let EventKind::Duplicate(back, same_id) = self.events[at].kind else { return None };
        let original = at.checked_sub(back + 1)?;
        let Event { kind, damaged, .. } = self.events[original];
        let is_read = self.start.is_none_or(|start| start <= original);
        let same_id = if self.runs.is_empty() && is_read { same_id } else { SameId::No };
        (kind == EventKind::Proved && damaged.is_none()).then_some((original, same_id))
    }

    /// Returns the number of events that are published at a request.
    pub(super) fn published_at(&self, request: usize) -> usize {
        let (mut at, mut published) = (0, self.backlog);
        for (after, more) in &self.arrivals {
            at += after;
            if request < at {
                return published.min(self.events.len());
            }
            published += more;
        }
        if request > at { self.events.len() } else { published.min(self.events.len()) }
    }

    /// Returns the longest time in which a run must end and a history must settle. This is longer than all waits together.
    pub(super) fn time_limit(&self) -> Duration {
        let sinks = self.sinks.iter().flat_map(|sink| &sink.troubles).map(|(_, trouble)| match trouble {
            SinkTrouble::Takes(_) => 0,
            SinkTrouble::Refuses(seconds) | SinkTrouble::Hangs(seconds) => *seconds,
        });
        // In strict ordering, the waits for proofs follow one another.
        let bare = |event: &&Event| !matches!(event.kind, EventKind::Proved | EventKind::Notice);
        let one_by_one = if self.strict { self.events.iter().filter(bare).count() as u64 } else { 0 };
        let proofs = std::iter::once(one_by_one * (self.proof_timeout + 60));
        let clock = self.clock.iter().map(|(_, by)| by.unsigned_abs());
        let pauses = self.pauses.iter().map(|(.., seconds)| *seconds);
        let reloads = self.reloads.iter().map(|(_, what)| match what {
            Reload::Without(_, seconds) => *seconds,
            Reload::Anew(_) | Reload::Page(_) => 0,
        });
        let faults = self.faults.iter().map(|(_, fault)| match fault {
            PlannedFault::RateLimited(Some(seconds)) => *seconds,
            _ => 60,
        });
        Duration::from_secs(
            3600 + sinks.chain(proofs).chain(clock).chain(pauses).chain(reloads).chain(faults).sum::<u64>(),
        )
    }

    /// Returns how long an event stays hidden after it was published.
    pub(super) fn hidden_for(&self, at: usize) -> Option<Duration> {
        let hidden = self.hidden.iter().filter(|(number, _)| *number == at);
        hidden.map(|(_, seconds)| Duration::from_secs(*seconds)).max()
    }

    pub(super) fn proof_timeout(&self) -> Duration {
        Duration::from_secs(self.proof_timeout)
    }
}

impl Event {
    /// Returns whether the model defines the result if this event becomes visible late.
    pub(super) fn can_be_hidden(&self) -> bool {
        self.kind == EventKind::Proved && self.damaged.is_none()
    }

    pub(super) fn plain() -> Self {
        Self { gap: 1, pace: 1, skew: 0, kind: EventKind::Proved, damaged: None }
    }
}

impl SinkPlan {
    pub(super) fn plain() -> Self {
        Self {
            at_once: usize::MAX,
            delays: Vec::new(),
            troubles: Vec::new(),
            unusable: 0,
            keeps: false,
            min_confidence: None,
        }
    }
}
