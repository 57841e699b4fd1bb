use futures_util::FutureExt;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn permits_are_granted_in_order_of_arrival() {
    let permits = ReadPermits::new(1);
    let permit = permits.next().await;
    let [mut second, mut third] = [0, 1].map(|_| Box::pin(permits.next()));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    drop(permit);
    assert!(third.as_mut().now_or_never().is_none(), "it is the second's");
    drop(second.await);
    third.await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_permit_has_a_bound() {
    let permits = ReadPermits::new(1);
    let (held, began) = (permits.next().await, Instant::now());
    let none = permits.next().await;
    assert_eq!(began.elapsed(), MAX_WAIT);
    drop(held);
    permits.next().await;
    assert_eq!(began.elapsed(), MAX_WAIT, "there is one again");
    drop(none);
    assert_eq!(permits.0.available_permits(), 1);
}
