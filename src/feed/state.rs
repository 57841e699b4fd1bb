//! The state that all requests share: the settings in force, the table and the limits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::access::Visitor;
use crate::problem::Problem;
use crate::settings::{FeedChannel, FeedSettings};
use crate::table::{FeedError, FeedEvent, FeedPage, FeedTable};

pub(crate) mod limits;
pub(crate) mod positions;

use limits::{AnswerMemory, Requests, ReservedMemory};
use positions::Positions;

/// How long a request can wait for the table, or for memory.
const TABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The state that all requests share.
pub(crate) struct FeedState {
    pub(crate) settings: watch::Receiver<Arc<FeedSettings>>,
    pub(crate) table: Arc<dyn FeedTable>,
    pub(crate) positions: Positions,
    pub(crate) requests: Arc<Requests>,
    pub(crate) memory: AnswerMemory,
    /// The largest number of simultaneous requests that the descriptors of the process allow.
    pub(crate) most_requests: usize,
    /// Canceled when the daemon stops. Waiting requests are then answered at once.
    pub(crate) stop: CancellationToken,
    /// Whether clients connect to a Unix socket.
    pub(crate) is_local: bool,
}

impl FeedState {
    /// The settings in force.
    pub(crate) fn settings(&self) -> Arc<FeedSettings> {
        self.settings.borrow().clone()
    }

    /// Waits for an answer of the table.
    pub(crate) async fn of_table<T>(&self, answer: impl Future<Output = Result<T, FeedError>>) -> Result<T, Problem> {
        match timeout(TABLE_TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|error| Problem::of_table(&error)),
            Err(_) => Err(Problem::of_table(&FeedError("it did not answer in time".into()))),
        }
    }

    /// Reserves memory for the events of an answer.
    pub(crate) async fn reserve(&self, visitor: Visitor, bytes: usize) -> Result<ReservedMemory, Problem> {
        let consumer = visitor.consumer(&self.settings())?.map(|consumer| consumer.name.clone());
        let reserved = timeout(TABLE_TIMEOUT, self.memory.reserve(consumer, bytes)).await;
        reserved.map_err(|_| Problem::busy("other answers use all memory of the feed: try again"))
    }

    /// Reads the events after a position.
    pub(crate) async fn page(&self, request: &PageRequest) -> Result<Page, Problem> {
        let mut memory = self.reserve(request.visitor, request.max_bytes).await?;
        let PageRequest { channel, after, limit, .. } = request;
        let max_bytes = request.max_bytes.min(self.memory.max_page());
        let page = self.of_table(self.table.page(channel.id, *after, *limit, max_bytes)).await?;
        check_position(*after, &page)?;
        check_records(&page.events).map_err(|error| Problem::of_table(&error))?;
        memory.shrink_to(size(&page.events));
        Ok(Page { events: page.events, memory })
    }

    /// Returns the position after which a client reads that does not give a position: all events are newer.
    pub(crate) async fn before_oldest(&self, channel: &FeedChannel) -> Result<i64, Problem> {
        let position = self.of_table(self.table.newest(channel.id)).await?;
        Ok(lowest(position.oldest, position.newest) - 1)
    }

    /// Waits for events after the position. Returns without events at the deadline, and when the daemon stops. Fails if the client
    /// loses its access meanwhile.
    pub(crate) async fn page_before(&self, request: &PageRequest, deadline: Instant) -> Result<Page, Problem> {
        let mut changes = self.table.changes();
        changes.mark_unchanged();
        let mut page = self.page(request).await?;
        while page.events.is_empty() && self.wait(request, &mut changes, deadline).await? {
            page = self.page(request).await?;
        }
        Ok(page)
    }

    /// Waits until the channel has an event after the position. Returns false at the deadline, and when the daemon stops.
    pub(crate) async fn wait(
        &self,
        request: &PageRequest,
        changes: &mut watch::Receiver<u64>,
        deadline: Instant,
    ) -> Result<bool, Problem> {
        loop {
            let has_changed = self.changed(changes, deadline).await;
            request.visitor.channel(&self.settings(), &request.channel.name)?;
            if !has_changed {
                return Ok(false);
            }
            let change = *changes.borrow_and_update();
            let position = self.of_table(self.positions.after_change(change, request.channel.id)).await?;
            if position.newest > request.after {
                return Ok(true);
            }
        }
    }

    /// Waits for a change of the table. Returns false at the deadline, when the daemon stops, and if the settings change: the caller
    /// then checks the access of its client.
    pub(crate) async fn changed(&self, changes: &mut watch::Receiver<u64>, deadline: Instant) -> bool {
        let mut settings = self.settings.clone();
        settings.mark_unchanged();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = sleep_until(deadline) => false,
            Ok(()) = settings.changed() => false,
            Ok(()) = changes.changed() => true,
            else => false,
        }
    }
}

/// A request for a page of events.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) visitor: Visitor,
    pub(crate) channel: FeedChannel,
    pub(crate) after: i64,
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
}

impl PageRequest {
    /// Logs that the client misses events, if this is the problem.
    pub(crate) fn note(&self, problem: &Problem) {
        if let Some(oldest) = problem.oldest() {
            let (channel, after) = (&*self.channel.name, self.after);
            warn!(channel, after, oldest, "a client of the feed reads at a position whose events were deleted");
        }
    }
}

/// Events, with the memory that they use.
pub(crate) struct Page {
    pub(crate) events: Vec<FeedEvent>,
    pub(crate) memory: ReservedMemory,
}

/// The lowest position that can be read, now or later.
pub(crate) fn lowest(oldest: Option<i64>, newest: i64) -> i64 {
    oldest.unwrap_or(newest.saturating_add(1))
}

/// Refuses a position whose next event was deleted, and a position that no event has had. The latter means that the table was
/// restored from a backup or created again: the client would miss the events up to its position.
fn check_position(after: i64, page: &FeedPage) -> Result<(), Problem> {
    let oldest = lowest(page.oldest, page.newest);
    if after < oldest - 1 {
        return Err(Problem::gone(oldest));
    }
    if after > page.newest {
        let newest = page.newest;
        return Err(Problem::invalid(format!(
            "the position {after} does not exist: the newest position of the channel is {newest}. If the client has received {after} from this feed, the table was restored from a backup or created again"
        )));
    }
    Ok(())
}

/// Checks that a position can be added to each record.
pub(crate) fn check_records(events: &[FeedEvent]) -> Result<(), FeedError> {
    match events.iter().find(|event| !event.record.trim_start().starts_with('{')) {
        None => Ok(()),
        Some(event) => Err(FeedError(format!("the record at position {} is not a JSON object", event.position).into())),
    }
}

/// The size of the records, in bytes.
pub(crate) fn size(events: &[FeedEvent]) -> usize {
    events.iter().map(|event| event.record.len()).sum()
}
