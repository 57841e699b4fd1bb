//! A configuration that is being read again.

use std::future::pending;

use tokio::task::JoinHandle;

use super::assembly::StartError;
use crate::config::{ConfigError, Loaded};
use operator::Reloading;

/// A configuration that a blocking thread reads. Its files can be on a mount that hangs, so the daemon does not wait for it.
pub(super) struct Reading {
    /// The configuration, or `None` if no file has changed.
    pub(super) loaded: JoinHandle<Result<Option<Loaded>, ConfigError>>,
    /// The commands that wait for the outcome. `None` if the daemon itself looks for changed files.
    pub(super) replies: Option<Vec<Reloading>>,
}

/// Returns when the configuration is read. Does not return if none is being read. Safe to cancel.
pub(super) async fn read(reading: Option<&mut Reading>) -> Result<Option<Loaded>, StartError> {
    match reading {
        Some(Reading { loaded, .. }) => Ok(loaded.await??),
        None => pending().await,
    }
}
