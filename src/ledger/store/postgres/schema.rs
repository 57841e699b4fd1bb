//! The tables, the migrations that create them, and the state that they contain.
//!
//! An instance must not continue with an empty, different or incomplete state. The id of the state is stored in the
//! database. The instance remembers the id in its runtime directory and in memory. If the instance has no directory, or
//! has lost the file with the id, it accepts the first state that it finds. This is normal for a container without a
//! volume.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio_postgres::Client;
use tokio_postgres::error::{DbError, SqlState};
use uuid::Uuid;

use super::sql;
use crate::StateError;
use crate::store::blocking;
use crate::store::directory::{Used, UsedDatabase};
use net::postgres::{DatabaseError, EarlyAck, answered};
use net::tasks::lock;

/// Each migration is applied once, in order, by the first instance that needs it. `{schema}` is the schema's quoted
/// name.
pub(super) const MIGRATIONS: [&str; 5] = [
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
];

/// From this migration on, a table contains the id of the state.
pub(super) const NAMED_SINCE: usize = 4;

/// The advisory lock that allows only one instance at a time to migrate.
const LOCK: i64 = 0x6368_616e_6e65_6c64;

/// How long a migration waits for a lock. Meanwhile, all other users of the table wait behind the migration. This is shorter
/// than the shortest time that a heartbeat may take, so that running instances of an older version keep their leases. It is also
/// shorter than the server's `deadlock_timeout`, so that the server does not cancel an autovacuum of the table.
const LOCK_TIMEOUT: &str = "500ms";

/// The schema of the state, and the identity of the state that this instance uses.
#[derive(Debug, Default)]
pub(super) struct Schema {
    /// An identifier that needs no escaping.
    name: String,
    is_ready: AtomicBool,
    known: Mutex<Option<Uuid>>,
    /// The settings of the server, as the last connection found them.
    early: Mutex<EarlyAck>,
    /// The runtime directory, which remembers the id of the state, and a description of the database.
    remembered: Option<(PathBuf, String)>,
    /// Whether `channeld state copy` uses this schema. Only this command may open an incomplete state.
    is_copying: bool,
}

impl Schema {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Remembers the state in the runtime directory, which may contain its id already. `database` describes the database.
    pub(super) fn remembered_in(self, directory: &Path, database: String) -> Result<Self, StateError> {
        let known = Used::read(directory)?.database.map(|database| database.id);
        Ok(Self { known: Mutex::new(known), remembered: Some((directory.to_owned(), database)), ..self })
    }

    /// Accepts only a state with this id, if the id is known.
    pub(super) fn knowing(self, known: Option<Uuid>) -> Self {
        Self { known: Mutex::new(known), ..self }
    }

    /// Prepares a copy from or to this schema. `known` is the id that the state must have, if it is known.
    pub(super) fn of_copy(self, known: Option<Uuid>) -> Self {
        Self { is_copying: true, ..self.knowing(known) }
    }

    /// The id of the state. Known after the first connection, or from the runtime directory.
    pub(super) fn known(&self) -> Option<Uuid> {
        *lock(&self.known)
    }

    /// Whether this process has found every migration applied.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Why the server acknowledges commits before they are on its disk.
    pub(super) fn early_acks(&self) -> Vec<String> {
        lock(&self.early).reasons("the role of state.url")
    }

    pub(super) fn statement(&self, sql: &str) -> String {
        sql.replace("{schema}", &format!("\"{}\"", self.name))
    }

