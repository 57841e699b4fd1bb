//! The kinds of faults, the part that each kind affects, and the lanes that may be late because of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::target::{Target, lanes};
use super::world::{BUS, CHANNELS, FILES, HOOKS, ON_SMALL_DISK, TABLES, WAREHOUSES, WITH_TWO_HOSTS, World};
use crate::support::{Lane, PlantedFault};

/// How long a lane needs after a fault of the service or of its sink: for the timeout of a request, the next attempt, and the
/// requests that wait for their turn after a 429.
const RECOVERS: Duration = Duration::from_secs(30);

/// How long lanes need after most faults of the process. By then, the daemon runs again and has the right key.
const STARTS: Duration = Duration::from_secs(10);

/// `ulimit -f` has no kind, because the state could be in the middle of a write when the limit changes: see `shortages.rs`.
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
    /// An endpoint answers with something other than HTTP.
    HookBabbles,
    /// Another program keeps a SQLite database locked.
    TableLocked,
    /// A trigger of a SQLite table refuses every second event of a channel.
    TableRefuses,
    /// Another session keeps a PostgreSQL table locked.
    WarehouseLocked,
    /// A trigger of a PostgreSQL table refuses every second event of a channel.
    WarehouseRefuses,
    /// A trigger of a PostgreSQL table sleeps before each row: many rows exceed the time limit of a statement.
    WarehouseSlow,
    /// The first of two hosts of a PostgreSQL server accepts connections and does not answer.
    FirstHostSilent,
    /// The PostgreSQL server is killed, and later started again.
    ServerStops,
    /// The NATS server is killed, and later started again.
    BusStops,
    /// A limit of the JetStream stream refuses messages.
    BusRefuses,
    /// The directory of a file is moved away, and later moved back.
    FileUnwritable,
    /// A file is replaced with an older copy.
    FileRestored,
    /// The disk of a file is full.
    DiskFull,
    /// The daemon is killed, and later started again.
    Kill,
    /// The API key is rotated.
    KeyRotated,
    /// The file with the API key contains a wrong key.
    KeyWrong,
    /// The file with the API key is a pipe.
    KeyIsPipe,
    /// The daemon has no free descriptor.
    NoDescriptors,
    /// Many clients of the admin listener never finish their request.
    IdleClients,
    /// Standard error is not read.
    LogStalls,
}

/// An active fault.
pub(super) type Fault = PlantedFault<Kind, Target, Held>;

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
    File(PathBuf),
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
            Self::HookHangs | Self::HookRefusesAll | Self::HookLimits | Self::HookBabbles => Target::Sink(one(&HOOKS)),
            Self::HookRefusesOne => lane_of(channel, &HOOKS),
            Self::TableLocked => Target::Sink(one(&TABLES)),
            Self::TableRefuses => lane_of(channel, &TABLES),
            Self::WarehouseLocked | Self::WarehouseSlow => Target::Sink(one(&WAREHOUSES)),
            Self::WarehouseRefuses => lane_of(channel, &WAREHOUSES),
            Self::FirstHostSilent => Target::Sink(WITH_TWO_HOSTS),
            Self::ServerStops => Target::Server,
            Self::BusStops | Self::BusRefuses => Target::Sink(BUS),
            Self::FileUnwritable | Self::FileRestored => Target::Sink(one(&FILES)),
            Self::DiskFull => Target::Sink(ON_SMALL_DISK),
            Self::Kill
            | Self::KeyRotated
            | Self::KeyWrong
            | Self::KeyIsPipe
            | Self::NoDescriptors
            | Self::IdleClients
            | Self::LogStalls => Target::Process,
        }
    }

    /// Whether a fault of this kind can delay every lane.
    pub(super) fn delays_everything(self) -> bool {
        matches!(self, Self::ServiceLimits | Self::Kill | Self::KeyWrong | Self::NoDescriptors)
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
        Self::new(kind, target, lasts, held)
    }

    /// How long this lane needs after the end of the fault. `None` if the fault does not delay this lane. The service limits
    /// the requests of an API key, so after a 429 all channels send fewer requests.
    pub(super) fn recovers(&self, lane: Lane) -> Option<Duration> {
        let is_limited = self.kind == Kind::ServiceLimits;
        let is_short = self.target == Target::Process && self.kind != Kind::NoDescriptors;
        let after = if is_short { STARTS } else { RECOVERS };
        Some(after).filter(|_| self.kind.delays() && (self.target.covers(lane) || is_limited))
    }

    /// Whether other faults may have no effect while this one is active.
    pub(super) fn hides_others(&self) -> bool {
        matches!(self.kind, Kind::Kill | Kind::KeyWrong | Kind::NoDescriptors)
    }
}
