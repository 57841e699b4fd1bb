//! The table that the feed reads: its events in order of delivery, and the cursors of its consumers.

pub use sink::feed::{
    ChannelPosition, Committed, ConsumerState, FeedError, FeedEvent, FeedPage, FeedPosition, FeedTable, Leased,
    PageSize,
};
