//! One history of a service, a machine and a few sinks: everything that can happen in the model.

use std::time::Duration;

use ledger::testing::Write;
use proof::event::Offset;

/// All drawn values of a history.
#[expect(clippy::struct_excessive_bools, reason = "they are independent choices")]
#[derive(Clone, PartialEq)]
pub(super) struct History {
    /// A page contains the newest of the requested events.
    pub(super) newest: bool,
    /// `offset` includes the event at this offset.
    pub(super) inclusive: bool,
    pub(super) has_more: HasMore,
    /// The maximum number of events in one request.
    pub(super) page: u16,
    /// The offset of the first event.
    pub(super) first: i64,
    /// Whether offsets have gaps.
    pub(super) sparse: bool,
    pub(super) events: Vec<Event>,
    /// The number of events when reading begins.
    pub(super) backlog: usize,
    /// How many requests after the previous arrival, and how many events arrive then. The remaining events arrive with the
    /// next request.
    pub(super) arrivals: Vec<(usize, usize)>,
    /// Milliseconds that answers take, in rotation.
    pub(super) delays: Vec<u64>,
    /// The requests that get no answer, by their number.
    pub(super) faults: Vec<(usize, Fault)>,
    /// The number of the event at which lanes begin.
    pub(super) start: Option<usize>,
    pub(super) strict: bool,
    pub(super) drop_notices: bool,
    /// In seconds.
    pub(super) proof_timeout: u64,
    pub(super) sinks: Vec<SinkPlan>,
    /// The events that become visible late, and by how many seconds.
    pub(super) hidden: Vec<(usize, u64)>,
    /// The service is restored from a backup.
    pub(super) restored: Option<Restored>,
    /// Losses of sinks that keep positions: before which run, which sink, and how many of its last deliveries.
    pub(super) losses: Vec<(usize, usize, usize)>,
    /// How each run ends, except the last. The last run continues until everything is settled.
    pub(super) runs: Vec<Run>,
    /// The steps, counted over all runs, at which the clock jumps, and by how many seconds.
    pub(super) clock: Vec<(usize, i64)>,
    /// The steps, counted over all runs, at which an operator pauses something, and for how many seconds.
    pub(super) pauses: Vec<(usize, Paused, u64)>,
    /// The steps, counted over all runs, at which the configuration is read again, and the change.
    pub(super) reloads: Vec<(usize, Reload)>,
}

/// A service that is restored from a backup. Its events are plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restored {
    /// During this request, which gets no answer.
    pub(super) request: usize,
    /// The number of its last events that it has lost.
    pub(super) events: usize,
    /// The time until it has other events at their offsets, in seconds.
    pub(super) seconds: u64,
}

/// A change of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// A sink is used differently.
    Anew(usize),
    /// A sink is absent, for this number of seconds.
    Without(usize, u64),
    /// The page size.
    Page(u16),
}

/// The meaning of `has_more`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasMore {
    /// Requested events that are not in the page.
    Rest,
    /// Older events than those in the page.
    Older,
    /// Newer events than those in the page.
    Newer,
    /// Older events of the channel, requested or not.
    OlderAtAll,
}

/// An event of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// The distance from the previous offset, if offsets have gaps.
    pub(super) gap: i64,
    /// Seconds after the previous event.
    pub(super) pace: i64,
    /// Seconds by which `created` is later than the event.
    pub(super) skew: i64,
    pub(super) kind: EventKind,
    /// The number of the reading that a proxy damages, and how.
    pub(super) damaged: Option<(usize, Damage)>,
}

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Proved,
    Notice,
    /// Its proof arrives this many seconds later.
    Late(u64),
    /// A proof arrives this many seconds later, and is invalid.
    LateForged(u64),
    /// Its proof never arrives.
    Never,
    Nameless,
    Forged(Forgery),
    /// It has the proof of an earlier event, this many events before it.
    Duplicate(usize, SameId),
}

/// The service's answer if it is asked for a forged event by its id.
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
pub(super) enum Fault {
    /// For a page, this is a 503.
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
    /// Milliseconds that an offer takes, in rotation.
    pub(super) delays: Vec<u64>,
    /// The troubles, by the number of the offer.
    pub(super) troubles: Vec<(usize, SinkTrouble)>,
    /// How often the sink cannot be used when a run begins.
    pub(super) unusable: usize,
    /// The sink keeps its position, and stores each event once.
    pub(super) keeps: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SinkTrouble {
    /// It accepts this number of events, and refuses the rest.
    Takes(usize),
    /// It refuses everything for this number of seconds.
    Refuses(u64),
    /// It answers after this number of seconds.
    Hangs(u64),
}

/// A run that is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The step at which it ends.
    pub(super) step: usize,
    pub(super) ends: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// In order.
    Stop,
    Crash,
    /// In order, but it crashes this number of steps later.
    CrashWhileStopping(usize),
    /// By the next write.
    WriteFails(Write),
    /// By another instance, which takes the channel over.
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

    /// The reader's page size at the beginning.
    pub(super) fn limit(&self) -> usize {
        usize::from(self.page.max(3))
    }

    /// Every event's offset.
    pub(super) fn offsets(&self) -> Vec<Offset> {
        // Otherwise the reader is not guaranteed to find the event at offset 0, see `read::reader`.
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

    /// Returns the number of the event whose proof this one duplicates, and whether it uses the id of that event.
    ///
    /// The same id is used only if no run ends. A process that has forgotten the original admits the duplicate, and a
    /// lane that already has the original has no event there to move to. The lane then reads alone, and is not offered
    /// late events, until another event arrives.
    pub(super) fn original(&self, at: usize) -> Option<(usize, SameId)> {
        let EventKind::Duplicate(back, same_id) = self.events[at].kind else { return None };
        let original = at.checked_sub(back + 1)?;
        let Event { kind, damaged, .. } = self.events[original];
        let same_id = if self.runs.is_empty() { same_id } else { SameId::No };
        (kind == EventKind::Proved && damaged.is_none()).then_some((original, same_id))
    }

    /// The number of events that are published at a request.
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

    /// Returns the longest time for a run to end and for a history to settle. It is longer than all waits together.
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
            Fault::RateLimited(Some(seconds)) => *seconds,
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
    /// Whether the model defines the result if the event becomes visible late.
    pub(super) fn can_be_hidden(&self) -> bool {
        self.kind == EventKind::Proved && self.damaged.is_none()
    }

    pub(super) fn plain() -> Self {
        Self { gap: 1, pace: 1, skew: 0, kind: EventKind::Proved, damaged: None }
    }
}

impl SinkPlan {
    pub(super) fn plain() -> Self {
        Self { at_once: usize::MAX, delays: Vec::new(), troubles: Vec::new(), unusable: 0, keeps: false }
    }
}
