//! Reads a channel: finds where to begin, reads ranges without gaps, and reads ahead of the deliveries.

pub(super) mod ahead;
pub(super) mod compare;
pub(super) mod first_event;
pub(super) mod gap_search;
pub(super) mod gaps;
pub(super) mod intake;
pub(super) mod reader;
pub(super) mod service;
pub(super) mod source;
pub(super) mod start;
