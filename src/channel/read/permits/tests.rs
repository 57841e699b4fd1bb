use futures_util::FutureExt;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn permits_are_granted_in_order_of_arrival() {
    let permits = Arc::new(Semaphore::new(1));
    let permit = next(&permits).await;
    let [mut second, mut third] = [0, 1].map(|_| Box::pin(next(&permits)));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    drop(permit);
    assert!(third.as_mut().now_or_never().is_none(), "it is the second's");
    drop(second.await);
    third.await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_permit_has_a_bound() {
    let permits = Arc::new(Semaphore::new(1));
    let (held, began) = (next(&permits).await, Instant::now());
    let none = next(&permits).await;
    assert_eq!(began.elapsed(), MAX_WAIT);
    drop(held);
    next(&permits).await;
    assert_eq!(began.elapsed(), MAX_WAIT, "there is one again");
    drop(none);
    assert_eq!(permits.available_permits(), 1);
}
