//! The feed of this instance, as operators see it.
//!
//! The feed counts its requests here, and reports its consumers. Requests of operators to the feed's table go through a queue to the
//! feed, which carries them out.
//!
//! # Invariants
//!
//! * **Nothing waits for the table without a limit.** [`FeedHandle::status`] returns what the feed has reported last, and since when.
//!   [`FeedHandle::refresh`] waits for a short time at most.
//! * **Requests share queries.** Only the feed reads the consumers: at an interval, and once for all requests in the queue.
//!
//! # Cancellation
//!
//! A cursor that was requested is set even if the client disconnects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::Refusal;
use net::tasks::lock;

pub use crate::report::feed::{FeedConsumer, FeedConsumerState, FeedStatus};
pub use telemetry::metrics::{FeedCall, FeedMetrics};

/// How many requests of operators can wait for the feed.
const QUEUE: usize = 16;

/// How long an operator's request waits until the consumers were read again.
const MAX_REFRESH: Duration = Duration::from_secs(2);

/// How long an operator's request waits until a cursor was set. Longer than the feed waits for its table.
const MAX_SET: Duration = Duration::from_secs(20);

/// A request of an operator to the feed.
#[derive(Debug)]
pub enum ConsumerRequest {
    /// Read the consumers. The feed answers after it has reported them.
    Read(oneshot::Sender<()>),
    /// Set the cursor of a consumer in a channel, which the request names as the configuration does.
    Set {
        /// The name of the consumer.
        consumer: String,
        /// The name of the channel.
        channel: String,
        /// The new cursor.
        through: i64,
        /// The answer.
        done: oneshot::Sender<Result<(), Refusal>>,
    },
}

/// The feed of this instance. Clones are the same feed.
#[derive(Clone, Debug)]
pub struct FeedHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    metrics: FeedMetrics,
    waiting: AtomicUsize,
    /// The last report of the feed, without the number of requests that wait.
    known: Mutex<FeedStatus>,
    requests: mpsc::Sender<ConsumerRequest>,
}

/// A request to the feed that waits for events, until it is dropped.
#[derive(Debug)]
pub struct WaitingRequest<'a>(&'a AtomicUsize);

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls of the feed.
impl FeedHandle {
    /// A feed that listens on this address. The feed receives the requests of operators from the queue.
    pub fn new(address: String, metrics: FeedMetrics) -> (Self, mpsc::Receiver<ConsumerRequest>) {
        let (requests, queue) = mpsc::channel(QUEUE);
        let known = Mutex::new(FeedStatus { address, ..FeedStatus::default() });
        (Self(Arc::new(Shared { metrics, waiting: AtomicUsize::default(), known, requests })), queue)
    }

    /// Counts an answered request.
    pub fn answered(&self, call: FeedCall, status: StatusCode) {
        self.0.metrics.answered(call, status);
    }

    /// Counts a client that was told that the events at its position were deleted.
    pub fn gone(&self, channel: &str) {
        self.0.metrics.gone(channel);
    }

    /// Counts a request that waits for events.
    pub fn begin_wait(&self) -> WaitingRequest<'_> {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingRequest(&self.0.waiting)
    }

    /// Reports the consumers, or why they cannot be read. After an error, the consumers that were read before remain known.
    pub fn report(&self, read: Result<Vec<FeedConsumer>, String>) {
        let mut known = lock(&self.0.known);
        match read {
            Ok(consumers) => (known.consumers, known.read, known.error) = (consumers, Some(Timestamp::now()), None),
            Err(error) => known.error = Some(error),
        }
    }
}

/// Calls of operators.
impl FeedHandle {
    /// Returns the last report of the feed. Does not wait.
    pub fn status(&self) -> FeedStatus {
        FeedStatus { waiting: self.0.waiting.load(Ordering::Relaxed), ..lock(&self.0.known).clone() }
    }

