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
