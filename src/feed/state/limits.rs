//! Bounds the requests and the memory of the feed.
//!
//! # Invariants
//!
//! * **One consumer cannot use everything.** The requests of each consumer have their own limit, and its responses use at most half
//!   of the memory.
//! * **A waiting request reserves no memory for events.** Memory is reserved before events are read, and freed when the last of them
//!   was passed to the connection. Only the size of a leased record that is larger than a page is not known before it is read. A connection whose client does not read is closed by the server.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use net::tasks::lock;

use crate::problem::{Problem, ProblemKind};

/// The largest size of the records of one response, in bytes. A single larger record is returned alone, and memory is reserved for it
/// too.
const MAX_PAGE: usize = 4 << 20;

/// Memory is counted in units of this many bytes.
const UNIT: usize = 1 << 10;

/// The name of a consumer. `None` for clients without a token.
type ConsumerName = Option<Arc<str>>;

/// The requests in progress.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    all: usize,
    of_consumers: HashMap<ConsumerName, usize>,
}

/// A request in progress, until it is dropped.
pub(crate) struct RequestInProgress {
    requests: Arc<Requests>,
    consumer: ConsumerName,
}

impl Requests {
    /// Begins a request. At most `most` requests are allowed at a time, and at most `most_of_consumer` of the consumer.
    pub(crate) fn begin(
        self: &Arc<Self>,
        consumer: ConsumerName,
        most: usize,
        most_of_consumer: usize,
    ) -> Result<RequestInProgress, Problem> {
        let mut counts = lock(&self.0);
        if counts.all >= most {
            return Err(Problem::busy("the feed has too many requests in progress: try again"));
        }
        let of_consumer = counts.of_consumers.entry(consumer.clone()).or_default();
        if *of_consumer >= most_of_consumer {
            let detail = format!("at most {most_of_consumer} requests of one consumer are answered at a time");
            return Err(Problem::new(ProblemKind::TooManyRequests, detail));
        }
        *of_consumer += 1;
        counts.all += 1;
        Ok(RequestInProgress { requests: self.clone(), consumer })
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        let mut counts = lock(&self.requests.0);
        counts.all -= 1;
        let left = counts.of_consumers.get_mut(&self.consumer).map(|of_consumer| {
            *of_consumer -= 1;
            *of_consumer
        });
        if left == Some(0) {
            counts.of_consumers.remove(&self.consumer);
        }
    }
}

/// A body whose request is in progress until the body was sent.
pub(crate) struct CountedBody {
    pub(crate) body: Body,
    pub(crate) _request: RequestInProgress,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The memory for the events of responses.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    all: Arc<Semaphore>,
    /// The units that the responses to one consumer can use.
    share: usize,
    of_consumers: Mutex<HashMap<ConsumerName, Arc<Semaphore>>>,
    max_page: usize,
}

/// Memory that is reserved until this value is dropped.
#[derive(Debug)]
pub(crate) struct ReservedMemory([OwnedSemaphorePermit; 2]);

impl AnswerMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).clamp(2, Semaphore::MAX_PERMITS);
        let share = units / 2;
        let max_page = MAX_PAGE.min(share * UNIT);
        Self { all: Arc::new(Semaphore::new(units)), share, of_consumers: Mutex::default(), max_page }
    }

    /// The largest page that can be reserved, in bytes.
    pub(crate) fn max_page(&self) -> usize {
        self.max_page
    }

    /// The most bytes that can be reserved for one response.
    pub(crate) fn most(&self) -> usize {
        self.share * UNIT
    }

    /// Waits until the bytes can be reserved. Reserves at most the share of one consumer.
    pub(crate) async fn reserve(&self, consumer: ConsumerName, bytes: usize) -> ReservedMemory {
        let units = u32::try_from(bytes.min(self.most()).div_ceil(UNIT)).unwrap_or(u32::MAX);
        let own =
            lock(&self.of_consumers).entry(consumer).or_insert_with(|| Arc::new(Semaphore::new(self.share))).clone();
        // The consumer's share first: a consumer that waits for its own share does not reserve shared memory.
        let own = own.acquire_many_owned(units).await;
        let all = self.all.clone().acquire_many_owned(units).await;
        ReservedMemory([own, all].map(|permit| permit.unwrap_or_else(|_| unreachable!("no semaphore is closed"))))
    }
}

impl ReservedMemory {
    /// Frees the memory above `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        for permit in &mut self.0 {
            let surplus = permit.num_permits().saturating_sub(bytes.div_ceil(UNIT));
            drop(permit.split(surplus));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_requests_of_a_consumer_and_of_all_are_counted() {
        let requests = Arc::<Requests>::default();
        let begin = |name: &str| requests.begin(Some(name.into()), 3, 2);
        let status = |refused: Result<RequestInProgress, Problem>| refused.err().map(|it| it.json()["status"].clone());
        let first = [begin("a").unwrap(), begin("a").unwrap()];
        assert_eq!(status(begin("a")), Some(429.into()));
        let other = begin("b").unwrap();
        assert_eq!(status(begin("b")), Some(503.into()));
        drop(first);
        assert!(begin("a").is_ok());
        drop(other);
        assert!(lock(&requests.0).of_consumers.is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn one_consumer_uses_at_most_half_of_the_memory() {
        let memory = AnswerMemory::new(4 * MAX_PAGE);
        let name = |name: &str| Some(Arc::from(name));
        let mut greedy = vec![memory.reserve(name("a"), MAX_PAGE).await, memory.reserve(name("a"), MAX_PAGE).await];
        assert!(memory.reserve(name("a"), 1).now_or_never().is_none(), "its share is used up");
        let other = memory.reserve(name("b"), MAX_PAGE).now_or_never();
        assert!(other.is_some(), "another consumer has memory");
        greedy[0].shrink_to(MAX_PAGE / 2);
        assert!(memory.reserve(name("a"), MAX_PAGE / 2).now_or_never().is_some());
        drop((greedy, other));
        assert_eq!(memory.all.available_permits(), 4 * MAX_PAGE / UNIT, "everything is freed");
    }

    #[tokio::test]
    async fn a_record_that_is_larger_than_a_page_uses_memory_too() {
        let memory = AnswerMemory::new(4 * MAX_PAGE);
        let large = memory.reserve(None, 3 * MAX_PAGE).await;
        assert_eq!(memory.all.available_permits(), 2 * MAX_PAGE / UNIT, "at most the share of a consumer");
        assert!(memory.reserve(None, 1).now_or_never().is_none());
        drop(large);
        assert_eq!(memory.all.available_permits(), 4 * MAX_PAGE / UNIT);
    }

    #[test]
    fn a_page_fits_into_little_memory() {
        assert_eq!(AnswerMemory::new(1 << 20).max_page(), 1 << 19);
        assert_eq!(AnswerMemory::new(64 << 20).max_page(), MAX_PAGE);
    }
}
