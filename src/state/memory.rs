//! A state in memory, for tests: the same commits by the same rules, on a disk that outlives the state, without a thread,
//! and with hands on every write.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::committer::{Committer, Durable, Request, answer, group};
use super::store::Store;
use super::trees::{Aborted, Change, Database, See, Tree, Trees};
use super::{Commit, QUEUE, State, StateError, Writer};

type Key = (Tree, Vec<u8>);

/// What is left when a state is gone, however it went.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    entries: Mutex<BTreeMap<Key, Bytes>>,
}

impl Disk {
    /// Forgets everything: a state whose write failed is never dropped, and its disk with it.
    pub(crate) fn clear(&self) {
        self.entries.lock().unwrap().clear();
    }
}

/// What comes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// It is on disk.
    Done,
    /// It fails, and nothing of it is on disk.
    Lost,
    /// It is on disk, but its sync fails.
    Unsynced,
}

/// Is asked about every write, and may keep it waiting.
#[async_trait]
pub(crate) trait Gate: Send + Sync + fmt::Debug {
    /// Before anything of it is on disk.
    async fn before(&self, commits: &[Commit]) -> Write;

    /// Before it is answered.
    async fn after(&self, commits: &[Commit]);
}

impl State {
    /// The state on `disk`. Its commits are written by a task of the runtime that this is called in.
    pub(crate) fn in_memory(disk: &Arc<Disk>, gate: Arc<dyn Gate>) -> Self {
        let fate = Arc::new(Mutex::new(Write::Done));
        let database = InMemory { disk: disk.clone(), fate: fate.clone() };
        let store = Store::over(Arc::new(database)).unwrap();
        let committer = Committer::over(store.clone(), Box::new(NoSync(fate.clone())));
        let writes = committer.writes();
        let (commits, requests) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(committer, fate, requests, gate));
        Self { store: Some(store), commits, writer: Writer::Task(tasks), writes }
    }
}

async fn serve(
    mut committer: Committer,
    fate: Arc<Mutex<Write>>,
    mut requests: mpsc::Receiver<Request>,
    gate: Arc<dyn Gate>,
) {
    while let Some(first) = requests.recv().await {
        let (commits, waiting): (Vec<_>, Vec<_>) = group(first, &mut requests).into_iter().unzip();
        let write = gate.before(&commits).await;
        *fate.lock().unwrap() = write;
        let written = committer.write(&commits);
        gate.after(&commits).await;
        answer(waiting, written);
    }
}

#[derive(Debug)]
struct InMemory {
    disk: Arc<Disk>,
    /// What comes of the write in hand.
    fate: Arc<Mutex<Write>>,
}

struct NoSync(Arc<Mutex<Write>>);

impl Durable for NoSync {
    fn sync(&mut self, _: &Store) -> Result<(), StateError> {
        if *self.0.lock().unwrap() == Write::Unsynced { Err(failed()) } else { Ok(()) }
    }
}

fn failed() -> StateError {
    StateError::Database { doing: "writing", message: "as the test says".to_owned() }
}

impl Database for InMemory {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        Ok(self.disk.entries.lock().unwrap().get(&(tree, key.to_vec())).cloned())
    }

    fn scan(&self, tree: Tree, prefix: &[u8], see: &mut See<'_>) -> Result<(), StateError> {
        let of_prefix = |key: &Key| key.0 == tree && key.1.starts_with(prefix);
        let entries = self.disk.entries.lock().unwrap();
        let from = entries.range((tree, prefix.to_vec())..).take_while(|(key, _)| of_prefix(key));
        let found: Vec<_> = from.map(|((_, key), value)| (key.clone(), value.clone())).collect();
        drop(entries);
        found.iter().try_for_each(|(key, value)| see(key, value))
    }

    fn transact(&self, change: &Change<'_>) -> Result<(), StateError> {
        if *self.fate.lock().unwrap() == Write::Lost {
            return Err(failed());
        }
        let transaction = Transaction { of: self, changed: RefCell::default() };
        match change(&transaction) {
            Ok(()) => {}
            Err(Aborted::Failed(error)) => return Err(error),
            Err(Aborted::Conflict) => unreachable!("one transaction at a time"),
        }
        let mut entries = self.disk.entries.lock().unwrap();
        for (key, value) in transaction.changed.into_inner() {
            match value {
                Some(value) => entries.insert(key, value),
                None => entries.remove(&key),
            };
        }
        Ok(())
    }
}

struct Transaction<'d> {
    of: &'d InMemory,
    changed: RefCell<BTreeMap<Key, Option<Bytes>>>,
}

impl Trees for Transaction<'_> {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Bytes>, Aborted> {
        match self.changed.borrow().get(&(tree, key.to_vec())) {
            Some(changed) => Ok(changed.clone()),
            None => Ok(self.of.get(tree, key)?),
        }
    }

    fn insert(&self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), Aborted> {
        self.changed.borrow_mut().insert((tree, key.to_vec()), Some(Bytes::copy_from_slice(value)));
        Ok(())
    }

    fn remove(&self, tree: Tree, key: &[u8]) -> Result<bool, Aborted> {
        let there = self.get(tree, key)?.is_some();
        self.changed.borrow_mut().insert((tree, key.to_vec()), None);
        Ok(there)
    }
}

mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::event::{ChannelId, Offset};
    use crate::state::{Cursor, LaneKey};

    /// Does with each write what it is told in turn; nothing after that.
    #[derive(Debug)]
    struct Told(Mutex<Vec<Write>>);

    #[async_trait]
    impl Gate for Told {
        async fn before(&self, _: &[Commit]) -> Write {
            self.0.lock().unwrap().pop().unwrap_or(Write::Done)
        }

        async fn after(&self, _: &[Commit]) {}
    }

    fn lane() -> LaneKey {
        LaneKey { channel: ChannelId(Uuid::from_u128(7)), sink: "a".into() }
    }

    fn moved(to: i64) -> Commit {
        Commit { cursor: Some((lane(), at(to))), ..Commit::default() }
    }

    fn at(value: i64) -> Cursor {
        Cursor { through: Offset::new(value) }
    }

    #[tokio::test]
    async fn what_is_committed_outlives_the_state_and_what_failed_is_final() {
        for (write, left) in [(Write::Lost, at(5)), (Write::Unsynced, at(6))] {
            let disk = Arc::new(Disk::default());
            let state = State::in_memory(&disk, Arc::new(Told(Mutex::new(vec![write, Write::Done]))));
            state.commit(moved(5)).await.unwrap();

            assert!(matches!(state.commit(moved(6)).await, Err(StateError::Database { .. })), "{write:?}");
            assert!(matches!(state.commit(moved(7)).await, Err(StateError::Database { .. })), "{write:?}");
            drop(state);

            let state = State::in_memory(&disk, Arc::new(Told(Mutex::default())));
            assert_eq!(state.lane(&lane()).unwrap().cursor, Some(left), "{write:?}");
            assert!(matches!(state.commit(moved(4)).await, Err(StateError::Backwards { .. })));
            state.commit(moved(7)).await.unwrap();
        }
    }
}
