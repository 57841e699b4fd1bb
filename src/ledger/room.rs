//! How much a channel may keep of what could not be delivered, and how much it keeps.

/// A bound on what a channel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Events.
    pub events: u64,
    /// Bytes of their JSON.
    pub bytes: u64,
}

const MIB: u64 = 1024 * 1024;

/// What one channel's quarantine takes. When it is full, reading stops: no rejected event is thrown away.
pub const QUARANTINE: Limit = Limit { events: 1_000, bytes: 64 * MIB };

/// The events of one channel that may wait for their proof. When they are as many, reading waits for them.
pub const LATE: Limit = Limit { events: 10_000, bytes: 64 * MIB };

/// The dead letters of one channel. When they are as many, no sink of it gives up an event.
pub const DEAD_LETTERS: Limit = Limit { events: 10_000, bytes: 64 * MIB };

/// How much is kept.
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
        let mut room = Self::default();
        sizes.for_each(|size| room.add(size));
        room
    }

    /// Whether there is no room for more. What is in hand already is still taken.
    #[must_use]
    pub fn is_full(self, limit: Limit) -> bool {
        self.events >= limit.events || self.bytes >= limit.bytes
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }

    pub(super) fn remove(&mut self, bytes: u64) {
        self.events -= 1;
        self.bytes -= bytes;
    }
}
