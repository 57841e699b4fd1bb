//! The PostgreSQL store, which several instances can share.
//!
//! # Invariants
//!
//! * **Fenced in the statement.** A commit is one statement. It changes a channel's entries only under two conditions:
//!   the channel's row still names this instance and the lease's epoch, and the row's version is between the recorded
//!   version and the commit's version. Both a commit and a claim lock this row.
//! * **No transaction stays open.** Each statement is its own transaction and uses no session state. The store therefore
//!   works through a pooler, and a process that is stopped in the middle locks nothing.
//! * **An unknown outcome is resolved by repetition.** If the answer to a commit is lost, the same effects are written
//!   again. This changes nothing if they are already stored. If a failover has lost effects, the stored version is
//!   behind, and the channel is loaded again.
//! * **A delayed copy does no harm.** A statement that was abandoned may be executed later, after newer statements. Each
//!   statement's file explains why this is harmless.
//! * **A proof belongs to the first channel that shows it.** Proofs are recorded durably before they are delivered. If
//!   two channels show the same proof, on any instances, only one of them delivers it. The database contains at least
//!   the newest [`PROOFS`] proofs, and the newest [`PROOFS_OF_A_CHANNEL`] of each channel.
//! * **A state is not replaced silently.** An instance works only with the state that it has used before, and only with
//!   a complete state. See [`schema`].
//! * **An unavailable database is waited for.** No database error ends the process.
//! * **Nothing delays a heartbeat.** Heartbeats have their own connection, and a heartbeat counts although the table of channels
//!   cannot be read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use uuid::Uuid;

use super::directory::{Directory, Used, UsedDatabase};
use super::shared::{BEATS, Configured, InstanceId, LeaseTerm, Membership, RequestId, UnreadableRow};
use super::{CommitOutcome, Lease, Loss, PostgresSettings, Store, TableWait, blocking};
use crate::rules::encode;
use crate::{
    Digest, Effects, Entries, EventLocation, Key, PROOFS, PROOFS_OF_A_CHANNEL, Proof, StateError, Table, Value,
};
use net::Chain;
use net::postgres::{ANSWER_TIMEOUT, DatabaseError, bigint};
use net::tasks::lock;
use proof::event::{ChannelId, Offset};

mod connection;
mod examine;
mod group;
mod instances;
mod rehearsal;
mod schema;
mod sql;
mod waits;

use connection::{Connection, Parameter};
use group::Group;
use schema::Schema;
use waits::Waits;

/// After an instance has recorded this many proofs, it removes the oldest proofs from the database.
const FORGET_AFTER: usize = PROOFS / 20;

/// The number of proofs that are examined at once. It is larger than [`FORGET_AFTER`], so that a backlog is reduced.
const FORGET_AT_ONCE: usize = 10 * FORGET_AFTER;

/// The number of connections of an instance.
const CONNECTIONS: usize = 5;

/// How many times in a row a commit is sent while earlier copies are being executed.
const TRIES: usize = 3;

/// The wait before a channel is claimed again whose row is locked.
const CLAIM_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
struct Postgres {
    me: InstanceId,
    settings: PostgresSettings,
    commits: Connection,
    /// Only heartbeats use this connection, so that no other statement delays them.
    board: Connection,
    /// For the requests between instances.
    requests: Connection,
    proofs: Connection,
    /// A connection for work that no delivery waits for.
    upkeep: Arc<Connection>,
    /// The number of proofs that were recorded since the oldest were last forgotten.
    noted: Arc<AtomicUsize>,
    /// The waits of all connections for their tables.
    waits: Arc<Waits>,
    forgetting: Mutex<Option<AbortOnDropHandle<()>>>,
    term: Arc<LeaseTerm>,
    claimed: Mutex<HashMap<ChannelId, LeasedVersion>>,
    /// The configurations that instances have registered, by their keys (digests). They are cached because most instances have
    /// the same configuration, and it seldom changes.
    configurations: Mutex<BTreeMap<Vec<u8>, Arc<Configured>>>,
    /// The configurations that could not be read completely, by their digests.
    unreadable: Mutex<BTreeMap<Vec<u8>, UnreadableRow>>,
    /// The requests that this instance received recently, with the time of receipt. These requests are not taken again.
    received: Mutex<BTreeMap<RequestId, Instant>>,
    /// The runtime directory in which the id of the state is recorded after `channeld state copy` has created the state
    /// in this database.
    remember_in: Option<PathBuf>,
    /// The last field, because the runtime directory must stay locked until everything else is closed. `None` if
    /// no directory was given, or if another store has locked it.
    directory: Option<Directory>,
}

