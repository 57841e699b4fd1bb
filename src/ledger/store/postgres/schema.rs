//! The tables and the statements that use them.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Client;
use uuid::Uuid;

use super::identity::Identity;
use crate::StateError;
use net::postgres::{DatabaseError, answered};

/// Each migration is applied once, in order, by the first instance that needs it. `{schema}` is the schema's quoted
/// name.
pub(super) const MIGRATIONS: [&str; 4] = [
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
];

/// From this migration on, a table contains the id of the state.
pub(super) const NAMED_SINCE: usize = 4;

/// The advisory lock that allows only one instance at a time to migrate.
const LOCK: i64 = 0x6368_616e_6e65_6c64;

/// The schema, and the statements that contain its name.
#[derive(Debug)]
pub(super) struct Schema {
    name: String,
    pub(super) identity: Identity,
    is_ready: AtomicBool,
    pub(super) applied: String,
    pub(super) which: String,
    open: String,
    pub(super) commit: String,
    pub(super) offer: String,
    pub(super) claim: String,
    pub(super) entries: String,
    pub(super) body: String,
    pub(super) release: String,
    pub(super) channels: String,
    pub(super) beat: String,
    pub(super) join: String,
    pub(super) instances: String,
    pub(super) configurations: String,
    pub(super) ownership: String,
    pub(super) leave: String,
    pub(super) ask: String,
    pub(super) look: String,
    pub(super) withdraw: String,
    pub(super) take: String,
    pub(super) answer: String,
    pub(super) show: String,
    pub(super) forget: String,
    pub(super) begin_copy: String,
    pub(super) end_copy: String,
}

impl Schema {
    /// `name` is an identifier that needs no escaping.
    pub(super) fn new(name: &str, identity: Identity) -> Self {
        let of = |statement: &str| statement.replace("{schema}", &format!("\"{name}\""));
        Self {
            name: name.to_owned(),
            identity,
            is_ready: AtomicBool::new(false),
            applied: of("select coalesce(max(number), 0) from {schema}.migrations"),
            which: of("select id, incomplete, changes from {schema}.state"),
            open: of(include_str!("statements/open.sql")),
            commit: of(include_str!("statements/commit.sql")),
            offer: of(include_str!("statements/offer.sql")),
            claim: of(include_str!("statements/claim.sql")),
            entries: of(include_str!("statements/entries.sql")),
            body: of("select value from {schema}.entries where channel_id = $1 and kind = $2 and key = $3"),
            release: of(include_str!("statements/release.sql")),
            channels: of("select channel_id from {schema}.channels where epoch > 0"),
            beat: of(include_str!("statements/beat.sql")),
            join: of(include_str!("statements/join.sql")),
            instances: of("select id, name, configuration from {schema}.instances \
                           where heartbeat + lease > clock_timestamp()"),
            configurations: of("select id, channels from {schema}.instances where id = any($1)"),
            ownership: of(include_str!("statements/ownership.sql")),
            leave: of(include_str!("statements/leave.sql")),
            ask: of(include_str!("statements/ask.sql")),
            look: of(include_str!("statements/look.sql")),
            withdraw: of(include_str!("statements/withdraw.sql")),
            take: of(include_str!("statements/take.sql")),
            answer: of(include_str!("statements/answer.sql")),
            show: of(include_str!("statements/show.sql")),
            forget: of(include_str!("statements/forget.sql")),
            begin_copy: of(include_str!("statements/begin_copy.sql")),
            end_copy: of(include_str!("statements/end_copy.sql")),
        }
    }

    /// Checks on a new connection that the database contains this instance's state, and applies missing migrations. A
    /// schema that existed before and has disappeared is not created again.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), StateError> {
        let rows = answered(client.query_typed(&self.open, &[])).await?;
        let (exists, is_named) = rows.first().map_or((false, false), |row| (row.get(0), row.get(1)));
        if !exists {
            self.identity.check_may_create(&self.name)?;
        }
        if !is_named || !self.is_ready.load(Ordering::Relaxed) {
            self.migrate(client).await?;
            self.is_ready.store(true, Ordering::Relaxed);
        }
        let rows = answered(client.query_typed(&self.which, &[])).await?;
        let row = rows.first().ok_or_else(|| StateError::Damaged("the state has no id".to_owned()))?;
        self.identity.check(&self.name, row.get(0), row.get(1)).await
    }

    /// Checks that the state is still the same: it may have been replaced while the connection was open.
    pub(super) async fn check(&self, id: Uuid) -> Result<(), StateError> {
        self.identity.check(&self.name, id, false).await
    }

    /// Only one instance migrates at a time. The others wait for its lock and then find that no migration is missing.
    async fn migrate(&self, client: &Client) -> Result<(), DatabaseError> {
        answered(client.batch_execute(&self.migration())).await
    }

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
        let statement = format!(
            "do $channeld$\ndeclare applied int;\nbegin\n\
             perform pg_advisory_xact_lock({LOCK});\n\
             if not exists (select from pg_namespace where nspname = '{name}') then create schema {{schema}}; end if;\n\
             if to_regclass('{{schema}}.migrations') is null then\n\
             create table {{schema}}.migrations (number int primary key, applied timestamptz not null default now());\n\
             end if;\n\
             select coalesce(max(number), 0) into applied from {{schema}}.migrations;\n\
             if applied > {known} then\n\
             raise exception 'the schema {name} has version %, and this channeld knows %: run the version that wrote it, or \
             a newer one', applied, {known};\n\
             end if;\n{missing}end $channeld$"
        );
        statement.replace("{schema}", &format!("\"{name}\""))
    }
}
