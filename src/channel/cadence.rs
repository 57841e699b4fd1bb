//! When a channel that has nothing to read asks again: each at times of its own.
//!
//! Many channels begin in the same moment, and a stall of the service or of the network sets many going in the same moment.
//! If each waited the same time from then on, they would ask together for ever: the service would be asked in bursts, over
//! as many connections. So the time between two questions is divided into slots, the same ones for all, and each channel
//! asks in one of them. A few in each ask together, for waking up costs more than what is done then.
//!
//! # Invariants
//!
//! * **No longer than asked for.** A wait is never longer than the time between two questions.
//! * **Always the same slot.** It does not move with what happens in between, so nothing sets channels going in step.

use std::time::Duration;

use tokio::time::Instant;

use crate::event::ChannelId;

/// Into so many slots the time between two questions is divided.
const SLOTS: u32 = 50;

/// Points in time, equally far apart.
#[derive(Debug)]
pub(super) struct Cadence {
    every: Duration,
    origin: Instant,
    /// How long before the origin there would have been a point.
    shift: Duration,
}

impl Cadence {
    /// Which slot is a channel's follows from its id, which is as good as chance: the same history goes the same way twice.
    /// Slots are counted from `origin`.
    pub(super) fn of(channel: ChannelId, origin: Instant, every: Duration) -> Self {
        // The end of an id, for its beginning is a time in some.
        let [.., a, b, c, d] = channel.0.into_bytes();
        let slot = u32::from_be_bytes([a, b, c, d]) % SLOTS;
        Self { every, origin, shift: every * slot / SLOTS }
    }

    /// How long it is until the next point.
    pub(super) fn wait(&self) -> Duration {
        let passed = self.origin.elapsed() + self.shift;
        let since = passed.as_nanos().checked_rem(self.every.as_nanos()).unwrap_or_default();
        self.every.saturating_sub(Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const EVERY: Duration = Duration::from_secs(5);

    fn cadence(channel: u32, every: Duration) -> Cadence {
        Cadence::of(ChannelId(Uuid::from_u128(channel.into())), Instant::now(), every)
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_the_next_point_whatever_was_done_since_the_last() {
        let cadence = cadence(25, EVERY);
        assert_eq!(cadence.wait(), EVERY / 2);
        for busy_ms in [0, 1, 4999, 5000, 12_000] {
            tokio::time::sleep(cadence.wait()).await;
            tokio::time::sleep(Duration::from_millis(busy_ms)).await;
            assert_eq!(cadence.wait(), EVERY.saturating_sub(Duration::from_millis(busy_ms % 5000)), "{busy_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn channels_that_begin_together_go_on_in_all_the_slots_there_are() {
        let mut waits: Vec<_> = (0..1000).map(|channel| cadence(channel, EVERY).wait()).collect();
        assert!(waits.iter().all(|wait| !wait.is_zero() && *wait <= EVERY), "{waits:?}");
        waits.sort_unstable();
        assert!(waits.chunk_by(|one, other| one == other).all(|slot| slot.len() == 20), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_time_between_points_there_is_no_wait() {
        assert_eq!(cadence(7, Duration::ZERO).wait(), Duration::ZERO);
    }
}
