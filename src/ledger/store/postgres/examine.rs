//! The report of `check --connect` about the database.
//!
//! # Invariants
//!
//! * **Nothing is changed:** no schema is created, and no migration is applied.
//! * **Every problem comes with a remedy,** in the form of SQL if SQL can solve it.
//!
//! # Cancellation
//!
//! Safe at any point.

use std::error::Error;
use std::path::Path;

use serde::Deserialize;
use tokio_postgres::types::Type;

use super::connection::connector;
use super::schema::{MIGRATIONS, NAMED_SINCE, Schema, gone, incomplete, remedy, replaced};
use super::{PostgresSettings, StateError, Used, Uuid, sql};
use net::postgres::{Connector, advice_on_standby, advised, answered};

/// The oldest server version that supports these statements, in the format of `server_version_num`.
const OLDEST: i32 = 130_000;

#[expect(clippy::struct_excessive_bools, reason = "each is a member of an answer")]
#[derive(Clone, Debug, Deserialize)]
struct DatabaseProperties {
    number: i32,
    version: String,
    is_read_only: bool,
    forgets: bool,
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
    may_change_tables: bool,
    has_migrations: bool,
    /// The number of applied migrations. `None` if it cannot be read or no migration was applied.
    #[serde(skip)]
    applied: Option<i32>,
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
        let seen = look(&connector, &self.schema).await;
        // An unreadable file is ignored: perhaps only the daemon's user can read it.
        let known = Used::read(directory).ok().and_then(|used| used.database).map(|used| used.id);
        let remedy = remedy(Some(directory));
        let said = seen.map_err(|error| advice(&error, self)).and_then(|seen| {
            let said = seen.assess(&self.schema)?;
            seen.other_state(&self.schema, known, &remedy).map_or(Ok(said), Err)
        });
        said.map_err(StateError::Unusable)
    }
}

/// Examines the database with two connections at once, because an instance needs more than one. Two connections also reveal
/// a pooler.
async fn look(connector: &Connector, name: &str) -> Result<DatabaseProperties, StateError> {
    let (one, other) = (connector.connect().await?, connector.connect().await?);
    let schema = Schema::new(name);
    let row = answered(one.client.query_typed(sql::EXAMINE, &[(&name as _, Type::TEXT)])).await?.pop();
    let seen = row.and_then(|row| serde_json::from_str::<DatabaseProperties>(row.get(0)).ok());
    let mut seen = seen.ok_or_else(|| StateError::Damaged("the server did not describe itself".to_owned()))?;
    let process = answered(other.client.query_typed("select pg_backend_pid()", &[])).await?;
    // If a pooler is in between, two open connections can share one server process. Without a pooler they cannot.
    seen.is_pooled = process.first().map(|row| row.get::<_, i32>(0)) == Some(seen.process);
    if seen.has_migrations && seen.may_use && seen.may_change_tables {
        let rows = answered(one.client.query_typed(&schema.statement(sql::APPLIED), &[])).await?;
        seen.applied = rows.first().map(|row| row.get(0));
        if seen.applied() >= NAMED_SINCE {
            let rows = answered(one.client.query_typed(&schema.statement(sql::WHICH), &[])).await?;
            seen.state = rows.first().map(|row| (row.get(0), row.get(1)));
        }
    }
    Ok(seen)
}

impl DatabaseProperties {
    /// Describes what `run` will do with the database. The error says why `run` cannot work, and gives the remedy.
    fn assess(&self, schema: &str) -> Result<String, String> {
        self.refusal(schema).or_else(|| self.missing_right(schema)).map_or_else(|| Ok(self.said(schema)), Err)
    }

    fn applied(&self) -> usize {
        usize::try_from(self.applied.unwrap_or(0)).unwrap_or(0)
    }

    /// The number of migrations that a start applies.
    fn missing(&self) -> usize {
        MIGRATIONS.len().saturating_sub(self.applied())
    }

