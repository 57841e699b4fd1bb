//! The tables, and the statements over them.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_postgres::Client;

use crate::postgres::{DatabaseError, answered};

/// Each is applied once, in order, by whichever instance comes first. `{schema}` is the schema's quoted name.
pub(super) const MIGRATIONS: [&str; 3] =
    [include_str!("migrations/1.sql"), include_str!("migrations/2.sql"), include_str!("migrations/3.sql")];

/// The advisory lock under which one instance at a time migrates.
const LOCK: i64 = 0x6368_616e_6e65_6c64;

/// The schema, and the statements that name it.
#[derive(Debug)]
pub(super) struct Schema {
    name: String,
    is_ready: AtomicBool,
    pub(super) applied: String,
    pub(super) commit: String,
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
    pub(super) take: String,
    pub(super) answer: String,
    pub(super) show: String,
    pub(super) forget_proofs: String,
}

impl Schema {
    /// `name` is an identifier that needs no escape.
    pub(super) fn new(name: &str) -> Self {
        let of = |statement: &str| statement.replace("{schema}", &format!("\"{name}\""));
        Self {
            name: name.to_owned(),
            is_ready: AtomicBool::new(false),
            applied: of("select coalesce(max(number), 0) from {schema}.migrations"),
            commit: of(include_str!("statements/commit.sql")),
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
            take: of(include_str!("statements/take.sql")),
            answer: of("update {schema}.requests set answered = clock_timestamp(), status = $2, answer = $3 \
                        where id = $1"),
            show: of(include_str!("statements/show.sql")),
            forget_proofs: of("delete from {schema}.proofs \
                               where number <= (select max(number) - $1 from {schema}.proofs)"),
        }
    }

    /// Applies what is missing. One instance at a time: the others wait for its lock, and find everything there.
    pub(super) async fn prepare(&self, client: &Client) -> Result<(), DatabaseError> {
        if self.is_ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        answered(client.batch_execute(&self.migration())).await?;
        self.is_ready.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// One statement: nothing is left locked where this process stops in the middle.
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
