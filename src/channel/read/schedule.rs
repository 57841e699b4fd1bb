//! When a channel that has read everything polls again: each channel at times of its own.
//!
//! Many channels start in the same moment, and after a stall of the service or of the network many continue in the same
//! moment. If each then waited the same time, all would poll together for ever, in bursts and over as many connections. So
//! the time between two polls is divided into slots, and each channel polls in one of them. The channels of one slot poll
//! together, because waking up costs more than a poll.
//!
//! # Invariants
//!
//! * **Bounded.** A wait is never longer than the time between two polls.
//! * **Always the same slot.** What happens in between does not move it, so channels do not fall into step.

use std::time::Duration;

use tokio::time::Instant;

use proof::event::ChannelId;

/// The slots between two polls.
const SLOTS: u32 = 50;

/// How long it is until the next poll of a channel that polls `every` so often. Its slot follows from its id, which spreads
/// channels as well as chance does, and is the same in each run. Slots are counted from `origin`.
pub(crate) fn until_next_poll(channel: ChannelId, origin: Instant, every: Duration) -> Duration {
    // The last bytes: in some kinds of id the first ones are a time.
    let [.., a, b, c, d] = channel.0.into_bytes();
    let slot = u32::from_be_bytes([a, b, c, d]) % SLOTS;
    let passed = origin.elapsed() + every * slot / SLOTS;
    let since = passed.as_nanos().checked_rem(every.as_nanos()).unwrap_or_default();
    every.saturating_sub(Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests;
