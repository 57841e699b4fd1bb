//! Shares the positions of channels among the requests that wait for events.
//!
//! A delivery to any channel wakes every waiting request. The first of them reads the positions of its channel, and the others that
//! wait for the same channel use the result. The number of queries therefore does not grow with the number of waiting requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use net::tasks::lock;

use crate::table::{FeedError, FeedPosition, FeedTable};

/// The positions of one channel, and the number of the change after which they were read.
type Known = Arc<tokio::sync::Mutex<Option<(u64, FeedPosition)>>>;

pub(crate) struct Positions {
    table: Arc<dyn FeedTable>,
    known: Mutex<HashMap<Uuid, Known>>,
}

impl Positions {
    pub(crate) fn new(table: Arc<dyn FeedTable>) -> Self {
        Self { table, known: Mutex::default() }
    }

    /// Returns the positions of a channel, read after the change with this number.
    pub(crate) async fn after_change(&self, change: u64, channel: Uuid) -> Result<FeedPosition, FeedError> {
        let known = lock(&self.known).entry(channel).or_default().clone();
        let mut known = known.lock().await;
        if let Some((_, position)) = known.filter(|(read_after, _)| *read_after >= change) {
            return Ok(position);
        }
        let position = self.table.newest(channel).await?;
        *known = Some((change, position));
        Ok(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::memory_table::MemoryTable;

    #[tokio::test]
    async fn requests_that_wait_for_one_channel_share_one_query() {
        let (table, channel) = (Arc::new(MemoryTable::default()), Uuid::from_u128(1));
        let positions = Positions::new(table.clone());
        table.deliver(channel, 1);
        for _ in 0..10 {
            assert_eq!(positions.after_change(1, channel).await.unwrap().newest, 1);
        }
        assert_eq!(table.newest_queries(), 1);
        table.deliver(channel, 1);
        assert_eq!(positions.after_change(2, channel).await.unwrap().newest, 2, "a change is noticed");
        assert_eq!(positions.after_change(2, Uuid::from_u128(2)).await.unwrap().newest, 0, "channels are separate");
        assert_eq!(table.newest_queries(), 3);
    }
}
