//! Tests the intervals between requests.

use tokio::time::Instant;

use super::*;
use crate::webhook::endpoint::Pace;

#[tokio::test(start_paused = true)]
async fn requests_are_evenly_spaced_without_bursts() {
    let pace = Pace::new(Rate { requests: 10, per: Duration::from_secs(1) });
    let began = Instant::now();
    for turn in 0..5 {
        pace.turn().await;
        assert_eq!(began.elapsed(), Duration::from_millis(100) * turn);
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = Instant::now();
    for turn in 0..3 {
        pace.turn().await;
        assert_eq!(after.elapsed(), Duration::from_millis(100) * turn);
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_share_the_rate_and_a_dropped_wait_uses_none() {
    let pace = Pace::new(Rate { requests: 1, per: Duration::from_secs(1) });
    let began = Instant::now();
    pace.turn().await;
    let _ = tokio::time::timeout(Duration::from_millis(500), pace.turn()).await;
    tokio::join!(pace.turn(), pace.turn(), pace.turn());
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}