    fn refusal(&self, schema: &str) -> Option<String> {
        if self.number < OLDEST {
            let (version, oldest) = (&self.version, OLDEST / 10_000);
            return Some(format!("PostgreSQL {version} is too old: channeld needs {oldest} or newer"));
        }
        let (applied, known) = (self.applied(), MIGRATIONS.len());
        if applied > known {
            return Some(format!(
                "schema {schema} has {applied} migrations, but this channeld knows only {known}: run the version that wrote the schema, or a newer version"
            ));
        }
        self.is_read_only.then(|| {
            format!("it accepts no writes, for example because it is a standby: {}", advice_on_standby("state"))
        })
    }

    fn missing_right(&self, schema: &str) -> Option<String> {
        let Self { role, database, .. } = self;
        let (missing, known) = (self.missing(), MIGRATIONS.len());
        let rows = format!("grant select, insert, update, delete on all tables in schema \"{schema}\" to {role}");
        let (what, sql) = if !self.has_schema && !self.may_make_schema {
            let what = format!("may not create a schema in database {database}, and {schema} does not exist");
            (what, format!("create schema \"{schema}\" authorization {role}"))
        } else if self.has_schema && !self.may_use {
            let sql = format!("grant usage, create on schema \"{schema}\" to {role}; {rows}");
            (format!("may not use schema {schema}"), sql)
        } else if !self.may_change_tables {
            (format!("may not change the tables of schema {schema}"), rows)
        } else if self.has_schema && missing > 0 && !self.may_make_tables {
            let what = format!("may not create tables in schema {schema}, which lacks {missing} of {known} migrations");
            (what, format!("grant create on schema \"{schema}\" to {role}"))
        } else {
            return None;
        };
        Some(format!("role {role} {what}: as the owner of the database or a superuser run: {sql};"))
    }

    /// Why the state cannot be used: it is missing, is not the state that was used before, or is incomplete.
    fn other_state(&self, schema: &str, known: Option<Uuid>, remedy: &str) -> Option<String> {
        match (self.state, known) {
            (None, Some(_)) if self.applied() == 0 => Some(gone(schema, remedy)),
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
        if self.forgets {
            said += "; WARNING: synchronous_commit is off: if the server crashes, it may lose recorded cursors, and events are delivered again; turn synchronous_commit on for this role";
        }
        said
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
mod tests {
    use super::*;

    fn good() -> DatabaseProperties {
        DatabaseProperties {
            number: 150_008,
            version: "15.8".to_owned(),
            is_read_only: false,
            forgets: false,
            process: 7,
            is_pooled: false,
            role: "channeld".to_owned(),
            database: "state".to_owned(),
            may_make_schema: true,
            has_schema: true,
            may_use: true,
            may_make_tables: true,
            may_change_tables: true,
            has_migrations: true,
            applied: Some(i32::try_from(MIGRATIONS.len()).unwrap()),
            state: Some((Uuid::from_u128(7), false)),
        }
    }

    #[test]
    fn a_server_that_is_too_old_a_standby_and_a_newer_schema_are_refused() {
        for (seen, words) in [
            (
                DatabaseProperties { number: 120_018, version: "12.18".to_owned(), ..good() },
                "PostgreSQL 12.18 is too old",
            ),
            (DatabaseProperties { is_read_only: true, ..good() }, "target_session_attrs=read-write"),
            (DatabaseProperties { applied: Some(99), ..good() }, "has 99 migrations"),
        ] {
            let said = seen.assess("channeld").unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn objects_to_create_are_listed_beforehand() {
        for (seen, words) in [
            (good(), "is up to date"),
            (DatabaseProperties { applied: Some(1), ..good() }, "4 of 5 migrations will be applied"),
            (
                DatabaseProperties {
                    has_schema: false,
                    may_use: false,
                    may_make_tables: false,
                    applied: None,
                    ..good()
                },
                "will be created",
            ),
            // Nothing will be created there, so no privilege to create anything is needed.
            (DatabaseProperties { may_make_schema: false, may_make_tables: false, ..good() }, "is up to date"),
        ] {
            let said = seen.assess("channeld").unwrap();
            assert!(said.contains(words) && !said.contains("CAREFUL"), "{said}");
        }
    }
}
