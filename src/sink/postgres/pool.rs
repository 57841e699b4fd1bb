//! Connections: as many as lanes deliver at the same time, up to a few.
//!
//! Before the first statement the tables are looked at and, where that is allowed, made; and again after a statement that
//! did not find them as they are to be.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row};
use tracing::info;

use super::PostgresSettings;
use super::cells::Parameter;
use super::refusal::Failure;
use super::table::{Missing, Seen};
use crate::SinkError;
use net::postgres::{ANSWER_TIMEOUT, Connector, DatabaseError, Open, answered};
use net::tasks::{joined, lock};

/// So many lanes deliver at the same time at the most: each has a connection for a whole delivery.
const CONNECTIONS: usize = 4;

/// How long a statement that is of no use any more is waited for.
const MOMENT: Duration = Duration::from_secs(1);

/// How long a change of the tables waits for a lock. Everyone who uses the tables waits behind it.
const LOCK_TIMEOUT: &str = "5s";

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
    /// Held while the tables are looked at and made: once is enough for all lanes.
    preparing: tokio::sync::Mutex<()>,
    /// Whether one connection has reached several processes of the server.
    is_pooled: AtomicBool,
}

/// A connection borrowed from the pool. Dropped, it goes back if no statement is under way on it.
pub(super) struct Borrowed<'p> {
    pool: &'p Pool,
    /// `None` once it is given back.
    open: Option<Open>,
    /// Statements that the server has not answered, as far as is known.
    unanswered: AtomicUsize,
    _permit: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(name: &str, settings: Arc<PostgresSettings>) -> Result<Self, SinkError> {
        let at = format!("sinks.{name}");
        let connector = Connector::new(&settings.server)
            .map_err(|error| SinkError::unusable(format!("{at}.url: no certificate can be checked: {error}")))?;
        let (turns, idle, is_ready) = (Semaphore::new(CONNECTIONS), Mutex::default(), AtomicBool::new(false));
        let (preparing, is_pooled) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        Ok(Self { at, settings, connector, turns, idle, is_ready, preparing, is_pooled })
    }

    /// Waits for a connection.
    pub(super) async fn borrow(&self) -> Result<Borrowed<'_>, Failure> {
        let permit = self.turn().await;
        let open = self.open().await?;
        Ok(self.lend(self.prepared(open).await?, permit))
    }

    /// As [`borrow`](Self::borrow), but without making tables.
    pub(super) async fn borrow_unprepared(&self) -> Result<Borrowed<'_>, Failure> {
        let permit = self.turn().await;
        Ok(self.lend(self.open().await?, permit))
    }

    async fn turn(&self) -> SemaphorePermit<'_> {
        self.turns.acquire().await.expect("it is never closed")
    }

    fn lend<'p>(&'p self, open: Open, permit: SemaphorePermit<'p>) -> Borrowed<'p> {
        Borrowed { pool: self, open: Some(open), unanswered: AtomicUsize::new(0), _permit: permit }
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

    /// Looks at the tables, and makes what is missing, unless that is done.
    async fn prepared(&self, open: Open) -> Result<Open, Failure> {
        let is_ready = || self.is_ready.load(Ordering::Relaxed);
        if is_ready() {
            return Ok(open);
        }
        let _preparing = self.preparing.lock().await;
        let open = if is_ready() { open } else { self.prepare(open).await? };
        self.is_ready.store(true, Ordering::Relaxed);
        Ok(open)
    }

    /// Makes what is missing, or says so. An old key of the table is dropped in a transaction of its own, once the new one was
    /// seen: that waits for readers, and the new one may have taken long.
    async fn prepare(&self, mut open: Open) -> Result<Open, Failure> {
        let missing = self.missing(&open).await?;
        if !missing.made.is_empty() {
            open = self.run(open, missing.made).await?;
        }
        if missing.dropped.is_empty() {
            return Ok(open);
        }
        let missing = self.missing(&open).await?;
        if missing.made.is_empty() {
            self.run(open, missing.dropped).await
        } else {
            Err(Failure::Database(format!("the table still lacks: {}; trying again", missing.made)))
        }
    }

    async fn missing(&self, open: &Open) -> Result<Missing, Failure> {
        self.look(open).await?.missing(&self.settings, &self.at).map_err(Failure::Operator)
    }

    /// Runs statements that change the tables, as one transaction. It goes on if it takes longer than one may wait, as an index
    /// on a large table does.
    async fn run(&self, open: Open, statements: String) -> Result<Open, Failure> {
        info!(sink = self.at, statements, "changing the tables");
        // Several statements in one text are one transaction. Those who read the tables must not wait for long behind it, so the
        // limit is for their locks, not for the turn of another instance.
        let statements = format!(
            "select pg_advisory_xact_lock({LOCK}); select set_config('lock_timeout', '{LOCK_TIMEOUT}', true); {statements}"
        );
        let mut running = tokio::spawn(async move { (open.client.batch_execute(&statements).await, open) });
        let Ok(done) = timeout(ANSWER_TIMEOUT, &mut running).await else {
            let what = "the tables are being changed, which takes long if they have many rows: waiting for it";
            return Err(Failure::Database(what.to_owned()));
        };
        let (made, open) = joined(done).await;
        match made {
            Ok(()) => Ok(open),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Err(Failure::Database(format!(
                "the tables have to be changed, and are locked by another session, which may change them: trying again ({error})"
            ))),
            Err(error) => Err(Failure::of_statement(&DatabaseError::Server(error), &self.settings.server, &self.at)),
        }
    }

    /// What a start will find.
    pub(super) async fn probe(&self) -> Result<String, Failure> {
        let open = self.connect().await?;
        let seen = self.look(&open).await?;
        let missing = seen.missing(&self.settings, &self.at).map_err(Failure::Operator)?;
        Ok(seen.said(&self.settings, &missing.to_string()))
    }
}

