//! The kinds of faults, the part that each kind affects, and the lanes that may be late because of it.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;

use super::target::{Lane, Target, lanes};
use super::world::{CHANNELS, FILES, HOOKS, TABLES, WAREHOUSES, World};

/// How long a lane needs after a fault of the service or of its sink: for the timeout of a request, the next attempt, and the
/// requests that wait for their turn after a 429.
const RECOVERS: Duration = Duration::from_secs(30);

/// How long lanes need after a fault of the process. By then, the daemon runs again and has the right key.
const STARTS: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumIter)]
pub(super) enum Kind {
    /// The service answers 500 for a channel.
    ServiceFails,
    /// The service answers 429 for a channel.
    ServiceLimits,
    /// The service answers with meaningless pages, or with errors that are far too long.
    ServiceBabbles,
    /// The service does not answer, or does not end its answer.
    ServiceHangs,
    /// Some events have invalid proofs.
    Forgery,
    /// The proofs of some events arrive later.
    LateProofs,
    /// An endpoint accepts requests and does not answer.
    HookHangs,
    /// An endpoint refuses one event.
    HookRefusesOne,
    /// An endpoint refuses everything.
    HookRefusesAll,
    /// An endpoint answers 429 with `Retry-After`.
    HookLimits,
    /// Another program keeps a SQLite database locked.
    TableLocked,
    /// A trigger of a SQLite table refuses every second event of a channel.
    TableRefuses,
    /// Another session keeps a PostgreSQL table locked.
    WarehouseLocked,
    /// The PostgreSQL server is killed, and later started again.
    ServerStops,
    /// The directory of a file is moved away, and later moved back.
    FileUnwritable,
    /// A file is replaced with an older copy.
    FileRestored,
    /// The daemon is killed, and later started again.
    Kill,
    /// The API key is rotated.
    KeyRotated,
    /// The file with the API key contains a wrong key.
    KeyWrong,
    /// The file with the API key is a pipe.
    KeyIsPipe,
    /// Many clients of the admin listener never finish their request.
    IdleClients,
    /// Standard error is not read.
    LogStalls,
}

/// An active fault.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) target: Target,
    pub(super) planted: Instant,
    until: Instant,
    /// Whether the status has shown it.
    pub(super) is_seen: bool,
    pub(super) held: Held,
}

/// Something that exists while a fault is active.
#[derive(Debug)]
pub(super) enum Held {
    Nothing,
    /// The fault is visible if a number in the status is larger than this.
    Above(u64),
    /// Offsets of the channel.
    Offsets(Vec<i64>),
    /// The channels and offsets of lines that a file has lost.
    Lost(BTreeSet<(String, i64)>),
    Table(rusqlite::Connection),
    Session(tokio_postgres::Client),
    Clients {
        _open: Vec<TcpStream>,
    },
}

impl Kind {
    /// Draws the target of a fault of this kind.
    pub(super) fn draw(self, random: &mut StdRng) -> Target {
        let channel = random.random_range(0..CHANNELS);
        let mut one = |sinks: &[&'static str]| sinks[random.random_range(0..sinks.len())];
        match self {
            Self::ServiceFails
            | Self::ServiceLimits
            | Self::ServiceBabbles
            | Self::ServiceHangs
            | Self::Forgery
            | Self::LateProofs => Target::Channel(channel),
            Self::HookHangs | Self::HookRefusesAll | Self::HookLimits => Target::Sink(one(&HOOKS)),
            Self::HookRefusesOne => lane_of(channel, &HOOKS),
            Self::TableLocked => Target::Sink(one(&TABLES)),
            Self::TableRefuses => lane_of(channel, &TABLES),
            Self::WarehouseLocked => Target::Sink(one(&WAREHOUSES)),
            Self::ServerStops => Target::Server,
            Self::FileUnwritable | Self::FileRestored => Target::Sink(one(&FILES)),
            Self::Kill | Self::KeyRotated | Self::KeyWrong | Self::KeyIsPipe | Self::IdleClients | Self::LogStalls => {
                Target::Process
            }
        }
    }

    /// Whether a fault of this kind can delay the events of its lanes.
    fn delays(self) -> bool {
        !matches!(
            self,
            Self::Forgery | Self::LateProofs | Self::KeyRotated | Self::KeyIsPipe | Self::IdleClients | Self::LogStalls
        )
    }
}

/// The lane of a channel to one of these sinks.
fn lane_of(channel: usize, sinks: &[&str]) -> Target {
    let (channel, sink) = lanes().find(|(it, sink)| *it == channel && sinks.contains(sink)).unwrap();
    Target::Lane(channel, sink)
}

impl Fault {
    pub(super) async fn plant(
        kind: Kind,
        target: Target,
        lasts: Duration,
        world: &mut World,
        random: &mut StdRng,
    ) -> Self {
        let held = super::plant::plant(kind, target, world, random).await;
        let planted = Instant::now();
        Self { kind, target, planted, until: planted + lasts, is_seen: false, held }
    }

    /// Whether the fault has lasted long enough.
    pub(super) fn is_over(&self) -> bool {
        self.is_seen && self.until <= Instant::now()
    }

    /// How long this lane needs after the end of the fault. `None` if the fault does not delay this lane. The service limits
    /// the requests of an API key, so after a 429 all channels send fewer requests.
    pub(super) fn recovers(&self, lane: Lane) -> Option<Duration> {
        let is_limited = self.kind == Kind::ServiceLimits;
        let after = if is_limited || self.target != Target::Process { RECOVERS } else { STARTS };
        Some(after).filter(|_| self.kind.delays() && (self.target.covers(lane) || is_limited))
    }

    /// Whether nothing is delivered while the fault is active.
    pub(super) fn stops_everything(&self) -> bool {
        matches!(self.kind, Kind::Kill | Kind::KeyWrong)
    }
}
