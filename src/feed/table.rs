//! The table that the feed reads: its events in order of delivery, and the cursors of its consumers.

#[cfg(test)]
pub(crate) use sink::feed::ConsumerState;
pub use sink::feed::{Committed, FeedError, FeedEvent, FeedPage, FeedPosition, FeedTable, Leased};
