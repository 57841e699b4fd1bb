//! The one who writes: commits that arrive while another is being synced share the next sync.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::directory::DatabaseFiles;
use super::mirror::{Contents, Mirror};
use super::store::Store;
use super::writes::Writes;
use super::{Commit, StateError};

/// A commit, and whom to tell that it is on disk.
pub(super) type Request = (Commit, oneshot::Sender<Result<(), StateError>>);

/// Commits that share one transaction at the most.
pub(super) const GROUP: usize = 64;

/// What the database itself does not do for a commit to be on disk.
pub(super) trait Durable: Send {
    fn sync(&mut self, store: &Store) -> Result<(), StateError>;
}

/// The database's files, and then the mirror.
pub(super) struct Files {
    pub(super) database: DatabaseFiles,
    pub(super) mirror: Mirror,
}

impl Files {
    fn mirror(&self, store: &Store) -> Result<(), StateError> {
        self.mirror.write(&Contents { cursors: store.cursors()?, late: store.all_late()? })
    }
}

impl Durable for Files {
    fn sync(&mut self, store: &Store) -> Result<(), StateError> {
        self.database.sync()?;
        self.mirror(store)
    }
}

pub(super) struct Committer {
    store: Store,
    disk: Box<dyn Durable>,
    /// What is on disk after a write that failed is unknown: it was the last.
    failed: Option<StateError>,
    writes: Arc<Writes>,
}

impl Committer {
    /// Writes the mirror once, so that there is one from the first moment on.
    pub(super) fn new(store: Store, files: Files) -> Result<Self, StateError> {
        files.mirror(&store).inspect_err(|_| store.abandon())?;
        Ok(Self::over(store, Box::new(files)))
    }

    pub(super) fn over(store: Store, disk: Box<dyn Durable>) -> Self {
        Self { store, disk, failed: None, writes: Arc::default() }
    }

    /// How the writing goes.
    pub(super) fn writes(&self) -> Arc<Writes> {
        self.writes.clone()
    }

    /// Serves until every sender is gone.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(first) = requests.blocking_recv() {
            let (commits, waiting): (Vec<_>, Vec<_>) = group(first, &mut requests).into_iter().unzip();
            answer(waiting, self.write(&commits));
        }
    }

    /// Makes commits durable, each with its own outcome. Nothing follows a failure: neither the mirror, which would be
    /// ahead of the database, nor another commit.
    pub(super) fn write(&mut self, commits: &[Commit]) -> Vec<Result<(), StateError>> {
        self.writes.clone().watch(|| self.write_unwatched(commits))
    }

    fn write_unwatched(&mut self, commits: &[Commit]) -> Vec<Result<(), StateError>> {
        if let Some(failed) = &self.failed {
            return vec![Err(failed.clone()); commits.len()];
        }
        let applied = self.apply(commits);
        let refused = |outcome: &Result<(), StateError>| matches!(outcome, Err(StateError::Backwards { .. }));
        let failed = applied.iter().find(|outcome| outcome.is_err() && !refused(outcome));
        let durable = match failed {
            Some(failed) => failed.clone(),
            None => self.disk.sync(&self.store),
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
}

/// A request, and those that have arrived behind it.
pub(super) fn group(first: Request, requests: &mut mpsc::Receiver<Request>) -> Vec<Request> {
    let mut group = vec![first];
    while group.len() < GROUP
        && let Ok(next) = requests.try_recv()
    {
        group.push(next);
    }
    group
}

pub(super) fn answer(waiting: Vec<oneshot::Sender<Result<(), StateError>>>, written: Vec<Result<(), StateError>>) {
    for (done, written) in waiting.into_iter().zip(written) {
        // Nobody waits any more where a lane was stopped; the commit stands all the same.
        let _ = done.send(written);
    }
}
