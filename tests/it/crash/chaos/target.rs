//! The lanes that a fault concerns.

use super::world::{CHANNELS, WAREHOUSES, has_sink, sinks};
use crate::support::Lane;

/// The part of the world that a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Channel(usize),
    Sink(&'static str),
    Lane(usize, &'static str),
    /// Every sink that writes to the PostgreSQL server.
    Server,
    Process,
}

impl Target {
    pub(super) fn covers(self, (channel, sink): Lane) -> bool {
        match self {
            Self::Channel(it) => it == channel,
            Self::Sink(it) => it == sink,
            Self::Lane(its_channel, its_sink) => (its_channel, its_sink) == (channel, sink),
            Self::Server => WAREHOUSES.contains(&sink),
            Self::Process => true,
        }
    }

    /// Whether one of the two targets contains all lanes of the other. Faults of the process overlap only with each
    /// other: they end soon, and the status then shows the other faults.
    pub(super) fn overlaps(self, other: &Self) -> bool {
        if self == Self::Process || *other == Self::Process {
            return self == *other;
        }
        let contains = |one: Self, other: Self| lanes().filter(|lane| other.covers(*lane)).all(|lane| one.covers(lane));
        contains(self, *other) || contains(*other, self)
    }
}

/// Every lane.
pub(super) fn lanes() -> impl Iterator<Item = Lane> {
    let all = (0..CHANNELS).flat_map(|channel| sinks().map(move |sink| (channel, sink)));
    all.filter(|(channel, sink)| has_sink(*channel, sink))
}