#[derive(Debug)]
struct LeasedVersion {
    lease: Lease,
    /// The newest version that the database is known to have.
    recorded: u64,
}

impl PostgresSettings {
    /// Opens the store. If `path` is given, locks this runtime directory, which remembers the state that was used
    /// before. Connects to the database only when a connection is needed. Blocks.
    ///
    /// # Errors
    /// If the directory is in use or cannot be used, or certificates cannot be verified.
    pub fn open(self, path: Option<&Path>) -> Result<Arc<dyn Store>, StateError> {
        let directory = path.map(Directory::lock).transpose()?;
        let mut schema = Schema::new(&self.schema);
        if let Some(path) = path {
            schema = schema.remembered_in(path, self.server.place())?;
        }
        Ok(Arc::new(Postgres { directory, ..Postgres::over(self, schema)? }))
    }

    /// Opens the database as the source or target of a copy. The state in the database may be incomplete. The runtime
    /// directory at `path` is locked by another store. Blocks.
    ///
    /// # Errors
    /// If certificates cannot be verified, or the runtime directory cannot be read.
    pub fn open_for_copy(self, path: &Path, is_source: bool) -> Result<Arc<dyn Store>, StateError> {
        // The source of a copy must be the state that was used. The target is a different state.
        let known = if is_source { Used::read(path)?.database.map(|used| used.id) } else { None };
        let remember_in = (!is_source).then(|| path.to_owned());
        let schema = Schema::new(&self.schema).of_copy(known);
        Ok(Arc::new(Postgres { remember_in, ..Postgres::over(self, schema)? }))
    }
}

impl Postgres {
    fn over(settings: PostgresSettings, schema: Schema) -> Result<Self, StateError> {
        let (schema, waits) = (Arc::new(schema), Arc::default());
        let connection = |limit| Connection::new(&settings, &schema, &waits, limit);
        // A heartbeat that takes longer is too late, and another connection may be faster.
        let heartbeat = (settings.lease / BEATS).min(ANSWER_TIMEOUT);
        let [commits, board, requests, proofs, upkeep]: [Connection; CONNECTIONS] = [
            connection(ANSWER_TIMEOUT)?,
            connection(heartbeat)?,
            connection(ANSWER_TIMEOUT)?,
            connection(ANSWER_TIMEOUT)?,
            connection(ANSWER_TIMEOUT)?,
        ];
        Ok(Self {
            me: Uuid::new_v4(),
            commits,
            board,
            requests,
            proofs,
            upkeep: Arc::new(upkeep),
            waits,
            // The first recorded proofs trigger a cleanup of the proofs of an earlier process.
            noted: Arc::new(AtomicUsize::new(FORGET_AFTER)),
            forgetting: Mutex::default(),
            settings,
            term: Arc::default(),
            claimed: Mutex::default(),
            configurations: Mutex::default(),
            unreadable: Mutex::default(),
            received: Mutex::default(),
            remember_in: None,
            directory: None,
        })
    }

    fn schema(&self) -> &Schema {
        &self.commits.schema
    }