    /// Waits until the consumers were read after this call, for a short time at most. Returns whether they were read.
    pub async fn refresh(&self) -> bool {
        let (done, read) = oneshot::channel();
        let asked = async { self.0.requests.send(ConsumerRequest::Read(done)).await.is_ok() && read.await.is_ok() };
        timeout(MAX_REFRESH, asked).await.unwrap_or(false)
    }

    /// Returns the consumers as they are now.
    ///
    /// # Errors
    /// If the table does not answer in time, or cannot be read.
    pub async fn consumers(&self) -> Result<Vec<FeedConsumer>, Refusal> {
        let is_read = self.refresh().await;
        let FeedStatus { consumers, error, .. } = self.status();
        match error {
            None if is_read => Ok(consumers),
            None => Err(unreadable("it did not answer in time")),
            Some(error) => Err(unreadable(&error)),
        }
    }

    /// Sets the cursor of a consumer, and ends its lease.
    ///
    /// # Errors
    /// [`Refusal`] if the cursor was not set, or if it is unknown whether it was set.
    pub async fn set_cursor(&self, consumer: &str, channel: &str, through: i64) -> Result<(), Refusal> {
        let (done, is_set) = oneshot::channel();
        let request =
            ConsumerRequest::Set { consumer: consumer.to_owned(), channel: channel.to_owned(), through, done };
        let asked = async {
            self.0.requests.send(request).await.map_err(|_| stopping())?;
            is_set.await.map_err(|_| stopping())?
        };
        let slow =
            "the table of the feed did not answer in time: the cursor may still be set; see channeld consumers show";
        timeout(MAX_SET, asked).await.unwrap_or_else(|_| Err(Refusal::Failed(slow.to_owned())))
    }
}

fn unreadable(why: &str) -> Refusal {
    Refusal::Failed(format!("the consumers cannot be read from the table of the feed: {why}"))
}

fn stopping() -> Refusal {
    Refusal::Failed("the feed is stopping".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> (FeedHandle, mpsc::Receiver<ConsumerRequest>) {
        FeedHandle::new("127.0.0.1:9465".to_owned(), FeedMetrics::default())
    }

    fn consumer(lag: i64) -> FeedConsumer {
        FeedConsumer { consumer: "ledger".to_owned(), lag, ..FeedConsumer::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_does_not_answer_delays_a_request_only_for_a_short_time() {
        let (feed, _queue) = handle();
        feed.report(Ok(vec![consumer(3)]));
        let since = tokio::time::Instant::now();
        assert!(!feed.refresh().await);
        assert!(since.elapsed() <= MAX_REFRESH);
        let status = feed.status();
        assert_eq!((status.consumers, status.error), (vec![consumer(3)], None), "the last report remains known");
        let refused = feed.consumers().await.unwrap_err().to_string();
        assert!(refused.contains("in time"), "{refused}");
        let refused = feed.set_cursor("ledger", "c0", 1).await.unwrap_err().to_string();
        assert!(refused.contains("may still be set"), "{refused}");
    }

    #[tokio::test]
    async fn after_an_error_the_known_consumers_remain_with_their_time() {
        let (feed, _queue) = handle();
        assert_eq!(feed.status().warning(), None);
        feed.report(Err("locked".to_owned()));
        assert!(feed.status().warning().unwrap().contains("not known: locked"));
        feed.report(Ok(vec![consumer(3)]));
        let read = feed.status().read.expect("they were read");
        feed.report(Err("locked".to_owned()));
        let status = feed.status();
        assert_eq!((status.consumers.len(), status.read), (1, Some(read)));
        assert!(status.warning().unwrap().contains("locked"));
        feed.report(Ok(Vec::new()));
        assert_eq!(feed.status().warning(), None);
    }

    #[test]
    fn waiting_requests_are_counted_until_they_end() {
        let (feed, _queue) = handle();
        let waiting = [feed.begin_wait(), feed.begin_wait()];
        assert_eq!(feed.status().waiting, 2);
        drop(waiting);
        assert_eq!(feed.status().waiting, 0);
    }
}
