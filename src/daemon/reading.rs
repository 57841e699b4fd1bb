//! Reads configurations again, and records the rejected ones.
//!
//! # Invariants
//!
//! * **A rejected file stays reported until it is accepted.** The secrets that the configuration in force names are read
//!   without the operator's file, so their success says nothing about that file.

use std::future::pending;

use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::assembly::StartError;
use crate::config::{ConfigError, Loaded};
use operator::{RejectedConfig, Reloading};

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

/// The configurations that were rejected, until they are accepted.
#[derive(Default)]
pub(super) struct Rejections {
    /// The operator's file, together with the files that it names.
    reload: Option<RejectedConfig>,
    /// Changed files that the configuration in force names.
    changed_files: Option<RejectedConfig>,
}

impl Rejections {
    /// Records that the operator's file was accepted, or rejected with this error.
    pub(super) fn reloaded(&mut self, error: Option<String>) {
        self.changed_files = None;
        replace(&mut self.reload, error);
    }

    /// Records that changed files were accepted, or rejected with this error. `None` also means that no file differs from
    /// the configuration in force. Returns whether the error is new.
    pub(super) fn followed(&mut self, error: Option<String>) -> bool {
        replace(&mut self.changed_files, error)
    }

    /// The rejection that the status shows.
    pub(super) fn shown(&self) -> Option<&RejectedConfig> {
        self.reload.as_ref().or(self.changed_files.as_ref())
    }
}

/// Replaces the recorded error. If the error is the same, keeps its time. Returns whether the error changed.
fn replace(recorded: &mut Option<RejectedConfig>, error: Option<String>) -> bool {
    if recorded.as_ref().map(|recorded| &recorded.error) == error.as_ref() {
        return false;
    }
    *recorded = error.map(|error| RejectedConfig { since: Timestamp::now(), error });
    recorded.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_time_and_only_an_accepted_file_ends_the_rejection_of_the_file() {
        let mut rejections = Rejections::default();
        rejections.reloaded(Some("a".to_owned()));
        let first = rejections.shown().cloned();
        rejections.reloaded(Some("a".to_owned()));
        assert!(first.is_some() && rejections.shown() == first.as_ref());

        assert!(rejections.followed(Some("b".to_owned())) && !rejections.followed(Some("b".to_owned())));
        assert!(!rejections.followed(None));
        assert_eq!(rejections.shown(), first.as_ref());

        rejections.followed(Some("b".to_owned()));
        rejections.reloaded(None);
        assert_eq!(rejections.shown(), None);
    }
}
