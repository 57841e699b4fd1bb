//! The kinds of faults, the part that each kind affects, and the lanes that it may delay.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::target::{HOOK, Target, WAREHOUSES, warehouse};
use super::world::{CHANNELS, INSTANCES, World};
use crate::support::{Lane, PlantedFault};

/// How long a lane needs after a fault: for the timeout of a statement or a request, and the next attempt.
const RECOVERS: Duration = Duration::from_secs(30);

/// How long all lanes need after a fault of the state's database: for the timeout of a statement, and the next attempt.
const STATE_RECOVERS: Duration = Duration::from_secs(15);

/// How long a channel needs after its state was unreadable. The waits between its restarts grow up to a minute.
const RESTARTS: Duration = Duration::from_secs(75);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumIter)]
pub(super) enum Kind {
    /// An instance is killed, and later started again.
    Kill,
    /// An instance is stopped for longer than its lease, and then continued.
    Freeze,
    /// An instance is asked to reload.
    Reload,
    /// Nothing passes between an instance and the state's database. The connections stay open.
    Silence,
    /// The connections of an instance to the state's database end before the first answer.
    CutAnswers,
    /// An additional instance has other settings of verification.
    Stranger,
    /// The database server is killed, and later started again.
    ServerStops,
    /// Another session locks a table of the state.
    ProofsLocked,
    RequestsLocked,
    ChannelsLocked,
    /// Another session locks the table that each new connection reads first, and ends all connections of the instances.
    StateLocked,
    /// The role of the instances loses its rights on the proofs.
    ProofsRevoked,
    /// Another session locks the row of a channel.
    RowLocked,
    /// `held_back` of a channel is damaged.
    HeldBackDamaged,
    /// The cursors of a channel are damaged when the channel changes its owner.
    CursorsDamaged,
    /// A channel has an entry of an unknown kind, as a newer version may write it.
    UnknownEntry,
    /// The lists of channels in the table of instances contain null.
    NullChannel,
    /// The service answers 500 for a channel.
    ServiceFails,
    /// The service does not answer for a channel.
    ServiceHangs,
    /// Some events have invalid proofs.
    Forgery,
    /// The proofs of some events arrive later.
    LateProofs,
    /// The webhook accepts requests and does not answer.
    HookHangs,
    /// The webhook refuses everything.
    HookRefuses,
    /// The webhook refuses one channel.
    HookRefusesChannel,
    /// Another session locks a table of events.
    TableLocked,
    /// A trigger of a table of events refuses a channel.
    TableRefuses,
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
    /// A session with an open transaction that holds a lock.
    Session(tokio_postgres::Client),
}

impl Kind {
    /// Draws the target of a fault of this kind.
    pub(super) fn draw(self, random: &mut StdRng) -> Target {
        let channel = random.random_range(0..CHANNELS);
        match self {
            Self::Kill | Self::Freeze | Self::Reload | Self::Silence | Self::CutAnswers => {
                Target::Instance(random.random_range(0..INSTANCES))
            }
            Self::Stranger => Target::Instance(INSTANCES),
            Self::ServerStops | Self::ProofsLocked | Self::ChannelsLocked | Self::StateLocked | Self::ProofsRevoked => {
                Target::State
            }
            Self::RequestsLocked | Self::NullChannel => Target::Sharing,
            Self::RowLocked
            | Self::HeldBackDamaged
            | Self::CursorsDamaged
            | Self::UnknownEntry
            | Self::ServiceFails
            | Self::ServiceHangs
            | Self::Forgery
            | Self::LateProofs => Target::Channel(channel),
            Self::HookHangs | Self::HookRefuses => Target::Sink(HOOK),
            Self::HookRefusesChannel => Target::Lane(channel, HOOK),
            Self::TableLocked => Target::Sink(WAREHOUSES[warehouse(channel)]),
            Self::TableRefuses => Target::Lane(channel, WAREHOUSES[warehouse(channel)]),
        }
    }

    /// Whether the fault needs a running database server while it is active.
    fn needs_server(self) -> bool {
        matches!(
            self,
            Self::RequestsLocked
                | Self::NullChannel
                | Self::RowLocked
                | Self::HeldBackDamaged
                | Self::CursorsDamaged
                | Self::UnknownEntry
                | Self::TableLocked
                | Self::TableRefuses
        )
    }

    /// Whether the fault changes or locks the row of a channel.
    fn needs_channels(self) -> bool {
        matches!(self, Self::RowLocked | Self::HeldBackDamaged | Self::CursorsDamaged)
    }

    /// Whether a fault of this kind can delay the events of the lanes that it covers.
    fn delays(self) -> bool {
        !matches!(self, Self::HeldBackDamaged | Self::UnknownEntry | Self::Forgery | Self::LateProofs)
    }

    /// Whether no instance can send a heartbeat while the fault is active.
    pub(super) fn stops_heartbeats(self) -> bool {
        matches!(self, Self::ServerStops | Self::StateLocked)
    }
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

    /// Whether another fault must not be planted while this fault is active.
    pub(super) fn excludes(&self, kind: Kind, target: Target) -> bool {
        let either = |one: Kind, is: fn(Kind) -> bool| (self.kind == one && is(kind)) || (kind == one && is(self.kind));
        self.kind == kind
            || self.target.overlaps(target)
            || either(Kind::ServerStops, Kind::needs_server)
            || either(Kind::ChannelsLocked, Kind::needs_channels)
    }

    /// How long this lane needs after the end of the fault. `None` if the fault does not delay this lane. The failure of an
    /// instance is no excuse: another instance must deliver its events on time.
    pub(super) fn recovers(&self, lane: Lane) -> Option<Duration> {
        let after = match self.kind {
            Kind::CursorsDamaged => RESTARTS,
            _ if self.target == Target::State => STATE_RECOVERS,
            _ => RECOVERS,
        };
        Some(after).filter(|_| self.kind.delays() && self.target.covers(lane))
    }

    /// Whether nothing is delivered while the fault is active.
    pub(super) fn stops_everything(&self) -> bool {
        self.target == Target::State
    }

    /// The instance that the fault concerns.
    pub(super) fn instance(&self) -> Option<usize> {
        match self.target {
            Target::Instance(instance) if self.kind != Kind::Reload => Some(instance),
            _ => None,
        }
    }
}
