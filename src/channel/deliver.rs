//! Delivers the events that were read. Contains the batches, the hub that feeds the lanes, and one lane for each sink.

pub(super) mod batch;
pub(super) mod beyond;
pub(super) mod hub;
pub(super) mod lane;
pub(super) mod lanes;
pub(super) mod upcoming;
