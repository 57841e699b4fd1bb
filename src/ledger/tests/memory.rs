//! A store in memory, for tests: on a disk that outlives it, with a hand on every write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;

use crate::event::ChannelId;
use crate::ledger::{Effects, Entries, Key, Lease, Ledgers, Loss, Outcome, StateError, Store, Value};
use crate::tasks::lock;

/// What is left when a store is gone, however it went.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    entries: Mutex<BTreeMap<(ChannelId, Key), Bytes>>,
}

/// What comes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// It is on disk.
    Done,
    /// It fails, and nothing of it is on disk.
    Lost,
    /// It is on disk, but the store says that it is not known to be.
    Unsynced,
    /// The store cannot be reached: it is tried again.
    Unavailable,
    /// Another has taken the channel over: nothing of it is on disk.
    Overtaken,
}

/// Is asked about every write, and may keep it waiting.
#[async_trait]
pub(crate) trait Gate: Send + Sync + fmt::Debug {
    /// Before anything of it is on disk.
    async fn before(&self, group: &[(Lease, Effects)]) -> Write;

    /// Before it is answered.
    async fn after(&self, group: &[(Lease, Effects)]);
}

/// The store.
#[derive(Debug)]
pub(crate) struct InMemory {
    disk: Arc<Disk>,
    gate: Arc<dyn Gate>,
}

impl Ledgers {
    /// Over a disk in memory.
    pub(crate) fn in_memory(disk: &Arc<Disk>, gate: Arc<dyn Gate>) -> Self {
        Self::over(Arc::new(InMemory { disk: disk.clone(), gate }))
    }
}

impl Disk {
    /// What there is of a channel, as a claim is given it.
    pub(crate) fn entries(&self, channel: ChannelId) -> Entries {
        let entries = self.lock();
        let of_channel = entries.iter().filter(|((of, _), _)| *of == channel);
        let entry = |((_, key), value): (&(ChannelId, Key), &Bytes)| (key.clone(), Value::of(key, value));
        of_channel.map(entry).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ChannelId, Key), Bytes>> {
        lock(&self.entries)
    }
}

#[async_trait]
impl Store for InMemory {
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Entries)>, StateError> {
        Ok(Some((Lease::for_ever(channel), self.disk.entries(channel))))
    }

    async fn entries(&self, channel: ChannelId) -> Result<Entries, StateError> {
        Ok(self.disk.entries(channel))
    }

    async fn commit(&self, group: Arc<Vec<(Lease, Effects)>>) -> Vec<Outcome> {
        let write = self.gate.before(&group).await;
        if matches!(write, Write::Done | Write::Unsynced) {
            let mut entries = self.disk.lock();
            for (lease, effects) in &*group {
                for (key, value) in &effects.changes {
                    let key = (lease.channel, key.clone());
                    match value {
                        Some(value) => entries.insert(key, value.clone()),
                        None => entries.remove(&key),
                    };
                }
            }
        }
        self.gate.after(&group).await;
        let error = || StateError::io("writing", std::io::Error::other("as the test says"));
        let outcome = |_| match write {
            Write::Done => Outcome::Ok,
            Write::Lost | Write::Unsynced => Outcome::Fatal(error()),
            Write::Unavailable => Outcome::Unavailable(error()),
            Write::Overtaken => Outcome::Lost(Loss::Overtaken),
        };
        group.iter().map(outcome).collect()
    }

    async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError> {
        Ok(self.disk.lock().get(&(channel, key)).cloned())
    }

    async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        Ok(self.disk.lock().keys().map(|(channel, _)| *channel).collect())
    }

    async fn check(&self) -> Result<(), StateError> {
        Ok(())
    }
}
