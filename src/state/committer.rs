//! The one thread that writes: commits that arrive while another is being synced share the next sync.

use tokio::sync::{mpsc, oneshot};

use super::directory::DatabaseFiles;
use super::mirror::{Contents, Mirror};
use super::store::Store;
use super::{Commit, StateError};

/// A commit, and whom to tell that it is on disk.
pub(super) type Request = (Commit, oneshot::Sender<Result<(), StateError>>);

/// Commits that share one transaction at the most.
pub(super) const GROUP: usize = 64;

pub(super) struct Committer {
    store: Store,
    files: DatabaseFiles,
    mirror: Mirror,
    /// What is on disk after a write that failed is unknown: it was the last.
    failed: Option<StateError>,
}

impl Committer {
    /// Writes the mirror once, so that there is one from the first moment on.
    pub(super) fn new(store: Store, files: DatabaseFiles, mirror: Mirror) -> Result<Self, StateError> {
        let committer = Self { store, files, mirror, failed: None };
        committer.mirror().inspect_err(|_| committer.store.abandon())?;
        Ok(committer)
    }

    /// Serves until every sender is gone.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(first) = requests.blocking_recv() {
            let mut group = vec![first];
            while group.len() < GROUP
                && let Ok(next) = requests.try_recv()
            {
                group.push(next);
            }
            self.serve(group);
        }
    }

    fn serve(&mut self, group: Vec<Request>) {
        let (commits, waiting): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let written = self.write(&commits);
        for (done, written) in waiting.into_iter().zip(written) {
            // Nobody waits any more where a lane was stopped; the commit stands all the same.
            let _ = done.send(written);
        }
    }

    /// Makes commits durable, each with its own outcome. Nothing follows a failure: neither the mirror, which would be
    /// ahead of the database, nor another commit.
    fn write(&mut self, commits: &[Commit]) -> Vec<Result<(), StateError>> {
        if let Some(failed) = &self.failed {
            return vec![Err(failed.clone()); commits.len()];
        }
        let applied = self.apply(commits);
        let refused = |outcome: &Result<(), StateError>| matches!(outcome, Err(StateError::Backwards { .. }));
        let failed = applied.iter().find(|outcome| outcome.is_err() && !refused(outcome));
        let durable = match failed {
            Some(failed) => failed.clone(),
            None => self.sync(),
        };
        if let Err(failed) = &durable {
            self.failed = Some(failed.clone());
            self.store.abandon();
            return vec![durable; commits.len()];
        }
        applied
    }

    /// All in one transaction; where one of them is refused, each on its own, so that it fails alone.
    fn apply(&self, commits: &[Commit]) -> Vec<Result<(), StateError>> {
        match self.store.apply(commits) {
            Err(StateError::Backwards { .. }) if commits.len() > 1 => {
                commits.iter().map(|commit| self.store.apply(std::slice::from_ref(commit))).collect()
            }
            result => vec![result; commits.len()],
        }
    }

    fn sync(&mut self) -> Result<(), StateError> {
        self.files.sync()?;
        self.mirror()
    }

    fn mirror(&self) -> Result<(), StateError> {
        self.mirror.write(&Contents { cursors: self.store.cursors()?, late: self.store.all_late()? })
    }
}
