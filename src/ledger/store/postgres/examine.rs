//! The report of `check --connect` about the database.
//!
//! # Invariants
//!
//! * **Nothing is changed:** migrations and statements are only rehearsed, in a transaction that is rolled back.
//! * **Every problem comes with a remedy,** in the form of SQL if SQL can solve it.
//!
//! # Cancellation
//!
//! Safe at any point.

use std::error::Error;
use std::path::Path;

use serde::Deserialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::connection::connector;
use super::rehearsal::{MIGRATIONS_LIMIT, rehearse};
use super::schema::{MIGRATIONS, NAMED_SINCE, Schema, gone, incomplete, remedy, replaced, tables};
use super::{CONNECTIONS, PostgresSettings, StateError, Used, Uuid, sql};
use net::postgres::{Connector, EarlyAck, OpenConnection, advice_on_standby, advised, answered};

/// The oldest server version that supports these statements, in the format of `server_version_num`.
const OLDEST: i32 = 130_000;

#[expect(clippy::struct_excessive_bools, reason = "each is a member of an answer")]
#[derive(Clone, Debug, Deserialize)]
struct DatabaseProperties {
    number: i32,
    version: String,
    is_read_only: bool,
    #[serde(flatten)]
    early: EarlyAck,
    /// The maximum number of connections, if there is one.
    connections: Option<usize>,
    /// The server process that answered.
    process: i32,
    #[serde(skip)]
    is_pooled: bool,
    /// The role and the database, as quoted in SQL.
    role: String,
    database: String,
    may_make_schema: bool,
    has_schema: bool,
    may_use: bool,
    may_make_tables: bool,
    may_read_tables: bool,
    /// The tables that a crash of the server empties.
    unlogged: Vec<String>,
    has_migrations: bool,
    /// The number of applied migrations. 0 if it cannot be read.
    #[serde(skip)]
    applied: usize,
    /// The state's id, and whether the state is an incomplete copy. `None` if no state exists, or if the state has no
    /// id yet.
    #[serde(skip)]
    state: Option<(Uuid, bool)>,
}

impl PostgresSettings {
    /// Examines the database and describes what `run` will find there. `directory` is the runtime directory, which
    /// remembers the state that was used.
    ///
    /// # Errors
    /// If `run` could not work with the database. The error includes the remedy.
    pub async fn examine(&self, directory: &Path) -> Result<String, StateError> {
        let connector = connector(self)?;
        // An unreadable file is ignored: perhaps only the daemon's user can read it.
        let known = Used::read(directory).ok().and_then(|used| used.database).map(|used| used.id);
        let (seen, open) =
            look(&connector, &self.schema).await.map_err(|error| StateError::Unusable(advice(&error, self)))?;
        let said = seen.assess(&self.schema).map_err(StateError::Unusable)?;
        if let Some(why) = seen.other_state(&self.schema, known, &remedy(Some(directory))) {
            return Err(StateError::Unusable(why));
        }
        match rehearse(self, open, known).await {
            Ok(true) => Ok(said),
            Ok(false) => Ok(format!(
                "{said}; the migrations were not tried to their end, because they take longer than {MIGRATIONS_LIMIT}"
            )),
            Err(error) => Err(StateError::Unusable(seen.refused(&error, self))),
        }
    }
}

/// Examines the database with two connections at once, because an instance needs more than one. Two connections also reveal
/// a pooler.
async fn look(connector: &Connector, name: &str) -> Result<(DatabaseProperties, OpenConnection), StateError> {
    let (one, other) = (connector.connect().await?, connector.connect().await?);
    let schema = Schema::new(name);
    let parameters = [(&name as _, Type::TEXT), (&tables() as _, Type::TEXT_ARRAY)];
    let row = answered(one.client.query_typed(sql::EXAMINE, &parameters)).await?.pop();
    let seen = row.and_then(|row| serde_json::from_str::<DatabaseProperties>(row.get(0)).ok());
    let mut seen = seen.ok_or_else(|| StateError::Damaged("the server did not describe itself".to_owned()))?;
    let process = answered(other.client.query_typed("select pg_backend_pid()", &[])).await?;
    // If a pooler is in between, two open connections can share one server process. Without a pooler they cannot.
    seen.is_pooled = process.first().map(|row| row.get::<_, i32>(0)) == Some(seen.process);
    if seen.has_migrations && seen.may_use && seen.may_read_tables {
        seen.applied = schema.applied(&one.client).await?;
        if seen.applied >= NAMED_SINCE {
            let rows = answered(one.client.query_typed(&schema.statement(sql::WHICH), &[])).await?;
            seen.state = rows.first().map(|row| (row.get(0), row.get(1)));
        }
    }
    Ok((seen, one))
}

impl DatabaseProperties {
    /// Describes what `run` will do with the database. The error says why `run` cannot work, and gives the remedy.
    fn assess(&self, schema: &str) -> Result<String, String> {
        self.refusal(schema).or_else(|| self.missing_right(schema)).map_or_else(|| Ok(self.said(schema)), Err)
    }

    /// The number of migrations that a start applies.
    fn missing(&self) -> usize {
        MIGRATIONS.len().saturating_sub(self.applied)
    }

