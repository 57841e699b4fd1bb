//! Limits for the undelivered events that a channel may keep, and their current usage.

const MIB: u64 = 1024 * 1024;

/// The limit of one channel's quarantine. When it is full, reading stops, because no rejected event is discarded.
pub const QUARANTINE: Room = Room { events: 1_000, bytes: 64 * MIB };

/// The limit for the pending events of one channel. When it is reached, reading waits until their number falls.
pub const LATE: Room = Room { events: 10_000, bytes: 64 * MIB };

/// The limit for the dead letters of one channel. When it is reached, the channel's sinks retry an event instead
/// of adding a dead letter.
pub const DEAD_LETTERS: Room = Room { events: 10_000, bytes: 64 * MIB };

/// A number of events and their size, used for limits and for usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The number of events.
    pub events: u64,
    /// The size of their JSON in bytes.
    pub bytes: u64,
}

impl Room {
    /// The usage of events with these sizes.
    pub(super) fn of(sizes: impl Iterator<Item = u64>) -> Self {
        sizes.fold(Self::default(), |room, size| Self { events: room.events + 1, bytes: room.bytes + size })
    }

    /// Whether a limit is reached. Events that were already read are still accepted.
    pub fn is_full(self, limit: Self) -> bool {
        self.events >= limit.events || self.bytes >= limit.bytes
    }
}
