//! channeld reads the verified events of channels and hands them on: nothing forged, nothing lost.

pub mod api;
pub mod event;
pub mod record;
pub mod retry;
pub mod sink;
pub mod state;
pub mod verify;