impl Borrowed<'_> {
    /// The rows that a statement gives.
    pub(super) async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Failure> {
        self.answer(self.send(statement, parameters)).await
    }

    /// The rows that a statement gives, whenever that is. It is sent when this is polled first; the server carries statements out
    /// in the order in which they are sent.
    pub(super) async fn send(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let answer = self.open().client.query_typed(statement, parameters).await;
        if answer.as_ref().err().is_none_or(|error| error.as_db_error().is_some()) {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        answer
    }

    /// Waits for an answer, for as long as one may take. An error is said as what it means.
    pub(super) async fn answer<T>(&self, sent: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        match answered(sent).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(&error).await),
        }
    }

    /// Waits a moment for the answer to a statement that is of no use any more, so that the connection can be used again. Then the
    /// server is asked to give the statement up, which may wait for a lock, and the connection is of no use either: what was asked
    /// may end the next statement. Returns whether it can be used.
    pub(super) async fn abandon(&self, sent: impl Future) -> bool {
        let is_answered = timeout(MOMENT, sent).await.is_ok();
        if !is_answered {
            self.pool.connector.cancel(self.open()).await;
        }
        is_answered
    }

    /// Whether a pooler stands before the server, as far as is known.
    pub(super) fn is_pooled(&self) -> bool {
        self.pool.is_pooled.load(Ordering::Relaxed)
    }

    pub(super) fn note_pooler(&self) {
        self.pool.is_pooled.store(true, Ordering::Relaxed);
    }

    async fn failed(&self, error: &DatabaseError) -> Failure {
        let pool = self.pool;
        if let DatabaseError::Silent(_) = error {
            // It may wait for a lock: without this, each further attempt would leave one more that waits.
            pool.connector.cancel(self.open()).await;
        }
        if !matches!(error, DatabaseError::Server(error) if error.as_db_error().is_some()) {
            // The others lead to the same server, which may have failed.
            lock(&pool.idle).clear();
        }
        let failure = Failure::of_statement(error, &pool.settings.server, &pool.at);
        if !matches!(failure, Failure::Event { .. }) {
            pool.is_ready.store(false, Ordering::Relaxed);
        }
        failure
    }

    fn open(&self) -> &Open {
        self.open.as_ref().expect("it is given back at the end")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if *self.unanswered.get_mut() == 0 {
            lock(&self.pool.idle).extend(self.open.take());
        }
    }
}
