//! An in-memory store for tests. Its disk outlives the store, and tests decide the result of every write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{CommitOutcome, Effects, Entries, Key, Lease, Ledgers, Loss, StateError, Store, Value};
use net::tasks::lock;
use proof::event::ChannelId;

/// The data that remains when a store is closed or crashes.
#[derive(Debug, Default)]
pub struct Disk {
    entries: Mutex<BTreeMap<(ChannelId, Key), Bytes>>,
    /// The version of each channel's ledger.
    versions: Mutex<BTreeMap<ChannelId, u64>>,
    /// Delayed commits, which are executed after the next one. Each has the last version that its sender knew.
    late: Mutex<Vec<(Lease, Effects, u64)>>,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It is on disk.
    Done,
    /// It fails, and nothing is on disk.
    Lost,
    /// It is on disk, but the store reports that this is not certain.
    Unsynced,
    /// The store cannot be reached. The write is tried again.
    Unavailable,
    /// It is executed after the next write, and its answer is lost.
    Late,
    /// Another instance has taken over the channel. Nothing was written.
    Overtaken,
}

/// Decides about every write, and can delay it.
#[async_trait]
pub trait Gate: Send + Sync + fmt::Debug {
    /// Called before any of the write is on disk.
    async fn before(&self, group: &[(Lease, Effects)]) -> Write;

    /// Called before the write is answered.
    async fn after(&self, group: &[(Lease, Effects)]);
}

/// The store.
#[derive(Debug)]
pub struct InMemory {
    disk: Arc<Disk>,
    gate: Arc<dyn Gate>,
    /// The last acknowledged version of each channel.
    acknowledged: Mutex<BTreeMap<ChannelId, u64>>,
}

impl Ledgers {
    /// Ledgers that use an in-memory disk.
    pub fn in_memory(disk: &Arc<Disk>, gate: Arc<dyn Gate>) -> Self {
        Self::over(Arc::new(InMemory { disk: disk.clone(), gate, acknowledged: Mutex::default() }))
    }
}

impl Disk {
    /// The entries of a channel, as they are returned when the channel is claimed.
    pub fn entries(&self, channel: ChannelId) -> Entries {
        let entries = self.lock();
        let of_channel = entries.iter().filter(|((of, _), _)| *of == channel);
        let entry = |((_, key), value): (&(ChannelId, Key), &Bytes)| (key.clone(), Value::of(key, value));
        of_channel.map(entry).collect()
    }

    /// Executes a commit by the rule of `commit.sql`, unless it is a delayed copy. Returns whether it was executed.
    fn execute(&self, lease: &Lease, effects: &Effects, recorded: u64) -> bool {
        let (mut versions, mut entries) = (lock(&self.versions), self.lock());
        let version = versions.entry(lease.channel).or_default();
        if !(recorded..=effects.summary.version).contains(version) {
            return false;
        }
        *version = effects.summary.version;
        for (key, value) in &effects.changes {
            let key = (lease.channel, key.clone());
            match value {
                Some(value) => entries.insert(key, value.clone()),
                None => entries.remove(&key),
            };
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ChannelId, Key), Bytes>> {
        lock(&self.entries)
    }
}

#[async_trait]
impl Store for InMemory {
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Entries)>, StateError> {
        // Copies that were not executed yet have an older epoch.
        lock(&self.disk.late).retain(|(lease, ..)| lease.channel != channel);
        let version = lock(&self.disk.versions).get(&channel).copied().unwrap_or_default();
        lock(&self.acknowledged).insert(channel, version);
        Ok(Some((Lease::for_ever(channel), self.disk.entries(channel))))
    }

    async fn entries(&self, channel: ChannelId) -> Result<Entries, StateError> {
        Ok(self.disk.entries(channel))
    }

    async fn commit(&self, group: Arc<Vec<(Lease, Effects)>>) -> Vec<CommitOutcome> {
        let write = self.gate.before(&group).await;
        let recorded = |channel| lock(&self.acknowledged).get(&channel).copied().unwrap_or_default();
        if write == Write::Late {
            let copies = group.iter().map(|(lease, effects)| (lease.clone(), effects.clone(), recorded(lease.channel)));
            lock(&self.disk.late).extend(copies);
        }
        if matches!(write, Write::Done | Write::Unsynced) {
            for (lease, effects) in &*group {
                assert!(
                    self.disk.execute(lease, effects, recorded(lease.channel)),
                    "this commit is not a delayed copy"
                );
                lock(&self.acknowledged).insert(lease.channel, effects.summary.version);
            }
            for (lease, effects, recorded) in std::mem::take(&mut *lock(&self.disk.late)) {
                self.disk.execute(&lease, &effects, recorded);
            }
        }
        self.gate.after(&group).await;
        let error = || StateError::io("writing", std::io::Error::other("as the test says"));
        let outcome = |_| match write {
            Write::Done => CommitOutcome::Ok,
            Write::Lost | Write::Unsynced => CommitOutcome::Fatal(error()),
            Write::Unavailable | Write::Late => CommitOutcome::Unavailable(error()),
            Write::Overtaken => CommitOutcome::Lost(Loss::Overtaken),
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
