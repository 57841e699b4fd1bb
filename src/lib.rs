//! channeld reads the verified events of channels and hands them on: nothing forged, nothing lost.

pub mod api;
pub mod cli;
pub mod event;
pub mod record;
pub mod sink;
pub mod verify;
