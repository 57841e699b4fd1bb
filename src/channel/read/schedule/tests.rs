use super::*;
use uuid::Uuid;

const EVERY: Duration = Duration::from_secs(5);

fn schedule(channel: u32, every: Duration) -> PollSchedule {
    PollSchedule::of(ChannelId(Uuid::from_u128(channel.into())), Instant::now(), every)
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_next_poll_whatever_was_done_since_the_last() {
    let schedule = schedule(25, EVERY);
    assert_eq!(schedule.wait(), EVERY / 2);
    for busy_ms in [0, 1, 4999, 5000, 12_000] {
        tokio::time::sleep(schedule.wait()).await;
        tokio::time::sleep(Duration::from_millis(busy_ms)).await;
        assert_eq!(schedule.wait(), EVERY.saturating_sub(Duration::from_millis(busy_ms % 5000)), "{busy_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn channels_that_begin_together_are_spread_over_all_slots() {
    let mut waits: Vec<_> = (0..1000).map(|channel| schedule(channel, EVERY).wait()).collect();
    assert!(waits.iter().all(|wait| !wait.is_zero() && *wait <= EVERY), "{waits:?}");
    waits.sort_unstable();
    assert!(waits.chunk_by(|one, other| one == other).all(|slot| slot.len() == 20), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn without_time_between_polls_there_is_no_wait() {
    assert_eq!(schedule(7, Duration::ZERO).wait(), Duration::ZERO);
}
