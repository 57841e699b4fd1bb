//! Delivering what was read: batches, the hub that feeds the lanes, and a lane for each sink.

pub(super) mod batch;
pub(super) mod hub;
pub(super) mod lane;
pub(super) mod lanes;
pub(super) mod upcoming;
