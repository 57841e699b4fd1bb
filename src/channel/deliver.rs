//! Delivers the events that were read: batches, the hub that feeds the lanes, and one lane per sink.

pub(super) mod batch;
pub(super) mod hub;
pub(super) mod lane;
pub(super) mod lanes;
pub(super) mod upcoming;
