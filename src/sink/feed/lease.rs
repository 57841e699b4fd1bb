//! The protocol of a lease, for every database.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{FeedError, FeedEvent, FeedTable, Leased, PageSize};
use crate::SinkError;

/// How often a request starts again because another request changed the cursor in between. Each time, the other request has
/// succeeded.
const ATTEMPTS: usize = 3;

/// A consumer in one channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerRef<'a> {
    pub(crate) consumer: &'a str,
    pub(crate) channel: Uuid,
}

/// A consumer's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    pub(crate) through: i64,
    /// Whether a lease is valid now.
    pub(crate) is_leased: bool,
}

/// A lease to be taken.
#[derive(Clone, Debug)]
pub(crate) struct NewLease {
    /// The lease is taken only if the cursor still has this position.
    pub(crate) after: i64,
    pub(crate) through: i64,
    pub(crate) lease: String,
    pub(crate) valid: Duration,
}

/// The statements of a database that leases need.
#[async_trait]
pub(crate) trait LeaseStore: FeedTable {
    async fn cursor(&self, of: ConsumerRef<'_>) -> Result<Option<Cursor>, SinkError>;

    /// Takes a lease with one statement, unless another lease is valid or the cursor has moved. A consumer without a cursor
    /// gets one. Returns whether the lease was taken.
    async fn take(&self, of: ConsumerRef<'_>, lease: &NewLease) -> Result<bool, SinkError>;
}

pub(crate) async fn lease(
    store: &impl LeaseStore,
    of: ConsumerRef<'_>,
    most: PageSize,
    valid: Duration,
) -> Result<Leased, FeedError> {
    for _ in 0..ATTEMPTS {
        let cursor = store.cursor(of).await?;
        if cursor.is_some_and(|cursor| cursor.is_leased) {
            return Ok(Leased::Held);
        }
        let after = cursor.map_or(0, |cursor| cursor.through);
        let mut page = store.page(of.channel, after, most).await?;
        if after > page.position.newest {
            // The table is being restored, or was restored from a backup. The next delivery moves the cursor back, so that the
            // consumer receives all events that get positions again.
            return Ok(Leased::Nothing);
        }
        if let Some(oldest) = page.gone {
            if cursor.is_some() {
                return Ok(Leased::Gone { oldest });
            }
            // A consumer without a cursor begins with the oldest event.
            page = store.page(of.channel, oldest - 1, most).await?;
        }
        let (Some(first), Some(last)) = (page.events.first(), page.events.last()) else { return Ok(Leased::Nothing) };
        let after = cursor.map_or(first.position - 1, |cursor| cursor.through);
        let new = NewLease { after, through: last.position, lease: Uuid::new_v4().to_string(), valid };
        if store.take(of, &new).await? {
            return Ok(Leased::Events { lease: new.lease, expires_in: valid, events: page.events });
        }
    }
    Ok(Leased::Held)
}

/// Returns the cursor that an operator sets, at least 0.
///
/// # Errors
/// [`FeedError::TooHigh`], or the error of the table.
pub(crate) async fn checked_cursor(table: &impl FeedTable, channel: Uuid, through: i64) -> Result<i64, FeedError> {
    let newest = table.newest(channel).await?.newest;
    if through > newest {
        return Err(FeedError::TooHigh { through, newest });
    }
    Ok(through.max(0))
}

/// Tells of each event in turn whether it belongs to a page of at most `max_bytes`. The first event always does.
pub(crate) fn fitting(max_bytes: usize) -> impl FnMut(&FeedEvent) -> bool {
    let (mut bytes, mut is_first) = (0_usize, true);
    move |event: &FeedEvent| {
        bytes = bytes.saturating_add(event.record.len());
        std::mem::take(&mut is_first) || bytes <= max_bytes
    }
}
