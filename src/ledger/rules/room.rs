//! Limits for the undelivered events that a channel may keep, and their current usage.

use super::Ledger;

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
    fn of(sizes: impl Iterator<Item = u64>) -> Self {
        sizes.fold(Self::default(), |room, size| Self { events: room.events + 1, bytes: room.bytes + size })
    }

    /// Whether a limit is reached. Events that were already read are still accepted.
    pub fn is_full(self, limit: Self) -> bool {
        self.events >= limit.events || self.bytes >= limit.bytes
    }
}

impl Ledger {
    /// The number and size of the pending events. The limit is [`LATE`].
    pub fn late_room(&self) -> Room {
        Room::of(self.late.values().map(|event| event.bytes))
    }

    /// The number and size of the quarantined events. The limit is [`QUARANTINE`].
    pub fn quarantine_room(&self) -> Room {
        Room::of(self.quarantined.values().map(|event| event.bytes))
    }

    /// The number and size of the dead letters. The limit is [`DEAD_LETTERS`].
    pub fn dead_letter_room(&self) -> Room {
        Room::of(self.dead_letters.values().map(|event| event.bytes))
    }
}
