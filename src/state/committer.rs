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
}

impl Committer {
    /// Writes the mirror once, so that there is one from the first moment on.
    pub(super) fn new(store: Store, files: DatabaseFiles, mirror: Mirror) -> Result<Self, StateError> {
        let committer = Self { store, files, mirror };
        committer.mirror()?;
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
        let applied = self.apply(&commits);
        let durable = self.sync();
        for (done, applied) in waiting.into_iter().zip(applied) {
            // Nobody waits any more where a lane was stopped; the commit stands all the same.
            let _ = done.send(applied.and_then(|()| durable.clone()));
        }
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
