//! Schedules the polls of a channel that has read everything. Each channel polls on its own schedule.
//!
//! Many channels start at the same moment, and many continue at the same moment after a stall of the service or the network.
//! If all of them waited for the same time, all would always poll together, in bursts and over many connections. Therefore
//! the time between two polls is divided into slots, and each channel polls in one slot. The channels of one slot poll
//! together, because waking up costs more than a poll.
//!
//! # Invariants
//!
//! * **Bounded.** A wait is never longer than the time between two polls.
//! * **Always the same slot.** Delays between polls do not move the slot, so channels do not fall into step.

use std::time::Duration;

use tokio::time::Instant;

use proof::event::ChannelId;

/// The number of slots between two polls.
const SLOTS: u32 = 50;

/// Returns the time until the next poll of a channel that polls at the interval `every`. Its slot is derived from its id.
/// This spreads channels as well as a random choice, and is the same in each run. Slots are counted from `origin`.
pub(crate) fn until_next_poll(channel: ChannelId, origin: Instant, every: Duration) -> Duration {
    // Use the last bytes, because the first bytes of some kinds of id are a time.
    let [.., a, b, c, d] = channel.0.into_bytes();
    let slot = u32::from_be_bytes([a, b, c, d]) % SLOTS;
    let passed = origin.elapsed() + every * slot / SLOTS;
    let since = passed.as_nanos().checked_rem(every.as_nanos()).unwrap_or_default();
    every.saturating_sub(Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const EVERY: Duration = Duration::from_secs(5);

    fn channel(number: u32) -> ChannelId {
        ChannelId(Uuid::from_u128(number.into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_the_next_poll_whatever_was_done_since_the_last() {
        let origin = Instant::now();
        let wait = || until_next_poll(channel(25), origin, EVERY);
        assert_eq!(wait(), EVERY / 2);
        for busy_ms in [0, 1, 4999, 5000, 12_000] {
            tokio::time::sleep(wait()).await;
            tokio::time::sleep(Duration::from_millis(busy_ms)).await;
            assert_eq!(wait(), EVERY.saturating_sub(Duration::from_millis(busy_ms % 5000)), "{busy_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn channels_that_begin_together_are_spread_over_all_slots() {
        let mut waits: Vec<_> = (0..1000).map(|at| until_next_poll(channel(at), Instant::now(), EVERY)).collect();
        assert!(waits.iter().all(|wait| !wait.is_zero() && *wait <= EVERY), "{waits:?}");
        waits.sort_unstable();
        assert!(waits.chunk_by(|one, other| one == other).all(|slot| slot.len() == 20), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_time_between_polls_there_is_no_wait() {
        assert_eq!(until_next_poll(channel(7), Instant::now(), Duration::ZERO), Duration::ZERO);
    }
}