    /// Checks on a new connection that the database contains this instance's state, and applies missing migrations. A
    /// schema that existed before and has disappeared is not created again.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), StateError> {
        let rows = answered(client.query_typed(&self.statement(sql::OPEN), &[])).await?;
        let (exists, is_named) = rows.first().map_or((false, false), |row| (row.get(0), row.get(1)));
        let early =
            rows.first().map(|row| EarlyAck { is_never_synced: row.get(2), commits_asynchronously: row.get(3) });
        *lock(&self.early) = early.unwrap_or_default();
        if !exists && self.known().is_some() {
            return Err(unusable(gone(&self.name, &self.remedy())));
        }
        if !is_named || !self.is_ready() {
            answered(client.batch_execute(&self.migration())).await.map_err(|error| self.not_migrated(error))?;
            self.is_ready.store(true, Ordering::Relaxed);
        }
        let rows = answered(client.query_typed(&self.statement(sql::WHICH), &[])).await?;
        let row = rows.first().ok_or_else(|| StateError::Damaged("the state has no id".to_owned()))?;
        self.check(row.get(0), row.get(1)).await
    }

    /// The number of the last migration that was applied.
    pub(super) async fn applied(&self, client: &Client) -> Result<usize, StateError> {
        let rows = answered(client.query_typed(&self.statement(sql::APPLIED), &[])).await?;
        Ok(rows.first().and_then(|row| usize::try_from(row.get::<_, i32>(0)).ok()).unwrap_or(0))
    }

    /// Checks that the state with this id may be used. The state may have been replaced while a connection was open.
    pub(super) async fn check(&self, id: Uuid, is_incomplete: bool) -> Result<(), StateError> {
        let replaced = || unusable(replaced(&self.name, &self.remedy()));
        if self.known().is_some_and(|known| known != id) {
            return Err(replaced());
        }
        if is_incomplete && !self.is_copying {
            return Err(unusable(incomplete(&self.name)));
        }
        if let (None, Some((directory, place))) = (self.known(), &self.remembered) {
            let database = UsedDatabase { id, schema: self.name.clone(), database: place.clone() };
            let directory = directory.clone();
            blocking(move || database.remember_in(&directory)).await?;
        }
        // Several connections can find the state at the same time. If the state is replaced at that moment, the id that
        // was found first counts.
        let known = *lock(&self.known).get_or_insert(id);
        if known == id { Ok(()) } else { Err(replaced()) }
    }

    /// Explains a failed migration. The server does not say that a migration waited for the lock.
    fn not_migrated(&self, error: DatabaseError) -> StateError {
        let error = StateError::from(error);
        if error.of_server().is_some_and(|said| *said.code() == SqlState::LOCK_NOT_AVAILABLE) {
            return unusable(locked(&self.name));
        }
        error
    }

    fn remedy(&self) -> String {
        remedy(self.remembered.as_ref().map(|(directory, _)| &**directory))
    }

    /// Returns the statement that applies the missing migrations. Only one instance migrates at a time. The others wait for
    /// its lock and then find that no migration is missing.
    ///
    /// The migrations are one statement, so nothing stays locked if this process stops in the middle. A delayed copy
    /// finds everything applied, or fails because a newer version has applied more.
    fn migration(&self) -> String {
        let (name, known) = (&self.name, MIGRATIONS.len());
        let missing = MIGRATIONS.iter().enumerate().map(|(at, migration)| {
            let number = at + 1;
            format!(
                "if applied < {number} then\n{migration}\ninsert into {{schema}}.migrations (number) values ({number});\nend if;\n"
            )
        });
        let missing: String = missing.collect();
        self.statement(&format!(
            "do $channeld$\ndeclare applied int;\nbegin\n\
             perform set_config('lock_timeout', '{LOCK_TIMEOUT}', true);\n\
             perform pg_advisory_xact_lock({LOCK});\n\
             if not exists (select from pg_namespace where nspname = '{name}') then create schema {{schema}}; end if;\n\
             if to_regclass('{{schema}}.migrations') is null then\n\
             create table {{schema}}.migrations (number int primary key, applied timestamptz not null default now());\n\
             end if;\n\
             select coalesce(max(number), 0) into applied from {{schema}}.migrations;\n\
             if applied > {known} then\n\
             raise exception 'the schema {name} has version %, and this channeld knows %: run the version that \
             wrote the schema, or a newer version', applied, {known};\n\
             end if;\n{missing}end $channeld$"
        ))
    }
}

/// The names of the tables of the state.
pub(super) fn tables() -> Vec<&'static str> {
    const CREATED: &str = "create table {schema}.";
    let created = MIGRATIONS.iter().flat_map(|migration| migration.split(CREATED).skip(1));
    let name = |definition: &'static str| definition.split_whitespace().next();
    std::iter::once("migrations").chain(created.filter_map(name)).collect()
}

pub(super) fn gone(schema: &str, remedy: &str) -> String {
    format!("the state in schema {schema} is gone, and is not created automatically: {remedy}")
}

pub(super) fn replaced(schema: &str, remedy: &str) -> String {
    format!("the state in schema {schema} is a different one than this instance has used: {remedy}")
}

pub(super) fn incomplete(schema: &str) -> String {
    format!(
        "the state in schema {schema} is an incomplete copy: run `channeld state copy --to postgres` again, which starts over, or use the other backend"
    )
}

fn locked(schema: &str) -> String {
    format!(
        "the tables in schema {schema} cannot be checked and upgraded yet, because another session locks one of them or is upgrading them: find the session in pg_stat_activity"
    )
}

/// Tells an operator how to continue. If a directory is given, a file in it contains the id of the state.
pub(super) fn remedy(directory: Option<&Path>) -> String {
    let anew = directory.map_or_else(
        || "start this instance again".to_owned(),
        |directory| format!("stop every instance and remove {}", Used::file(directory).display()),
    );
    format!(
        "restore the database; or, to use the present database, in which channels without state begin at `start`, {anew}"
    )
}

/// Wraps the reason as an error of the database. The store then retries, as if the database were unavailable, because an
/// operator may restore the state in the meantime.
fn unusable(why: String) -> StateError {
    StateError::Database(Arc::new(StateError::Unusable(why)))
}

impl UsedDatabase {
    pub(super) fn remember_in(self, directory: &Path) -> Result<(), StateError> {
        Used::change(directory, |used| used.database = Some(self))
    }
}

impl StateError {
    /// The server's error.
    pub(super) fn of_server(&self) -> Option<&DbError> {
        let Self::Database(source) = self else { return None };
        source.downcast_ref::<tokio_postgres::Error>()?.as_db_error()
    }
}
