//! How much a channel may keep of what could not be delivered, and how much it keeps.

const MIB: u64 = 1024 * 1024;

/// What one channel's quarantine takes. When it is full, reading stops: no rejected event is thrown away.
pub const QUARANTINE: Room = Room { events: 1_000, bytes: 64 * MIB };

/// The events of one channel that may wait for their proof. When they are as many, reading waits for them.
pub const LATE: Room = Room { events: 10_000, bytes: 64 * MIB };

/// The dead letters of one channel. When they are as many, no sink of it gives up an event.
pub const DEAD_LETTERS: Room = Room { events: 10_000, bytes: 64 * MIB };

/// How much is kept, or may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Events.
    pub events: u64,
    /// Bytes of their JSON.
    pub bytes: u64,
}

impl Room {
    /// Of events of these sizes.
    pub(super) fn of(sizes: impl Iterator<Item = u64>) -> Self {
        sizes.fold(Self::default(), |room, size| Self { events: room.events + 1, bytes: room.bytes + size })
    }

    /// Whether there is no room for more. What is in hand already is still taken.
    pub fn is_full(self, limit: Self) -> bool {
        self.events >= limit.events || self.bytes >= limit.bytes
    }
}
