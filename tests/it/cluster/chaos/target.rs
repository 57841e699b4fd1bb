//! The parts that a fault concerns.

use super::world::CHANNELS;
use crate::support::Lane;

/// The webhook that every channel delivers to.
pub(super) const HOOK: &str = "hook";

/// The sinks that write to PostgreSQL, and their tables. Each channel delivers to one of them.
pub(super) const WAREHOUSES: [&str; 2] = ["warehouse-0", "warehouse-1"];
pub(super) const TABLES: [&str; 2] = ["public.events", "public.events_1"];

/// The part of the world that a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A channel, or its rows in the state's database.
    Channel(usize),
    Sink(&'static str),
    Lane(usize, &'static str),
    /// An instance. Other instances deliver its events.
    Instance(usize),
    /// Tables or rows that no delivery needs.
    Sharing,
    /// Everything that the instances do with the state's database.
    State,
}

impl Target {
    /// Whether a fault of this target can delay the events of a lane.
    pub(super) fn covers(self, (channel, sink): Lane) -> bool {
        match self {
            Self::Channel(it) => it == channel,
            Self::Sink(it) => it == sink,
            Self::Lane(its_channel, its_sink) => (its_channel, its_sink) == (channel, sink),
            Self::Instance(_) | Self::Sharing => false,
            Self::State => true,
        }
    }

    /// Whether faults of these targets would hide each other, or delay an event longer than one of them alone.
    pub(super) fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::Instance(_), Self::Instance(_)) | (Self::State, Self::State) => true,
            (Self::Instance(_) | Self::Sharing | Self::State, _)
            | (_, Self::Instance(_) | Self::Sharing | Self::State) => false,
            _ => {
                let contains =
                    |one: Self, other: Self| lanes().filter(|lane| other.covers(*lane)).all(|lane| one.covers(lane));
                contains(self, other) || contains(other, self)
            }
        }
    }
}

/// The sink of a channel that writes to PostgreSQL, by its number.
pub(super) fn warehouse(channel: usize) -> usize {
    channel % WAREHOUSES.len()
}

/// Every lane.
pub(super) fn lanes() -> impl Iterator<Item = Lane> {
    (0..CHANNELS).flat_map(|channel| [(channel, HOOK), (channel, WAREHOUSES[warehouse(channel)])])
}