    /// Forgets the oldest proofs from time to time. Nothing waits for this: recorded proofs are delivered in the
    /// meantime.
    fn forget_proofs(&self, noted: usize) {
        if self.noted.fetch_add(noted, Ordering::Relaxed) + noted < FORGET_AFTER {
            return;
        }
        let mut forgetting = lock(&self.forgetting);
        if forgetting.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (upkeep, noted) = (self.upkeep.clone(), self.noted.clone());
        *forgetting = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            while noted.load(Ordering::Relaxed) >= FORGET_AFTER {
                noted.store(0, Ordering::Relaxed);
                // An error needs no other handling: the next run examines more proofs.
                if let Err(error) = forget(&upkeep, FORGET_AT_ONCE).await {
                    debug!(error = %Chain(&error), "old proofs could not be removed");
                }
            }
        })));
    }

    /// Whether this instance could claim a channel. `parameters` are the parameters of the claim.
    async fn is_claimable(&self, parameters: &[Parameter<'_>]) -> Result<bool, StateError> {
        let rows = self.commits.query(sql::CLAIMABLE, parameters).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Like [`commit_once`](Self::commit_once). If the database cannot be used, this is the outcome of each channel.
    async fn try_commit(&self, group: &[(Lease, Effects)]) -> Vec<Option<CommitOutcome>> {
        let unavailable = |error| vec![Some(CommitOutcome::Unavailable(error)); group.len()];
        self.commit_once(group).await.unwrap_or_else(unavailable)
    }

    /// Writes a group once. The outcome is `None` for a channel that another copy of the commit has changed at the same
    /// time, and for a channel whose row another session has locked.
    async fn commit_once(&self, group: &[(Lease, Effects)]) -> Result<Vec<Option<CommitOutcome>>, StateError> {
        let recorded = |lease: &Lease| {
            let claimed = lock(&self.claimed);
            claimed.get(&lease.channel).filter(|claimed| claimed.lease.epoch == lease.epoch).map(|it| it.recorded)
        };
        let packed = Group::pack(group, recorded);
        let rows = self.commits.query(sql::COMMIT, &packed.parameters(&self.me)).await?;
        let found: HashMap<Uuid, _> = rows.iter().map(|row| (row.get(0), row)).collect();
        let mut claimed = lock(&self.claimed);
        let outcome = |(lease, effects): &(Lease, Effects)| {
            let version = effects.summary.version;
            let ours = claimed.get_mut(&lease.channel).filter(|claimed| claimed.lease.epoch == lease.epoch);
            // Either the lease was lost before, so these effects were not sent, or it was lost in the meantime.
            let (Some(row), Some(claimed)) = (found.get(&lease.channel.0), ours) else {
                return Some(CommitOutcome::Lost(Loss::Ended));
            };
            if row.get(1) {
                claimed.recorded = version;
                return Some(CommitOutcome::Ok);
            }
            let (is_ours, stored): (bool, i64) = (row.get(2), row.get(3));
            let (stored, recorded) = (stored.unsigned_abs(), claimed.recorded);
            match () {
                () if !is_ours => Some(CommitOutcome::Lost(Loss::Overtaken)),
                () if stored < recorded => Some(CommitOutcome::Lost(Loss::Behind { stored, recorded })),
                () if stored > version => Some(CommitOutcome::Lost(Loss::Ahead { stored, version })),
                () => None,
            }
        };
        Ok(group.iter().map(outcome).collect())
    }

    /// How many times `channeld state copy` has begun or ended a copy into this state.
    async fn changes(&self) -> Result<i64, StateError> {
        let rows = self.commits.query(sql::WHICH, &[]).await?;
        rows.first().map(|row| row.get(2)).ok_or_else(changed_meanwhile)
    }
}

/// Removes proofs that are old enough. Examines at most `at_once` proofs.
async fn forget(connection: &Connection, at_once: usize) -> Result<(), StateError> {
    let [all, each, at_once] = [PROOFS, PROOFS_OF_A_CHANNEL, at_once].map(|it| bigint(it as u64));
    let parameters = [(&all as _, Type::INT8), (&each as _, Type::INT8), (&at_once as _, Type::INT8)];
    connection.query(sql::FORGET, &parameters).await.map(drop)
}

/// The error if a channel can be neither claimed nor written because of a lock. It passes when the other session ends.
fn row_locked() -> StateError {
    let why = "another session locks the channel's row in the table channels".to_owned();
    StateError::Database(Arc::new(StateError::Unusable(why)))
}

/// The error if another copy has begun or ended, or an instance has started to work.
fn changed_meanwhile() -> StateError {
    StateError::Unusable(
        "the target was changed in the meantime: run only one copy at a time, and stop all instances".to_owned(),
    )
}

#[async_trait]
impl Store for Postgres {
    async fn claim(&self, channel: ChannelId) -> Result<Option<(Lease, Entries)>, StateError> {
        let offered = self.commits.query(sql::OFFER, &[(&channel.0 as _, Type::UUID)]).await?;
        // If the statement returns no row, another instance has added the channel at the same time. The next attempt
        // claims it.
        let Some(offered) = offered.first() else { return Ok(None) };
        self.schema().check(offered.get(1), false).await?;
        let epoch = offered.get::<_, i64>(0);
        let parameters = [(&channel.0 as _, Type::UUID), (&self.me as _, Type::UUID), (&epoch as _, Type::INT8)];
        let mut rows = self.commits.query(sql::CLAIM, &parameters).await?;
        if rows.is_empty() && self.is_claimable(&parameters).await? {
            // Another session locks the row, for example because it is claiming the channel at this moment.
            sleep(CLAIM_AGAIN).await;
            rows = self.commits.query(sql::CLAIM, &parameters).await?;
            if rows.is_empty() && self.is_claimable(&parameters).await? {
                return Err(row_locked());
            }
        }
        let Some(row) = rows.first() else { return Ok(None) };
        let (epoch, version) = (row.get::<_, i64>(0).unsigned_abs(), row.get::<_, i64>(1).unsigned_abs());
        let mut entries = self.entries(channel).await?;
        entries.insert(Key::Version, Value::Bytes(encode(&version)));
        let lease = Lease { channel, epoch, lost: CancellationToken::new(), term: Some(self.term.clone()) };
        let claimed = LeasedVersion { lease: lease.clone(), recorded: version };
        if let Some(before) = lock(&self.claimed).insert(channel, claimed) {
            before.lease.lost.cancel();
        }
        Ok(Some((lease, entries)))
    }

    async fn commit(&self, group: Arc<Vec<(Lease, Effects)>>) -> Vec<CommitOutcome> {
        let mut outcomes = self.try_commit(&group).await;
        for _ in 1..TRIES {
            let busy: Vec<usize> = (0..group.len()).filter(|at| outcomes[*at].is_none()).collect();
            if busy.is_empty() {
                break;
            }
            let rest: Vec<_> = busy.iter().map(|at| group[*at].clone()).collect();
            busy.into_iter().zip(self.try_commit(&rest).await).for_each(|(at, outcome)| outcomes[at] = outcome);
        }
        let is_busy = || CommitOutcome::Unavailable(row_locked());
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(is_busy)).collect()
    }

    async fn entries(&self, channel: ChannelId) -> Result<Entries, StateError> {
        let bodies = Table::BODIES.map(<&str>::from).to_vec();
        let parameters = [(&channel.0 as _, Type::UUID), (&bodies as _, Type::TEXT_ARRAY)];
        let rows = self.commits.query(sql::ENTRIES, &parameters).await?;
        let entry = |row: &tokio_postgres::Row| {
            let key = Key::parse(row.get(0), row.get(1))?;
            let value = match row.get::<_, Option<&[u8]>>(2) {
                Some(value) => Value::Bytes(Bytes::copy_from_slice(value)),
                None => Value::Size(row.get::<_, i64>(3).unsigned_abs()),
            };
            Ok((key, value))
        };
        rows.iter().map(entry).collect()
    }

    async fn body(&self, channel: ChannelId, key: Key) -> Result<Option<Bytes>, StateError> {
        let (kind, bytes) = (key.kind(), key.bytes());
        let parameters = [(&channel.0 as _, Type::UUID), (&kind as _, Type::TEXT), (&bytes as _, Type::BYTEA)];
        let rows = self.commits.query(sql::BODY, &parameters).await?;
        Ok(rows.first().map(|row| Bytes::copy_from_slice(row.get(0))))
    }

    async fn release(&self, lease: Lease) {
        lock(&self.claimed)
            .retain(|_, claimed| claimed.lease.channel != lease.channel || claimed.lease.epoch != lease.epoch);
        // If this fails, the channel is released after a later heartbeat, or another instance claims it when this
        // instance's lease ends.
        if let Err(error) = self.give_up(&BTreeMap::from([(lease.channel, lease.epoch)])).await {
            debug!(channel = %lease.channel, error = %Chain(&error), "the lease of the channel could not be released");
        }
    }

    async fn channels(&self) -> Result<BTreeSet<ChannelId>, StateError> {
        let rows = self.commits.query(sql::CHANNELS, &[]).await?;
        Ok(rows.iter().map(|row| ChannelId(row.get(0))).collect())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn early_ack(&self) -> Option<String> {
        let early_acks = self.schema().early_acks();
        (!early_acks.is_empty()).then(|| early_acks.join("; "))
    }

    async fn show(&self, channel: ChannelId, proofs: &[Proof]) -> Result<Vec<(Digest, EventLocation)>, StateError> {
        // Removes duplicates, because a statement can write a row only once.
        let each: BTreeMap<_, _> = proofs.iter().rev().map(|proof| (proof.digest, proof.offset.get())).collect();
        let (digests, offsets): (Vec<_>, Vec<_>) =
            each.into_iter().map(|(digest, offset)| (Uuid::from_bytes(digest), offset)).unzip();
        let parameters =
            [(&channel.0 as _, Type::UUID), (&digests as _, Type::UUID_ARRAY), (&offsets as _, Type::INT8_ARRAY)];
        let rows = self.proofs.query(sql::SHOW, &parameters).await?;
        self.forget_proofs(digests.len());
        let shown = |row: &tokio_postgres::Row| {
            // The proof belongs to the other channel even if the offset there is damaged.
            let offset = Offset::new(row.get(2)).unwrap_or(Offset::ZERO);
            (*row.get::<_, Uuid>(0).as_bytes(), EventLocation { channel_id: ChannelId(row.get(1)), offset })
        };
        Ok(rows.iter().map(shown).collect())
    }

    async fn check(&self) -> Result<(), StateError> {
        // The heartbeats already report whether the database can be used.
        self.directory.as_ref().map_or(Ok(()), Directory::check)
    }

    fn waits(&self) -> Vec<TableWait> {
        self.waits.long()
    }

    async fn is_incomplete(&self) -> Result<bool, StateError> {
        let rows = self.commits.query(sql::WHICH, &[]).await?;
        Ok(rows.first().is_none_or(|row| row.get(1)))
    }

    async fn begin_copy(&self) -> Result<(), StateError> {
        let seen = self.changes().await?;
        let begun = self.commits.query(sql::BEGIN_COPY, &[(&seen as _, Type::INT8)]).await?;
        if begun.is_empty() { Err(changed_meanwhile()) } else { Ok(()) }
    }

    async fn end_copy(&self) -> Result<(), StateError> {
        let seen = self.changes().await?;
        let ended = self.commits.query(sql::END_COPY, &[(&seen as _, Type::INT8)]).await?;
        if ended.is_empty() {
            return Err(changed_meanwhile());
        }
        let (Some(directory), Some(id)) = (self.remember_in.clone(), self.schema().known()) else {
            return Ok(());
        };
        let (schema, database) = (self.settings.schema.clone(), self.settings.server.place());
        let used = UsedDatabase { id, schema, database };
        blocking(move || used.remember_in(&directory)).await
    }

    fn membership(self: Arc<Self>) -> Option<Arc<dyn Membership>> {
        Some(self)
    }
}

/// Keeps the original error as the source, without an additional text.
impl From<DatabaseError> for StateError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(match error {
            DatabaseError::Server(source) => Arc::new(source),
            silent @ DatabaseError::Silent(_) => Arc::new(silent),
        })
    }
}
