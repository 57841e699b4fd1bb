//! The state that all requests share: the table and the settings in force, and the limits.
//!
//! # Invariants
//!
//! * **A reload replaces settings and table together.** A request that waits then ends its wait, and a stream checks its access and
//!   continues with the new table.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use net::Chain;
use operator::feed::FeedHandle;

use crate::access::Visitor;
use crate::problem::Problem;
use crate::settings::{FeedChannel, FeedSettings};
use crate::table::{FeedError, FeedEvent, FeedPage, FeedTable, PageSize};

pub(crate) mod limits;
pub(crate) mod positions;

use limits::{AnswerMemory, Requests, ReservedMemory};
use positions::Positions;

/// How long a request can wait for the table, or for memory.
pub(crate) const TABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The table that is served, and the settings. A reload can replace both while the feed serves.
pub struct Served {
    pub(crate) settings: FeedSettings,
    pub(crate) table: Arc<dyn FeedTable>,
    pub(crate) positions: Positions,
}

impl Served {
    /// Serves a table with these settings.
    pub fn new(settings: FeedSettings, table: Arc<dyn FeedTable>) -> Self {
        Self { settings, positions: Positions::new(table.clone()), table }
    }

    /// Serves the same table with other settings.
    #[must_use]
    pub fn with(&self, settings: FeedSettings) -> Self {
        Self::new(settings, self.table.clone())
    }
}

/// The state that all requests share.
pub(crate) struct FeedState {
    pub(crate) served: watch::Receiver<Arc<Served>>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) memory: AnswerMemory,
    /// The largest number of simultaneous requests that the descriptors of the process allow.
    pub(crate) most_requests: usize,
    /// Canceled when the daemon stops. Waiting requests are then answered at once.
    pub(crate) stop: CancellationToken,
    /// Whether clients connect to a Unix socket.
    pub(crate) is_local: bool,
    /// Where requests are counted for operators.
    pub(crate) operators: FeedHandle,
}

impl FeedState {
    /// The table and the settings in force.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.borrow().clone()
    }

    /// Logs and counts that the client misses events, if this is the problem.
    pub(crate) fn note(&self, request: &EventRange, problem: &Problem) {
        if let Some(oldest) = problem.oldest() {
            let (channel, after) = (&*request.channel.name, request.after);
            warn!(channel, after, oldest, "a client of the feed reads at a position whose events were deleted");
            self.operators.gone(channel);
        }
    }

    /// Begins to watch for changes. A change after this call is not missed.
    pub(crate) fn changes(&self) -> ChangeSignals {
        let mut reloads = self.served.clone();
        let served = reloads.borrow_and_update().clone();
        let mut table = served.table.changes();
        table.mark_unchanged();
        ChangeSignals { served, table, reloads }
    }

    /// Waits for an answer of the table.
    pub(crate) async fn of_table<T>(&self, answer: impl Future<Output = Result<T, FeedError>>) -> Result<T, Problem> {
        match timeout(TABLE_TIMEOUT, answer).await {
            Ok(answer) => answer.map_err(|error| Problem::of_table(Chain(&error))),
            Err(_) => Err(Problem::of_table("the table did not answer in time")),
        }
    }

    /// Reserves memory for the events of an answer.
    pub(crate) async fn reserve(&self, visitor: Visitor, bytes: usize) -> Result<ReservedMemory, Problem> {
        let consumer = visitor.consumer(&self.served().settings)?.map(|consumer| consumer.name.clone());
        let reserved = timeout(TABLE_TIMEOUT, self.memory.reserve(consumer, bytes)).await;
        reserved.map_err(|_| Problem::busy("other answers use all memory of the feed: try again"))
    }

    /// Reads the events after a position.
    pub(crate) async fn page(&self, request: &EventRange) -> Result<EventPage, Problem> {
        let EventRange { visitor, channel, after, limit, .. } = request;
        let most = PageSize { events: *limit, bytes: request.max_bytes.min(self.memory.max_page()) };
        let mut needed = most.bytes;
        loop {
            let mut memory = self.reserve(*visitor, needed).await?;
            let page = self.of_table(self.served().table.page(channel.id, *after, most)).await?;
            check_position(*after, &page)?;
            check_records(&page.events)?;
            let size = size(&page.events).min(self.memory.most());
            if size <= needed {
                memory.shrink_to(size);
                return Ok(EventPage { events: page.events, memory });
            }
            // A single record is larger than `most.bytes`. It is read again when memory for it is reserved.
            needed = size;
        }
    }

    /// Returns the position after which a client reads that gives no position.
    pub(crate) async fn before_oldest(&self, channel: &FeedChannel) -> Result<i64, Problem> {
        let position = self.of_table(self.served().table.newest(channel.id)).await?;
        Ok(position.before_oldest())
    }

    /// Waits for events after the position. Returns without events at the deadline, and when the daemon stops. Fails if the client
    /// loses its access meanwhile.
    pub(crate) async fn page_before(&self, request: &EventRange, deadline: Instant) -> Result<EventPage, Problem> {
        let mut changes = self.changes();
        let mut page = self.page(request).await?;
        while page.events.is_empty() && self.wait(request, &mut changes, deadline).await? {
            page = self.page(request).await?;
        }
        Ok(page)
    }

    /// Waits until the position of the request is not the newest one of the channel. It is above the newest one if the table was
    /// restored: reading the page then reports the problem. Returns false at the deadline, when the daemon stops, and after a reload.
    pub(crate) async fn wait(
        &self,
        request: &EventRange,
        changes: &mut ChangeSignals,
        deadline: Instant,
    ) -> Result<bool, Problem> {
        let newest = self.newest_except(Some(request.after), request.channel.id, changes, deadline).await;
        request.visitor.check(&self.served().settings, &request.channel)?;
        Ok(newest?.is_some())
    }

    /// Waits until the newest position of a channel is not `known`, and returns it. Returns `None` at the deadline, when the daemon
    /// stops, and after a reload.
    pub(crate) async fn newest_except(
        &self,
        known: Option<i64>,
        channel: Uuid,
        changes: &mut ChangeSignals,
        deadline: Instant,
    ) -> Result<Option<i64>, Problem> {
        while self.changed(changes, deadline).await {
            let newest = Some(self.newest(channel, changes).await?);
            if newest != known {
                return Ok(newest);
            }
        }
        Ok(None)
    }

    /// Returns the newest position of a channel, read after the changes until now.
    pub(crate) async fn newest(&self, channel: Uuid, changes: &mut ChangeSignals) -> Result<i64, Problem> {
        let change = *changes.table.borrow_and_update();
        Ok(self.of_table(changes.served.positions.after_change(change, channel)).await?.newest)
    }

    /// Waits for a change of the table. Returns false at the deadline, when the daemon stops, and after a reload: the caller then
    /// checks the access of its client.
    pub(crate) async fn changed(&self, changes: &mut ChangeSignals, deadline: Instant) -> bool {
        let _waiting = self.operators.begin_wait();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = sleep_until(deadline) => false,
            Ok(()) = changes.reloads.changed() => {
                *changes = self.changes();
                // The request may not have seen the last changes of the table.
                changes.table.mark_changed();
                false
            }
            Ok(()) = changes.table.changed() => true,
        }
    }
}

