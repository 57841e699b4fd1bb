//! How much the quarantine holds, and when that is enough.

/// Events that the quarantine takes, all channels together.
pub const MAX_QUARANTINED: u64 = 10_000;

/// Bytes of events that it takes.
pub const MAX_QUARANTINED_BYTES: u64 = 256 * 1024 * 1024;

/// What the quarantine holds, all channels together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Held {
    /// Whether nothing more should be read that would have to be kept. What is in hand already is still taken: evidence
    /// is never thrown away for want of room.
    #[must_use]
    pub fn is_full(self) -> bool {
        self.events >= MAX_QUARANTINED || self.bytes >= MAX_QUARANTINED_BYTES
    }

    /// With an event of so many bytes.
    pub(super) fn with(self, bytes: usize) -> Self {
        Self { events: self.events.saturating_add(1), bytes: self.bytes.saturating_add(bytes as u64) }
    }

    /// Without an event of so many bytes.
    pub(super) fn without(self, bytes: usize) -> Self {
        Self { events: self.events.saturating_sub(1), bytes: self.bytes.saturating_sub(bytes as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_by_count_or_by_size() {
        let full = |events, bytes| Held { events, bytes }.is_full();
        assert!(!full(MAX_QUARANTINED - 1, MAX_QUARANTINED_BYTES - 1));
        assert!(full(MAX_QUARANTINED, 0) && full(1, MAX_QUARANTINED_BYTES));
    }
}
