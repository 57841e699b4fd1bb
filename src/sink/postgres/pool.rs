//! Connections: as many as lanes deliver at the same time, up to a few.
//!
//! Before the first statement the tables are looked at and, where that is allowed, made; and again after a statement that
//! did not find them as they are to be.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use tokio_postgres::Row;

use super::PostgresSettings;
use super::cells::Parameter;
use super::refusal::Failure;
use super::table::Seen;
use crate::postgres::{Connector, DatabaseError, Open, answered};
use crate::sink::SinkError;
use crate::tasks::lock;

/// Lanes that deliver at the same time share so many connections.
const CONNECTIONS: usize = 4;

/// The advisory lock under which one instance at a time makes tables.
const LOCK: i64 = 0x6368_616e_7461_626c;

pub(super) struct Pool {
    /// The table of the configuration that has the keys.
    at: String,
    settings: Arc<PostgresSettings>,
    connector: Connector,
    turns: Semaphore,
    idle: Mutex<Vec<Open>>,
    /// Whether the tables are as they are to be, as far as is known.
    is_ready: AtomicBool,
}

impl Pool {
    pub(super) fn new(name: &str, settings: Arc<PostgresSettings>) -> Result<Self, SinkError> {
        let at = format!("sinks.{name}");
        let connector = Connector::new(&settings.server)
            .map_err(|error| SinkError::unusable(format!("{at}.url: no certificate can be checked: {error}")))?;
        let (turns, idle, is_ready) = (Semaphore::new(CONNECTIONS), Mutex::default(), AtomicBool::new(false));
        Ok(Self { at, settings, connector, turns, idle, is_ready })
    }

    /// The rows that a statement gives.
    pub(super) async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        let _turn = self.turns.acquire().await.expect("it is never closed");
        let open = self.open().await?;
        if !self.is_ready.load(Ordering::Relaxed) {
            self.prepare(&open).await?;
            self.is_ready.store(true, Ordering::Relaxed);
        }
        let answer = answered(open.client.query_typed(statement, parameters)).await;
        match answer {
            Ok(rows) => {
                lock(&self.idle).push(open);
                Ok(rows)
            }
            Err(error) => Err(self.failed(open, &error).await),
        }
    }

    /// What a statement's error means; the connection is kept where it is still good.
    async fn failed(&self, open: Open, error: &DatabaseError) -> Failure {
        if let DatabaseError::Silent(_) = error {
            // It may wait for a lock: without this, each further attempt would leave one more that waits.
            self.connector.cancel(&open).await;
        }
        let is_good = matches!(error, DatabaseError::Server(error) if error.as_db_error().is_some());
        if is_good && !open.client.is_closed() {
            lock(&self.idle).push(open);
        } else {
            // The others lead to the same server, which may have failed.
            lock(&self.idle).clear();
        }
        let failure = Failure::of_statement(error, &self.settings.server, &self.at);
        if !matches!(failure, Failure::Event { .. }) {
            self.is_ready.store(false, Ordering::Relaxed);
        }
        failure
    }

    async fn open(&self) -> Result<Open, Failure> {
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|open| !open.client.is_closed());
            idle.pop()
        };
        match idle {
            Some(open) => Ok(open),
            None => self.connect().await,
        }
    }

    async fn connect(&self) -> Result<Open, Failure> {
        let connected = self.connector.connect().await;
        connected.map_err(|error| Failure::of_connection(&error, &self.settings.server, &self.at))
    }

    async fn look(&self, open: &Open) -> Result<Seen, Failure> {
        let seen = Seen::look(&open.client, &self.settings).await;
        seen.map_err(|error| Failure::of_connection(&error, &self.settings.server, &self.at))
    }

    /// Makes what is missing, or says so.
    async fn prepare(&self, open: &Open) -> Result<(), Failure> {
        let missing = self.look(open).await?.missing(&self.settings, &self.at).map_err(Failure::Operator)?;
        if missing.is_empty() {
            return Ok(());
        }
        // Several statements in one text are one transaction.
        let statements = format!("select pg_advisory_xact_lock({LOCK}); {missing}");
        let made = answered(open.client.batch_execute(&statements)).await;
        made.map_err(|error| Failure::of_statement(&error, &self.settings.server, &self.at))
    }

    /// What a start will find.
    pub(super) async fn probe(&self) -> Result<String, Failure> {
        let open = self.connect().await?;
        let seen = self.look(&open).await?;
        let missing = seen.missing(&self.settings, &self.at).map_err(Failure::Operator)?;
        Ok(seen.said(&self.settings, &missing))
    }
}
