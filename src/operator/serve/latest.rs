//! Shares the result of expensive work among the requests that ask for it at about the same time.
//!
//! # Invariants
//!
//! * **One at a time.** While the work is done for one request, the others wait for its result.
//! * **At most a second old.** A request receives a result only if its work began at most [`KEPT`] before the request.
//!   Otherwise the work is done again.
//!
//! # Cancellation
//!
//! If the request for which the work is done is dropped, the next request does the work again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The maximum age of a result when it is requested.
const KEPT: Duration = Duration::from_secs(1);

/// The latest result, with the time at which its work began.
#[derive(Debug)]
pub(super) struct Latest<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Latest<T> {
    /// Returns the latest result if it is recent, and otherwise does the work.
    ///
    /// # Errors
    /// The error of the work. An error is not kept.
    pub(super) async fn get<E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        let asked = Instant::now();
        let mut latest = self.0.lock().await;
        let recent = latest.as_ref().filter(|(began, _)| asked.saturating_duration_since(*began) <= KEPT);
        if let Some((_, result)) = recent {
            return Ok(result.clone());
        }
        let began = Instant::now();
        let result = Arc::new(work.await?);
        *latest = Some((began, result.clone()));
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{advance, sleep};

    use super::*;

    /// Work that takes this long, and returns how many times it was done.
    async fn work(done: &AtomicUsize, takes: Duration) -> Result<usize, Infallible> {
        sleep(takes).await;
        Ok(done.fetch_add(1, Ordering::Relaxed) + 1)
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_one_result() {
        let (latest, done) = (Latest::default(), AtomicUsize::new(0));
        let slow = Duration::from_secs(3);
        let ask = || async { *latest.get(work(&done, slow)).await.unwrap() };
        let later = || async {
            sleep(Duration::from_secs(2)).await;
            ask().await
        };
        let (one, two, third, fourth) = tokio::join!(ask(), ask(), later(), later());
        assert_eq!((one, two), (1, 1), "both asked when the work began");
        assert_eq!((third, fourth), (2, 2), "the first work began two seconds before they asked");
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_at_most_a_second_old() {
        let (latest, done) = (Latest::default(), AtomicUsize::new(0));
        let mut results = Vec::new();
        for wait in [0, 1_000, 1] {
            advance(Duration::from_millis(wait)).await;
            results.push(*latest.get(work(&done, Duration::ZERO)).await.unwrap());
        }
        assert_eq!(results, [1, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_not_kept() {
        let latest = Latest::default();
        assert_eq!(latest.get(async { Err::<u8, _>("unreadable") }).await, Err("unreadable"));
        assert_eq!(*latest.get(async { Ok::<_, &str>(1) }).await.unwrap(), 1);
    }
}
