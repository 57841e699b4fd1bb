//! PostgreSQL: the store of several instances.
//!
//! # Invariants
//!
//! * **Fenced in the statement.** A commit is one statement that changes entries only of channels whose row still has our
//!   owner and epoch. It locks that row, and so does a claim.
//! * **No transaction that stays open.** Each statement is a transaction of its own, without session state: it works through
//!   a pooler, and a process that is stopped in the middle locks nothing.
//! * **An unknown outcome is no question.** Where the answer to a commit is lost, the same effects are written again: that
//!   changes nothing where they are there. Effects that a failover has lost show by a version that is behind, and the
//!   channel is loaded again.
//! * **The first channel that shows a proof has it.** Proofs are noted before they are delivered, so that of two channels,
//!   wherever they are worked, one delivers them. The last [`PROOFS`] are known, and somewhat more.
//! * **A database that is away is waited for.** No error of it ends the process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use super::directory::Directory;
use super::shared::{Hold, InstanceId, Membership};
use super::{Lease, Outcome, Store};
use crate::event::{ChannelId, Offset};
use crate::ledger::entry::encode;
use crate::ledger::{Digest, Effects, Entries, Key, PROOFS, Place, Proof, StateError, Table, Value};
use crate::postgres::ServerSettings;
use crate::tasks::lock;
use crate::telemetry::Chain;

mod connection;
mod examine;
mod group;
mod instances;
mod requests;
mod schema;

use connection::Connection;
use group::Group;
use instances::Configurations;
use schema::Schema;

/// The tables whose values stay in the database until they are asked for.
const BODIES: [Table; 2] = [Table::Body, Table::DeadBody];

/// The oldest proofs are forgotten when an instance has noted so many.
const FORGET_AFTER: usize = PROOFS / 20;

/// How the database is reached, and what this instance is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// `state.url`, and what TLS to it needs.
    pub server: ServerSettings,
    /// `state.schema`: an identifier that needs no escape.
    pub schema: String,
    /// `cluster.instance`: this instance's name.
    pub instance: String,
    /// `cluster.lease`: how long after its last heartbeat an instance is taken for dead.
    pub lease: Duration,
}

/// The database, as one instance uses it.
#[derive(Debug)]
pub struct Postgres {
    me: InstanceId,
    settings: PostgresSettings,
    commits: Connection,
    board: Connection,
    proofs: Connection,
    /// Proofs that were noted since the oldest were forgotten last.
    noted: AtomicUsize,
    hold: Arc<Hold>,
    /// What this instance has claimed.
    claimed: Mutex<HashMap<ChannelId, Claimed>>,
    configurations: Mutex<Configurations>,
    /// The last field: the runtime directory is locked until all else is closed. `None` where it is another process's.
    directory: Option<Directory>,
}

#[derive(Debug)]
struct Claimed {
    lease: Lease,
    /// The version that the database is known to have.
    recorded: u64,
}

impl Postgres {
    /// Locks the runtime directory at `path`, where there is one. The database is connected to when it is needed.
    ///
    /// # Errors
    /// If the directory is in use or not to be used, or no certificate can be checked.
    pub fn open(path: Option<&Path>, settings: PostgresSettings) -> Result<Self, StateError> {
        let directory = path.map(Directory::lock).transpose()?;
        let schema = Arc::new(Schema::new(&settings.schema));
        Ok(Self {
            me: Uuid::new_v4(),
            commits: Connection::new(&settings, &schema)?,
            board: Connection::new(&settings, &schema)?,
            proofs: Connection::new(&settings, &schema)?,
            // The first that are noted look after those that an earlier process has left.
            noted: AtomicUsize::new(FORGET_AFTER),
            settings,
            hold: Arc::default(),
            claimed: Mutex::default(),
            configurations: Mutex::default(),
            directory,
        })
    }

    fn schema(&self) -> &Schema {
        &self.commits.schema
    }

    /// Keeps the last [`PROOFS`], now and then.
    async fn forget_proofs(&self, noted: usize) -> Result<(), StateError> {
        if self.noted.fetch_add(noted, Ordering::Relaxed) + noted < FORGET_AFTER {
            return Ok(());
        }
        self.noted.store(0, Ordering::Relaxed);
        let kept = i64::try_from(PROOFS).unwrap_or(i64::MAX);
        self.proofs.query(&self.schema().forget_proofs, &[(&kept as _, Type::INT8)]).await.map(drop)
    }

    fn claimed(&self) -> MutexGuard<'_, HashMap<ChannelId, Claimed>> {
        lock(&self.claimed)
    }
}

