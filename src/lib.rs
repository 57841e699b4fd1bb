//! channeld reads the verified events of channels and hands them on: nothing forged, nothing lost.

pub mod api;
pub mod assembly;
pub mod channel;
pub mod cli;
pub mod config;
pub mod event;
pub mod http;
pub mod record;
pub mod retry;
pub mod signals;
pub mod simulator;
pub mod sink;
pub mod state;
pub mod supervisor;
pub mod telemetry;
pub mod verify;