    fn refusal(&self, schema: &str) -> Option<String> {
        if self.number < OLDEST {
            let (version, oldest) = (&self.version, OLDEST / 10_000);
            return Some(format!("PostgreSQL {version} is too old: channeld needs {oldest} or newer"));
        }
        let (applied, known) = (self.applied, MIGRATIONS.len());
        if applied > known {
            return Some(format!(
                "schema {schema} has {applied} migrations, but this channeld knows only {known}: run the version that wrote the schema, or a newer version"
            ));
        }
        if let Some(connections) = self.connections.filter(|connections| *connections < CONNECTIONS) {
            let Self { role, database, .. } = self;
            return Some(format!(
                "role {role} or database {database} allows {connections} connections, and an instance needs {CONNECTIONS}: as a superuser raise the connection limit"
            ));
        }
        self.is_read_only.then(|| {
            format!("it accepts no writes, for example because it is a standby: {}", advice_on_standby("state"))
        })
    }

    fn missing_right(&self, schema: &str) -> Option<String> {
        let Self { role, database, .. } = self;
        let (missing, known) = (self.missing(), MIGRATIONS.len());
        let rows = self.row_grants(schema);
        let (what, sql) = if !self.has_schema && !self.may_make_schema {
            let what = format!("may not create a schema in database {database}, and {schema} does not exist");
            (what, format!("create schema \"{schema}\" authorization {role}"))
        } else if self.has_schema && !self.may_use {
            let sql = format!("grant usage, create on schema \"{schema}\" to {role}; {rows}");
            (format!("may not use schema {schema}"), sql)
        } else if !self.may_read_tables {
            (format!("may not read the tables of schema {schema}"), rows)
        } else if self.has_schema && missing > 0 && !self.may_make_tables {
            let what = format!("may not create tables in schema {schema}, which lacks {missing} of {known} migrations");
            (what, format!("grant create on schema \"{schema}\" to {role}"))
        } else {
            return None;
        };
        Some(format!("role {role} {what}: as the owner of the database or a superuser run: {sql};"))
    }

    fn row_grants(&self, schema: &str) -> String {
        format!("grant select, insert, update, delete on all tables in schema \"{schema}\" to {}", self.role)
    }

    /// Explains why a statement of an instance has failed in the rehearsal.
    fn refused(&self, error: &StateError, settings: &PostgresSettings) -> String {
        let said = match (error, error.of_server()) {
            (_, Some(said)) => said,
            (StateError::Database(source), None) if source.is::<StateError>() => return source.to_string(),
            (StateError::Database(_), None) => return advice(error, settings),
            (error, None) => return error.to_string(),
        };
        let advice = match *said.code() {
            SqlState::INSUFFICIENT_PRIVILEGE => {
                let (role, rows) = (&self.role, self.row_grants(&settings.schema));
                format!("role {role} lacks a right: as the owner of the database or a superuser run: {rows};")
            }
            SqlState::LOCK_NOT_AVAILABLE => "another session has locked a table: try again".to_owned(),
            _ => format!("compare schema {} with the schema of a new state", settings.schema),
        };
        format!("the server says about a statement of the daemon: {}; {advice}", said.message())
    }

    /// Why the state cannot be used: it is missing, is not the state that was used before, or is incomplete.
    fn other_state(&self, schema: &str, known: Option<Uuid>, remedy: &str) -> Option<String> {
        match (self.state, known) {
            (None, Some(_)) if self.applied == 0 => Some(gone(schema, remedy)),
            (Some((id, _)), Some(known)) if id != known => Some(replaced(schema, remedy)),
            (Some((_, true)), _) => Some(incomplete(schema)),
            _ => None,
        }
    }

    fn said(&self, schema: &str) -> String {
        let (missing, known) = (self.missing(), MIGRATIONS.len());
        let state = match (self.has_schema, missing) {
            (false, _) => "will be created".to_owned(),
            (true, 0) => format!("is up to date ({known} migrations)"),
            (true, _) => format!("exists, and {missing} of {known} migrations will be applied"),
        };
        let mut said = format!("PostgreSQL {}; schema {schema} {state}", self.version);
        if self.is_pooled {
            said += "; it is behind a transaction pooler, which is supported";
        }
        for early_ack in self.early_acks(schema) {
            said = format!(
                "{said}; WARNING: if the server crashes, it may lose recorded cursors, and events are delivered again, because {early_ack}"
            );
        }
        said
    }

    /// Why the server acknowledges commits before they are on its disk, with the remedy for each reason.
    fn early_acks(&self, schema: &str) -> Vec<String> {
        let mut early_acks = self.early.reasons("this role");
        early_acks.extend(
            self.unlogged
                .iter()
                .map(|table| format!("table {table} is unlogged: run: alter table \"{schema}\".{table} set logged;")),
        );
        early_acks
    }
}

fn advice(error: &StateError, settings: &PostgresSettings) -> String {
    // An error inside an `Arc` cannot be downcast, so it is unwrapped first.
    let error: &(dyn Error + 'static) = match error {
        StateError::Database(source) => &**source,
        other => other,
    };
    advised(error, &settings.server, "state")
}

#[cfg(test)]
mod tests;