#[async_trait]
impl Store for Postgres {
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Entries)>, StateError> {
        let parameters = [(&channel.0 as _, Type::UUID), (&self.me as _, Type::UUID)];
        let mut rows = self.commits.query(&self.schema().claim, &parameters).await?;
        if rows.is_empty() {
            // A channel that was not known a moment ago is known now.
            rows = self.commits.query(&self.schema().claim, &parameters).await?;
        }
        let Some(row) = rows.first() else { return Ok(None) };
        let (epoch, version) = (row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs());
        let mut entries = self.entries(channel).await?;
        entries.insert(Key::Version, Value::Bytes(encode(&version)));
        let lease = Lease { channel, epoch, lost: CancellationToken::new(), hold: Some(self.hold.clone()) };
        let claimed = Claimed { lease: lease.clone(), recorded: version };
        if let Some(before) = self.claimed().insert(channel, claimed) {
            before.lease.lost.cancel();
        }
        Ok(Some((lease, entries)))
    }

    async fn commit(&self, group: Arc<Vec<(Lease, Effects)>>) -> Vec<Outcome> {
        let recorded = |lease: &Lease| {
            let claimed = self.claimed();
            claimed.get(&lease.channel).filter(|claimed| claimed.lease.epoch == lease.epoch).map(|it| it.recorded)
        };
        let packed = Group::pack(&group, recorded);
        let written = match self.commits.query(&self.schema().commit, &packed.parameters(&self.me)).await {
            Ok(rows) => rows.iter().map(|row| row.get(0)).collect::<BTreeSet<Uuid>>(),
            Err(error) => return vec![Outcome::Unavailable(error); group.len()],
        };
        let mut claimed = self.claimed();
        let outcome = |(lease, effects): &(Lease, Effects)| {
            if !written.contains(&lease.channel.0) {
                return Outcome::Lost;
            }
            if let Some(claimed) = claimed.get_mut(&lease.channel) {
                claimed.recorded = effects.summary.version;
            }
            Outcome::Ok
        };
        group.iter().map(outcome).collect()
    }

    async fn entries(&self, channel: ChannelId) -> Result<Entries, StateError> {
        let bodies = BODIES.map(<&str>::from).to_vec();
        let parameters = [(&channel.0 as _, Type::UUID), (&bodies as _, Type::TEXT_ARRAY)];
        let rows = self.commits.query(&self.schema().entries, &parameters).await?;
        let entry = |row: &tokio_postgres::Row| {
            let table = row.get::<_, &str>(0).parse().map_err(|_| {
                StateError::Damaged(format!("there is a kind of entry that is not known: {}", row.get::<_, &str>(0)))
            })?;
            let key = Key::parse(table, row.get(1))?;
            let value = match row.get::<_, Option<&[u8]>>(2) {
                Some(value) => Value::Bytes(Bytes::copy_from_slice(value)),
                None => Value::Size(row.get::<_, i64>(3).unsigned_abs()),
            };
            Ok((key, value))
        };
        rows.iter().map(entry).collect()
    }

    async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError> {
        let (kind, bytes) = (<&str>::from(Table::from(&key)), key.bytes());
        let parameters = [(&channel.0 as _, Type::UUID), (&kind as _, Type::TEXT), (&bytes as _, Type::BYTEA)];
        let rows = self.commits.query(&self.schema().body, &parameters).await?;
        Ok(rows.first().map(|row| Bytes::copy_from_slice(row.get(0))))
    }

    async fn release(&self, lease: Lease) {
        self.claimed()
            .retain(|_, claimed| claimed.lease.channel != lease.channel || claimed.lease.epoch != lease.epoch);
        // Where this fails, it is given up after another heartbeat, or claimed by another when this instance's lease is over.
        if let Err(error) = self.give_up(&BTreeMap::from([(lease.channel, lease.epoch)])).await {
            debug!(channel = %lease.channel, error = %Chain(&error), "the channel could not be given up");
        }
    }

    async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        let rows = self.commits.query(&self.schema().channels, &[]).await?;
        Ok(rows.iter().map(|row| ChannelId(row.get(0))).collect())
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn show(&self, channel: ChannelId, proofs: &[Proof]) -> Result<Vec<(Digest, Place)>, StateError> {
        // Each once: a statement writes a row once.
        let each: BTreeMap<_, _> = proofs.iter().rev().map(|proof| (proof.digest, proof.offset.get())).collect();
        let (digests, offsets): (Vec<_>, Vec<_>) =
            each.into_iter().map(|(digest, offset)| (Uuid::from_bytes(digest), offset)).unzip();
        let parameters =
            [(&channel.0 as _, Type::UUID), (&digests as _, Type::UUID_ARRAY), (&offsets as _, Type::INT8_ARRAY)];
        let rows = self.proofs.query(&self.schema().show, &parameters).await?;
        self.forget_proofs(digests.len()).await?;
        let shown = |row: &tokio_postgres::Row| {
            let offset = Offset::new(row.get(2))?;
            Some((*row.get::<_, Uuid>(0).as_bytes(), Place { channel_id: ChannelId(row.get(1)), offset }))
        };
        Ok(rows.iter().filter_map(shown).collect())
    }

    async fn check(&self) -> Result<(), StateError> {
        // Heartbeats tell as often whether the database can be used.
        self.directory.as_ref().map_or(Ok(()), Directory::check)
    }

    fn membership(self: Arc<Self>) -> Option<Arc<dyn Membership>> {
        Some(self)
    }
}