/// Tells a waiting request about new rows and about reloads.
pub(crate) struct ChangeSignals {
    /// The table whose changes are watched. After a reload, it is the old one until the request has seen the reload: the numbers
    /// of the changes of two tables are not comparable.
    served: Arc<Served>,
    table: watch::Receiver<u64>,
    reloads: watch::Receiver<Arc<Served>>,
}

/// A request for a page of events.
#[derive(Clone, Debug)]
pub(crate) struct EventRange {
    pub(crate) visitor: Visitor,
    pub(crate) channel: FeedChannel,
    pub(crate) after: i64,
    pub(crate) limit: usize,
    pub(crate) max_bytes: usize,
}

/// Events, with the memory that they use.
pub(crate) struct EventPage {
    pub(crate) events: Vec<FeedEvent>,
    pub(crate) memory: ReservedMemory,
}

/// Refuses a position whose next event was deleted, and a position that no event has had. The latter means that the table was
/// restored from a backup or created again: the client would miss the events up to its position. While a table is restored, it has
/// no positions at all, so the client tries again.
fn check_position(after: i64, page: &FeedPage) -> Result<(), Problem> {
    if let Some(oldest) = page.gone {
        return Err(Problem::gone(oldest));
    }
    let newest = page.position.newest;
    if after > newest && newest == 0 {
        return Err(Problem::busy(
            "the table has no events of the channel at the moment, for example because it is being restored: try again",
        ));
    }
    if after > newest {
        return Err(Problem::invalid(format!(
            "the position {after} does not exist: the newest position of the channel is {newest}. If the client has received {after} from this feed, the table was restored from a backup or created again"
        )));
    }
    Ok(())
}

/// Checks that a position can be added to each record.
pub(crate) fn check_records(events: &[FeedEvent]) -> Result<(), Problem> {
    match events.iter().find(|event| !event.record.trim_start().starts_with('{')) {
        None => Ok(()),
        Some(event) => {
            Err(Problem::of_table(format_args!("the record at position {} is not a JSON object", event.position)))
        }
    }
}

/// The size of the records, in bytes.
pub(crate) fn size(events: &[FeedEvent]) -> usize {
    events.iter().map(|event| event.record.len()).sum()
}
