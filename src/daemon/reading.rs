//! Reads configurations again, and records the rejected ones.
//!
//! # Invariants
//!
//! * **A rejected file stays reported until it is accepted.** The secrets of the configuration in force are read without
//!   reading the operator's file, so reading them successfully says nothing about that file.
//! * **Rejected files are not read all the time.** Each reading runs the programs that print secrets.

use std::future::pending;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::assembly::StartError;
use crate::config::{Files, Loaded};
use net::retry::{Retry, RetryPolicy};
use operator::{RejectedConfig, Reloading};

/// The waits before rejected files are read again although they have not changed: a program that prints a secret can succeed later.
const SAME_FILES: RetryPolicy = RetryPolicy { wait: Duration::from_secs(10), max_wait: Duration::from_secs(5 * 60) };

/// A configuration that a blocking thread reads. Its files can be on a mount that hangs, so the daemon does not wait for it.
pub(super) struct Reading {
    /// The configuration, or `None` if no file has changed.
    pub(super) loaded: JoinHandle<Result<Option<Loaded>, StartError>>,
    /// The commands that wait for the outcome. `None` if the daemon itself looks for changed files.
    pub(super) replies: Option<Vec<Reloading>>,
}

/// Returns when the configuration is read. Does not return if none is being read. Safe to cancel.
pub(super) async fn read(reading: Option<&mut Reading>) -> Result<Option<Loaded>, StartError> {
    match reading {
        Some(Reading { loaded, .. }) => loaded.await?,
        None => pending().await,
    }
}

/// The files that the configuration in force names, and their last reading if it was rejected.
pub(super) struct FollowedFiles {
    /// The files as they were just before the last reading. `None` if they are those of the configuration in force.
    files: Option<Files>,
    /// The error of this reading, and when the same files are read again. `None` if the files were not rejected.
    rejected: Option<(String, Instant)>,
    waits: Retry,
}

impl Default for FollowedFiles {
    fn default() -> Self {
        Self { files: None, rejected: None, waits: Retry::new(SAME_FILES) }
    }
}

impl FollowedFiles {
    /// Calls `load` if a file has changed. Returns `None` if none has. If the same files were rejected recently, returns the error
    /// again. Blocks.
    pub(super) fn read<T>(
        &mut self,
        in_force: &Files,
        now: Instant,
        load: impl FnOnce() -> Result<T, StartError>,
    ) -> Result<Option<T>, StartError> {
        let files = in_force.again();
        if files == *in_force {
            *self = Self::default();
            return Ok(None);
        }
        let is_same = self.files.as_ref() == Some(&files);
        if let Some((error, again)) = self.rejected.as_ref().filter(|_| is_same)
            && now < *again
        {
            return Err(error.clone().into());
        }
        if !is_same {
            self.waits.reset();
        }
        (self.files, self.rejected) = (Some(files), None);
        load().map(Some)
    }

    /// Records that the files that were read last were rejected with this error.
    pub(super) fn rejected(&mut self, error: &str, now: Instant) {
        if self.rejected.is_none() {
            self.rejected = Some((error.to_owned(), now + self.waits.next_wait(None)));
        }
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
    fn rejected_files_are_read_again_when_they_change_or_after_a_growing_wait() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "1").unwrap();
        let mut in_force = Files::default();
        in_force.note(&file);
        let (mut followed, mut readings) = (FollowedFiles::default(), 0);
        let mut read = |followed: &mut FollowedFiles, now| {
            let before = readings;
            let outcome = followed.read(&in_force, now, || {
                readings += 1;
                Err::<(), _>("the vault is sealed".into())
            });
            let error = outcome.err().map(|error| error.to_string());
            if let Some(error) = &error {
                followed.rejected(error, now);
            }
            (readings > before, error.is_some())
        };
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(read(&mut followed, began), (false, false), "no file has changed");
        std::fs::write(&file, "22").unwrap();
        assert_eq!(read(&mut followed, began), (true, true));
        assert_eq!(read(&mut followed, began + 2 * second), (false, true), "the error stays");
        std::fs::write(&file, "333").unwrap();
        assert_eq!(read(&mut followed, began + 4 * second), (true, true), "the file has changed again");
        let later = began + 4 * second + SAME_FILES.max_wait;
        assert_eq!(read(&mut followed, later), (true, true), "a program can print the secret now");
        // The second wait is longer than the first one, in spite of the jitter.
        assert_eq!(read(&mut followed, later + SAME_FILES.wait * 3 / 2), (false, true));
        assert_eq!(read(&mut followed, later + SAME_FILES.max_wait), (true, true));
    }

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
